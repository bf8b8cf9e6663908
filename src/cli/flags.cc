#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <optional>

#include "cli/flag_spelling.h"

namespace forebay::cli {
namespace {

template <typename T>
bool IsNumberAbove0(const std::string& text) {
  T number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  return error == std::errc() && end == last && number > 0;
}

// The command whose arguments were at fault.
const CLI::App& FaultyCommand(const CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  return parsed.empty() ? app : *parsed.back();
}

std::vector<std::string> ShownFlags(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string Describe(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = FaultyCommand(app);
  const std::string words =
      &command == &app ? app.get_name() : app.get_name() + " " + command.get_name();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    for (const std::string& stranger : app.remaining(true)) {
      if (!stranger.starts_with("-")) continue;
      const std::string hint = HintFor(ShownFlags(command), stranger);
      return fmt::format("{} is no flag of {}{}{}", stranger, words, hint.empty() ? "" : ": ",
                         hint);
    }
  }
  const std::vector<const CLI::App*> commands =
      app.get_subcommands([](const CLI::App*) { return true; });
  if (const std::vector<std::string> rest = app.remaining();
      &command == &app && !commands.empty() && !rest.empty() && !rest[0].starts_with("-")) {
    std::string names;
    for (const CLI::App* each : commands) names += (names.empty() ? "" : ", ") + each->get_name();
    return fmt::format("{} is no command of {}; expected {}", rest[0], words, names);
  }
  std::string text = error.what();
  while (text.ends_with('\n')) text.pop_back();
  if (text.starts_with(": ")) text.erase(0, 2);
  return commands.empty() ? text : fmt::format("{}; see `{} --help`", text, words);
}

}  // namespace

const Flag& Flag::required() const {
  option_->required();
  return *this;
}

const Flag& Flag::capture_default_str() const {
  option_->capture_default_str();
  return *this;
}

const Flag& Flag::hidden() const {
  option_->group("");
  return *this;
}

const Flag& Flag::among(const std::vector<std::string>& values) const {
  option_->check(CLI::IsMember(values));
  return *this;
}

const Flag& Flag::check(std::string (*check)(const std::string&)) const {
  // The parser names no hidden flag.
  option_->check([check, option = option_](const std::string& text) {
    const std::string wrong = check(text);
    if (wrong.empty() || !option->get_group().empty()) return wrong;
    return fmt::format("--{}: {}", option->get_lnames().front(), wrong);
  });
  return *this;
}

const Flag& Flag::excludes(const Flag& other) const {
  option_->excludes(other.option_);
  return *this;
}

std::string CheckPositive(const std::string& text) {
  return IsNumberAbove0<int64_t>(text) ? "" : fmt::format("\"{}\" is no integer above 0", text);
}

std::string CheckPositiveNumber(const std::string& text) {
  return IsNumberAbove0<double>(text) ? "" : fmt::format("\"{}\" is no number above 0", text);
}

template <typename T>
Flag Command::add_option(const std::string& name, T& value, const std::string& help) const {
  CLI::Option* const option = app_->add_option(name, value, help);
  // The parser takes it for no value, or for 0: a variable that a script did not set.
  option->check([](const std::string& text) {
    return text.empty() ? "the value is empty; expected one, or the flag left out" : std::string();
  });
  return Flag(option);
}
template Flag Command::add_option(const std::string&, std::string&, const std::string&) const;
template Flag Command::add_option(const std::string&, int32_t&, const std::string&) const;
template Flag Command::add_option(const std::string&, int64_t&, const std::string&) const;
template Flag Command::add_option(const std::string&, uint64_t&, const std::string&) const;
template Flag Command::add_option(const std::string&, double&, const std::string&) const;
template Flag Command::add_option(const std::string&, std::vector<std::string>&,
                                  const std::string&) const;
template Flag Command::add_option(const std::string&, std::optional<std::string>&,
                                  const std::string&) const;
template Flag Command::add_option(const std::string&, std::optional<int64_t>&,
                                  const std::string&) const;
template Flag Command::add_option(const std::string&, std::optional<double>&,
                                  const std::string&) const;

Flag Command::add_flag(const std::string& name, bool& value, const std::string& help) const {
  return Flag(app_->add_flag(name, value, help));
}

Command Command::add_subcommand(const std::string& name, const std::string& help) const {
  return Command(app_->add_subcommand(name, help));
}

void Command::callback(std::function<void()> run) const { app_->callback(std::move(run)); }

CommandLine::CommandLine(const std::string& name, const std::string& help)
    : app_(std::make_unique<CLI::App>(help, name)) {}
CommandLine::~CommandLine() = default;

void CommandLine::RequireCommand(const std::string& version) {
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
}

std::vector<std::pair<std::string, bool>> CommandLine::FlagNames() const {
  std::vector<std::pair<std::string, bool>> names;
  for (const CLI::Option* option : app_->get_options()) {
    for (const std::string& name : option->get_lnames())
      if (name != "help") names.emplace_back(name, option->get_items_expected_max() > 0);
  }
  return names;
}

base::Status CommandLine::Parse(std::span<const std::string> arguments) const {
  try {
    // CLI11 takes them from the back.
    app_->parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0)
      return base::Status(base::kInvalidArgument, Describe(*app_, error));
    app_->exit(error);  // help, version
  }
  return base::Status::Ok();
}

}  // namespace forebay::cli
