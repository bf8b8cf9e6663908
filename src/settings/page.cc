#include "settings/page.h"

#include <algorithm>

namespace forebay::settings {
namespace {

constexpr std::string_view kBegin = "<!-- settings: ", kBeginEnd = " -->\n", kEnd = "<!-- end -->";

// What the value is where nobody sets it, if the help does not say so: " (default: 20)".
std::string DefaultOf(const Setting& setting, std::string_view quote) {
  if (setting.value.arity == Value::Arity::kSwitch) return "";
  const std::string value = setting.value.print(RunOptions());
  if (value.empty() || setting.help.find("(default") != std::string_view::npos) return "";
  return fmt::format(" (default: {}{}{})", quote, value, quote);
}

// Markdown without code marks, and links as their words.
std::string Plain(std::string_view markdown) {
  std::string text;
  for (size_t at = 0; at < markdown.size(); ++at) {
    const char c = markdown[at];
    if (c == '`' || c == '[') continue;
    if (c == ']' && markdown.substr(at).starts_with("](")) {
      at = std::min(markdown.find(')', at), markdown.size());
      continue;
    }
    text += c;
  }
  return text;
}

// "`-m`, `--model`"
std::string Names(const Setting& setting) {
  std::string names;
  std::string_view rest = setting.flag;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    std::string_view name = rest.substr(0, comma);
    if (name.starts_with('!')) name.remove_prefix(1);
    names += fmt::format("{}`{}`", names.empty() ? "" : ", ", name);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return names;
}

std::string CallersOf(const Setting& setting) {
  std::vector<std::string> callers;
  if (setting.callers & kRun) callers.push_back("`run`");
  if (setting.callers & kPlan) callers.push_back("`plan`");
  if (setting.callers & kPython) callers.push_back("Python");
  return fmt::format("{}", fmt::join(callers, ", "));
}

// A cell of a Markdown table.
std::string Cell(std::string_view text) {
  std::string cell;
  for (const char c : text) cell += c == '|' ? "\\|" : c == '\n' ? ". " : std::string(1, c);
  return cell;
}

std::string TableOf(const Group& group) {
  std::string table;
  if (!group.intro.empty()) table += fmt::format("{}\n\n", group.intro);
  table += "| flag | of | meaning |\n|---|---|---|\n";
  for (const Setting& setting : group.settings) {
    const size_t line = std::min(setting.help.find('\n'), setting.help.size());
    table += fmt::format("| {} | {} | {}{}{} |\n", Names(setting), CallersOf(setting),
                         Cell(setting.help.substr(0, line)), DefaultOf(setting, "`"),
                         Cell(setting.help.substr(line)));
  }
  return table;
}

base::Status BadPage(std::string message) { return {base::kInvalidArgument, std::move(message)}; }

}  // namespace

std::string HelpLine(const Setting& setting) {
  return Plain(setting.help.substr(0, setting.help.find('\n'))) + DefaultOf(setting, "");
}

base::Result<std::string> FillPage(std::string_view page) {
  std::string filled;
  size_t groups = 0;
  for (size_t begin; (begin = page.find(kBegin)) != page.npos; ++groups) {
    const size_t name_at = begin + kBegin.size(), name_end = page.find(kBeginEnd, name_at);
    if (name_end == page.npos) return BadPage("a mark of settings is cut off");
    const std::string_view name = page.substr(name_at, name_end - name_at);
    const auto group = std::ranges::find(Table(), name, &Group::name);
    if (group == Table().end()) return BadPage(fmt::format("there is no group \"{}\"", name));
    const size_t end = page.find(kEnd, name_end);
    if (end == page.npos) return BadPage(fmt::format("the group \"{}\" has no end mark", name));
    filled += page.substr(0, name_end + kBeginEnd.size());
    filled += TableOf(*group);
    filled += kEnd;
    page.remove_prefix(end + kEnd.size());
  }
  if (groups != Table().size()) {
    return BadPage(
        fmt::format("the page has marks for {} groups; expected all {}", groups, Table().size()));
  }
  return filled += page;
}

}  // namespace forebay::settings
