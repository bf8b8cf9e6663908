// Flags of commands. Over CLI11, which flags.cc alone includes: its headers were a quarter of a
// build.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace CLI {
class App;
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
  // Help and hints do not name it.
  const Flag& hidden() const;
  const Flag& among(const std::vector<std::string>& values) const;
  // `check`: "", or what is wrong with the text that was given.
  const Flag& check(std::string (*check)(const std::string&)) const;
  const Flag& excludes(const Flag& other) const;

 private:
  CLI::Option* option_;
};

// For Flag::check: integers above 0; numbers above 0.
std::string CheckPositive(const std::string& text);
std::string CheckPositiveNumber(const std::string& text);

class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  // `name`: "-m,--model", or "parts" for an argument without a name. `value` lives as long as the
  // command line. T: a string, a number, an optional or a vector of these.
  template <typename T>
  Flag add_option(const std::string& name, T& value, const std::string& help = "") const;
  // "--on,!--off" sets `value` to true and false.
  Flag add_flag(const std::string& name, bool& value, const std::string& help) const;
  Command add_subcommand(const std::string& name, const std::string& help) const;
  // Runs when the command was asked for and its flags are read.
  void callback(std::function<void()> run) const;

 private:
  CLI::App* app_;
};

class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& help);
  ~CommandLine();

  Command root() const { return Command(app_.get()); }
  // The program's commands, of which one must be given, and --version.
  void RequireCommand(const std::string& version);
  // Names without dashes, and whether a value follows.
  std::vector<std::pair<std::string, bool>> FlagNames() const;
  // Sets what flags say and runs the command; prints help where that was asked for.
  // kInvalidArgument says which flag, what is wrong with it, and what might be meant.
  base::Status Parse(std::span<const std::string> arguments) const;

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace forebay::cli
