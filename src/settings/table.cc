#include "settings/table.h"

#include <set>

#include "settings/groups.h"

namespace forebay::settings {
namespace {

// The long name that begins behind `mark` in "-m,--model" or "--on,!--off".
std::string_view LongName(std::string_view flag, std::string_view mark) {
  const size_t at = ("," + std::string(flag)).find(mark);
  if (at == std::string_view::npos) return {};
  const std::string_view name = flag.substr(at + mark.size() - 3);
  return name.substr(0, name.find(','));
}

}  // namespace

std::string OneOf(const std::vector<std::string>& texts) {
  std::string list;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) list += i + 1 < texts.size() ? ", " : " or ";
    list += texts[i];
  }
  return list;
}

std::string_view Setting::name() const { return LongName(flag, ",--"); }
std::string_view Setting::opposite() const { return LongName(flag, ",!--"); }

const std::vector<Group>& Table() {
  static const std::vector<Group> table = {
      ModelGroup(), PlanGroup(), FilesGroup(),    LengthsGroup(),    MemoryGroup(), DevicesGroup(),
      TextGroup(),  LogsGroup(), ArrivalsGroup(), SimulationGroup(), PaperGroup(),  TrialGroup()};
  return table;
}

const Setting* Find(std::string_view name, Caller caller) {
  for (const Group& group : Table()) {
    for (const Setting& setting : group.settings) {
      if ((setting.callers & caller) == 0) continue;
      if (name == setting.name() || (!name.empty() && name == setting.opposite())) return &setting;
    }
  }
  return nullptr;
}

base::Status Read(std::span<const Given> given, RunOptions* options) {
  std::set<const Setting*> read;
  for (const auto& [setting, text] : given) {
    if (text.empty()) {
      return {base::kInvalidArgument,
              fmt::format("{}: the value is empty; expected one, or the flag left out",
                          setting->name())};
    }
    if (!read.insert(setting).second && setting->value.arity == Value::Arity::kOne) {
      return {base::kInvalidArgument,
              fmt::format("{} is given twice; expected once", setting->name())};
    }
    const base::Status status = setting->value.read(setting->name(), text, *options);
    const bool is_named = status.message().find(setting->name()) != std::string::npos;
    if (!status.ok()) return is_named ? status : status.WithContext(setting->name());
  }
  return Resolve(options);
}

std::string PrintMark(job::Setting mark, const RunOptions& options) {
  std::string text;
  for (const Group& group : Table()) {
    for (const Setting& setting : group.settings) {
      if (setting.mark != mark) continue;
      text += (text.empty() ? "" : " ") + setting.value.print(options);
    }
  }
  return text;
}

}  // namespace forebay::settings
