#include "cost/profile_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/json_writer.h"
#include "cost/roofline.h"

namespace forebay::cost {
namespace {

std::string Quoted(std::string_view text) {
  std::string out;
  base::AppendJsonString(&out, text);
  return out;
}

std::string List(const std::vector<double>& values, const char* separator) {
  std::string out = "[";
  for (const double value : values)
    out += fmt::format("{}{:.10g}", out.size() > 1 ? separator : "", value);
  return out + "]";
}

// A line for each value of the first axis.
std::string Utilisations(const UtilisationTable& table, const DeviceProfile& profile) {
  std::string out;
  size_t at = 0;
  for (const double a : table.axes[0]) {
    std::string line;
    for (const double b : table.axes[1]) {
      for (const double c : table.axes[2]) {
        const Roofline work = RooflineAt(table.op, table.format, table.by_weights, {a, b, c},
                                         table.head_dim, profile);
        line += fmt::format("{}{:.4g}", line.empty() ? "" : ",",
                            work.seconds() / std::exp(table.log_seconds[at++]));
      }
    }
    out += fmt::format("{}{}", out.empty() ? "" : ",\n    ", line);
  }
  return out;
}

std::string Table(const UtilisationTable& table, const DeviceProfile& profile) {
  const auto names = AxisNames(table.op, table.by_weights);
  std::string out =
      fmt::format("  {{\"op\": \"{}\", \"format\": \"{}\",", Name(table.op), Name(table.format));
  if (IsAttention(table.op)) out += fmt::format(" \"head_dim\": {},", table.head_dim);
  out += fmt::format(" \"mark\": \"{}\",\n   \"source\": {},\n", Name(table.mark),
                     Quoted(table.source));
  out += fmt::format(
      "   \"residual\": {{\"median\": {:.4f}, \"p90\": {:.4f}, \"held_out\": {}}},\n   \"axes\": "
      "{{",
      table.residual.median, table.residual.p90, table.residual.held_out);
  for (int d = 0; d < 3; ++d) {
    out += fmt::format("{}\"{}\": {}", d ? ", " : "", names[d], List(table.axes[d], ", "));
  }
  return out + fmt::format("}},\n   \"utilisation\": [\n    {}]}}", Utilisations(table, profile));
}

}  // namespace

std::string WriteProfile(const DeviceProfile& profile) {
  std::string out = fmt::format(
      "{{\"format\": 1,\n \"name\": {},\n \"description\": {},\n \"kind\": \"{}\",\n \"numbers\": "
      "{{",
      Quoted(profile.name), Quoted(profile.description),
      profile.kind == DeviceKind::kCpu ? "cpu" : "gpu");
  const char* separator = "\n";
  for (const Provenance& entry : profile.provenance) {
    const auto rule = std::ranges::find(NumberRules(), entry.key, &NumberRule::key);
    FB_CHECK(rule != NumberRules().end(), "no number is called {}", entry.key);
    out += fmt::format("{}  {}: {{\"value\": {:.10g}, \"mark\": \"{}\", \"source\": {}}}",
                       separator, Quoted(entry.key), profile.*rule->member, Name(entry.mark),
                       Quoted(entry.source));
    separator = ",\n";
  }
  out += "\n },\n \"tables\": [";
  separator = "\n";
  for (const UtilisationTable& table : profile.tables) {
    out += separator + Table(table, profile);
    separator = ",\n";
  }
  return out + "\n ]\n}\n";
}

}  // namespace forebay::cost
