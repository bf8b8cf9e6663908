#include "cli/setting_flags.h"

#include "settings/page.h"

namespace forebay::cli {

namespace {

// By Value::Arity.
constexpr Texts kTexts[] = {Texts::kNone, Texts::kOne, Texts::kMany};

}  // namespace

SettingFlags::SettingFlags(Command command, settings::Caller caller) {
  for (const settings::Group& group : settings::Table()) {
    for (const settings::Setting& setting : group.settings) {
      if ((setting.callers & caller) == 0) continue;
      const Flag flag = command.add_texts(
          std::string(setting.flag), kTexts[static_cast<size_t>(setting.value.arity)],
          std::string(setting.value.kind),
          setting.who == settings::Class::kUser ? Shown::kAlways : Shown::kInHelpAll,
          settings::HelpLine(setting));
      flag.group(std::string(group.name));
      if (setting.name() == "--model") flag.required();
      flags_.emplace_back(&setting, flag);
    }
  }
  command.add_help_all("Print all flags: for tuning, of the papers, and trials too");
}

base::Status SettingFlags::Read(settings::RunOptions* options) const {
  std::vector<settings::Given> given;
  for (const auto& [setting, flag] : flags_) {
    for (const std::string& text : flag.texts()) given.push_back({setting, text});
  }
  return settings::Read(given, options);
}

}  // namespace forebay::cli
