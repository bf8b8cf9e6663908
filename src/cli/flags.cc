#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <iterator>

#include "cli/flag_spelling.h"

namespace forebay::cli {

// A command, which remembers what --help leaves to --help-all.
class App : public CLI::App {
 public:
  using CLI::App::App;

  void LeaveToHelpAll(CLI::Option* option) { left_to_help_all_.push_back(option); }
  void HideForHelp() const {
    for (CLI::Option* option : left_to_help_all_) option->group("");
  }

 private:
  std::vector<CLI::Option*> left_to_help_all_;
};

namespace {

// The command whose arguments were at fault.
const CLI::App& FaultyCommand(const CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  return parsed.empty() ? app : *parsed.back();
}

// `help` in lines that end at column 100, behind the 30 columns of names.
std::string InLines(const std::string& help) {
  constexpr size_t kWidth = 70;
  std::string lines;
  size_t begin = 0;
  while (help.size() - begin > kWidth) {
    const size_t space = help.rfind(' ', begin + kWidth);
    if (space == std::string::npos || space <= begin) break;
    lines += help.substr(begin, space - begin) + '\n';
    begin = space + 1;
  }
  return lines + help.substr(begin);
}

std::vector<std::string> ShownFlags(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// "8GiB" after a switch, as after `--memory` of `plan`: what the switch is, and which flags, named
// after it, take a value. "" where `stranger` follows no switch.
std::string AfterSwitch(const CLI::App& command, std::span<const std::string> arguments,
                        const std::string& words, const std::string& stranger) {
  const auto at = std::ranges::find(arguments, stranger);
  if (at == arguments.begin() || at == arguments.end()) return "";
  const std::string& flag = *std::prev(at);
  const CLI::Option* const option = command.get_option_no_throw(flag);
  if (option == nullptr || option->get_expected_max() > 0) return "";
  std::string text =
      fmt::format("{} of {} takes no value, and {} follows it", flag, words, stranger);
  for (const CLI::Option* other : command.get_options()) {
    if (other->get_expected_max() > 0 && other->get_name().starts_with(flag + "-"))
      return text + fmt::format("; did you mean {} {}?", other->get_name(), stranger);
  }
  return text;
}

std::string Describe(const CLI::App& app, const CLI::ParseError& error,
                     std::span<const std::string> arguments) {
  const CLI::App& command = FaultyCommand(app);
  const std::string words =
      &command == &app ? app.get_name() : app.get_name() + " " + command.get_name();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    for (const std::string& stranger : app.remaining(true)) {
      if (!stranger.starts_with("-")) {
        if (std::string text = AfterSwitch(command, arguments, words, stranger); !text.empty())
          return text;
        continue;
      }
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
    for (const CLI::App* each : commands) {
      if (!each->get_group().empty()) names += (names.empty() ? "" : ", ") + each->get_name();
    }
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

const Flag& Flag::excludes(const Flag& other) const {
  option_->excludes(other.option_);
  return *this;
}

const Flag& Flag::group(const std::string& heading) const {
  option_->group(heading);
  return *this;
}

std::vector<std::string> Flag::texts() const { return option_->results(); }

template <typename T>
Flag Command::add_option(const std::string& name, T& value, const std::string& help) const {
  CLI::Option* const option = app_->add_option(name, value, InLines(help));
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

Flag Command::add_flag(const std::string& name, bool& value, const std::string& help) const {
  return Flag(app_->add_flag(name, value, InLines(help)));
}

Flag Command::add_texts(const std::string& name, Texts texts, const std::string& kind, Shown shown,
                        const std::string& help) const {
  const std::string lines = InLines(help);
  CLI::Option* const option =
      texts == Texts::kNone ? app_->add_flag(name, lines) : app_->add_option(name, lines);
  if (texts != Texts::kNone) option->type_name(kind);
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  if (texts == Texts::kMany) option->expected(CLI::detail::expected_max_vector_size);
  if (shown == Shown::kInHelpAll) app_->LeaveToHelpAll(option);
  return Flag(option);
}

void Command::add_help_all(const std::string& help) const {
  app_->set_help_all_flag("--help-all", help);
}

Command Command::add_subcommand(const std::string& name, const std::string& help) const {
  const auto command = std::make_shared<App>(help, name);
  app_->CLI::App::add_subcommand(command);
  return Command(command.get());
}

void Command::hide() const { app_->group(""); }

void Command::callback(std::function<void()> run) const { app_->callback(std::move(run)); }

CommandLine::CommandLine(const std::string& name, const std::string& help)
    : app_(std::make_unique<App>(help, name)) {}
CommandLine::~CommandLine() = default;

Command CommandLine::root() const { return Command(app_.get()); }

void CommandLine::RequireCommand(const std::string& version) {
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
}

base::Status CommandLine::Parse(std::span<const std::string> arguments) const {
  try {
    // CLI11 takes them from the back.
    app_->parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0)
      return base::Status(base::kInvalidArgument, Describe(*app_, error, arguments));
    if (error.get_name() == "CallForHelp") {
      for (const CLI::App* command : app_->get_subcommands())
        static_cast<const App*>(command)->HideForHelp();
    }
    app_->exit(error);  // help, version
  }
  return base::Status::Ok();
}

}  // namespace forebay::cli
