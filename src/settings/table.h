// The declared table of settings: what a user may set about a run, and all that follows from it. A
// row is a setting (docs/recipes/setting.md). From the rows follow the flags of `forebay run` and
// `plan`, Python's keyword arguments, the checks of their values, which of them would do nothing in
// a layout (mute.h), the tables of docs/cli.md (page.h), and which of them a job's fingerprint
// holds.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "job/files/settings.h"
#include "settings/mute.h"
#include "settings/run_options.h"
#include "settings/value.h"

namespace forebay::settings {

// Who takes a setting; a row has a sum of these.
enum Caller : uint8_t { kRun = 1, kPlan = 2, kPython = 4 };

// Whom a setting is for: everybody (--help); somebody who tunes (--help-all); somebody who wants a
// paper's baseline; our own tests and trials.
enum class Class : uint8_t { kUser, kTuning, kPaper, kTrial };

struct Setting {
  std::string_view flag;  // "-m,--model"; a switch may have an opposite: "--on,!--off".
  unsigned callers;       // A sum of Callers.
  Class who;
  Value value;
  // Sentences in Markdown. --help shows the first line, as plain text; docs/cli.md shows all.
  std::string_view help;
  // What it is about; where that is not there the setting would do nothing, and is refused.
  Mute mute = {};
  // The mark of the job's fingerprint that it enters; nothing: answers do not depend on it, or by
  // the model's files and the numerics class alone.
  std::optional<job::Setting> mark = {};

  std::string_view name() const;      // "--model"
  std::string_view opposite() const;  // "--off"; "": there is none.
};

struct Group {
  std::string_view name, intro;  // `intro`: a sentence for docs/cli.md, or none.
  std::vector<Setting> settings;
};

// All settings, in the order in which pages and --help show them.
const std::vector<Group>& Table();

// The setting of this name (or opposite), as `caller` takes it; null: there is none.
const Setting* Find(std::string_view name, Caller caller);

// A setting with a text that was given for it.
struct Given {
  const Setting* setting;
  std::string text;
};
// Reads what was given in turn, then resolves what settings decide together. Errors name the flag,
// what was given and what was expected.
base::Status Read(std::span<const Given> given, RunOptions* options);

// What the settings with this mark are: their values, in the table's order, with a space between.
std::string PrintMark(job::Setting mark, const RunOptions& options);

}  // namespace forebay::settings
