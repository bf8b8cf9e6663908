#include "base/marked_page.h"

#include <fmt/format.h>

#include <algorithm>

namespace forebay::base {
namespace {

constexpr std::string_view kBeginEnd = " -->\n", kEnd = "<!-- end -->";

Status BadPage(std::string message) { return {kInvalidArgument, std::move(message)}; }

}  // namespace

Result<std::string> FillMarks(std::string_view page, std::string_view kind,
                              const std::vector<MarkedTable>& tables) {
  const std::string begin = fmt::format("<!-- {}: ", kind);
  std::string filled;
  std::vector<std::string_view> left;
  for (const MarkedTable& table : tables) left.push_back(table.name);
  for (size_t at; (at = page.find(begin)) != page.npos;) {
    const size_t name_at = at + begin.size(), name_end = page.find(kBeginEnd, name_at);
    if (name_end == page.npos) return BadPage(fmt::format("a mark of {} is cut off", kind));
    const std::string_view name = page.substr(name_at, name_end - name_at);
    const auto table = std::ranges::find(tables, name, &MarkedTable::name);
    if (table == tables.end()) return BadPage(fmt::format("there is no {} \"{}\"", kind, name));
    if (std::erase(left, name) == 0)
      return BadPage(fmt::format("the {} \"{}\" has two marks", kind, name));
    const size_t end = page.find(kEnd, name_end);
    if (end == page.npos) return BadPage(fmt::format("the {} \"{}\" has no end mark", kind, name));
    filled += page.substr(0, name_end + kBeginEnd.size());
    filled += table->text;
    filled += kEnd;
    page.remove_prefix(end + kEnd.size());
  }
  if (!left.empty())
    return BadPage(fmt::format("the page has no mark \"{}{} -->\"", begin, left.front()));
  return filled += page;
}

}  // namespace forebay::base
