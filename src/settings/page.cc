#include "settings/page.h"

#include <algorithm>

#include "base/marked_page.h"

namespace forebay::settings {
namespace {

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

}  // namespace

std::string HelpLine(const Setting& setting) {
  return Plain(setting.help.substr(0, setting.help.find('\n'))) + DefaultOf(setting, "");
}

base::Result<std::string> FillPage(std::string_view page) {
  std::vector<base::MarkedTable> tables;
  for (const Group& group : Table()) tables.push_back({group.name, TableOf(group)});
  return base::FillMarks(page, "settings", tables);
}

}  // namespace forebay::settings
