// Flags of commands. Over CLI11, which flags.cc alone includes: its headers were a quarter of a
// build.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace CLI {
class Option;
}  // namespace CLI

namespace forebay::cli {

// A flag, or an argument without a name. Handles stay valid while the command line does.
class Flag {
 public:
  explicit Flag(CLI::Option* option) : option_(option) {}

  const Flag& required() const;
  // Help shows the value that the variable has now.
  const Flag& capture_default_str() const;
  const Flag& excludes(const Flag& other) const;
  // Help lists it under this heading.
  const Flag& group(const std::string& heading) const;
  // The texts that were given for it, once the command line is parsed; "true" and "false" for a
  // flag without values.
  std::vector<std::string> texts() const;

 private:
  CLI::Option* option_;
};

// How many texts a flag takes: none ("--on", or "--on,!--off"); one; one or more, and it may be
// repeated.
enum class Texts : uint8_t { kNone, kOne, kMany };
// Whether --help names a flag, or --help-all alone.
enum class Shown : uint8_t { kAlways, kInHelpAll };

class App;

class Command {
 public:
  explicit Command(App* app) : app_(app) {}

  // `name`: "-m,--model", or "parts" for an argument without a name. `value` lives as long as the
  // command line. T: a string, a number, an optional or a vector of these.
  template <typename T>
  Flag add_option(const std::string& name, T& value, const std::string& help = "") const;
  // "--on,!--off" sets `value` to true and false.
  Flag add_flag(const std::string& name, bool& value, const std::string& help) const;
  // A flag without a variable: Flag::texts. `kind`: how help names a text, as "SIZE".
  Flag add_texts(const std::string& name, Texts texts, const std::string& kind, Shown shown,
                 const std::string& help) const;
  // Adds --help-all.
  void add_help_all(const std::string& help) const;
  Command add_subcommand(const std::string& name, const std::string& help) const;
  // Help does not list the command.
  void hide() const;
  // Runs when the command was asked for and its flags are read.
  void callback(std::function<void()> run) const;

 private:
  App* app_;
};

class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& help);
  ~CommandLine();

  Command root() const;
  // The program's commands, of which one must be given, and --version.
  void RequireCommand(const std::string& version);
  // Sets what flags say and runs the command; prints help where that was asked for.
  // kInvalidArgument says which flag, what is wrong with it, and what might be meant.
  base::Status Parse(std::span<const std::string> arguments) const;

 private:
  std::unique_ptr<App> app_;
};

}  // namespace forebay::cli
