#include "cost/profile.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <optional>

#include "base/json.h"
#include "base/units.h"
#include "cost/builtin_profiles.h"
#include "cost/roofline.h"

namespace forebay::cost {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

constexpr int64_t kFormat = 1;
constexpr size_t kMostPoints = 1 << 16;  // points of a table
// caches may beat the memory's rate, a wrong unit is beyond
constexpr double kMostUtilisation = 10;
constexpr uint64_t kMostFileBytes = 64 * base::kMiB;

constexpr double kMost = 1e18;
constexpr NumberRule kNumbers[] = {
    {"bf16_flops", &DeviceProfile::bf16_flops, 1e6, kMost, true},
    {"f32_flops", &DeviceProfile::f32_flops, 1e6, kMost, false},
    {"fp8_flops", &DeviceProfile::fp8_flops, 1e6, kMost, false},
    {"fp4_flops", &DeviceProfile::fp4_flops, 1e6, kMost, false},
    {"int8_flops", &DeviceProfile::int8_flops, 1e6, kMost, false},
    {"memory_bytes", &DeviceProfile::memory_bytes, 1, kMost, true},
    {"memory_bytes_per_s", &DeviceProfile::memory_bytes_per_s, 1e6, kMost, true},
    {"link_bytes_per_s", &DeviceProfile::link_bytes_per_s, 1e6, kMost, false},
    {"host_bytes_per_s", &DeviceProfile::host_bytes_per_s, 1e6, kMost, false},
    {"disk_read_bytes_per_s", &DeviceProfile::disk_read_bytes_per_s, 1e6, kMost, false},
    {"disk_write_bytes_per_s", &DeviceProfile::disk_write_bytes_per_s, 1e6, kMost, false},
    {"tdp_w", &DeviceProfile::tdp_w, 0, kMost, false},
    {"cores", &DeviceProfile::cores, 1, 1e6, false},
    {"column_grain", &DeviceProfile::column_grain, 1, 1e6, false},
    {"copy_bytes_per_core_s", &DeviceProfile::copy_bytes_per_core_s, 1e6, kMost, false},
    {"machine_bytes_per_s", &DeviceProfile::machine_bytes_per_s, 1e6, kMost, false},
    {"mfu", &DeviceProfile::mfu, 0.001, 1, true},
    {"mbu", &DeviceProfile::mbu, 0.001, 1, true},
    {"op_floor_s", &DeviceProfile::op_floor_s, 0, 1, true},
    {"decode_floor_s", &DeviceProfile::decode_floor_s, 0, 1, true},
    {"link_efficiency", &DeviceProfile::link_efficiency, 0.001, 1, true},
    {"link_latency_s", &DeviceProfile::link_latency_s, 0, 1, true},
    {"launch_s", &DeviceProfile::launch_s, 0, 1, true},
    {"step_overhead_s", &DeviceProfile::step_overhead_s, 0, 10, true},
    {"sequence_overhead_s", &DeviceProfile::sequence_overhead_s, 0, 1, false},
    {"runtime_bytes", &DeviceProfile::runtime_bytes, 0, kMost, true},
    {"frequency_loss", &DeviceProfile::frequency_loss, 0, 10, true},
};

const char* TypeName(element value) {
  switch (value.type()) {
    case simdjson::dom::element_type::OBJECT: return "an object";
    case simdjson::dom::element_type::ARRAY: return "a list";
    case simdjson::dom::element_type::STRING: return "a string";
    case simdjson::dom::element_type::NULL_VALUE: return "null";
    case simdjson::dom::element_type::BOOL: return "a boolean";
    default: return "a number";
  }
}

template <typename Enum, int kCount>
std::optional<Enum> EnumOf(std::string_view name) {
  for (int i = 0; i < kCount; ++i) {
    if (Name(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
  }
  return {};
}

// Reads one object. `where` ("h200.json: numbers.mfu") begins each message, followed by `separator`
// and a key.
class Fields {
 public:
  static base::Result<Fields> Of(element value, std::string where, const char* separator = ".") {
    object found;
    if (value.get_object().get(found)) return Invalid(where, TypeName(value), "an object");
    return Fields(found, where + separator);
  }

  static base::Status Invalid(const std::string& where, std::string_view found,
                              std::string_view expected) {
    return {kProfileInvalid, fmt::format("{}: found {}, expected {}", where, found, expected)};
  }
  std::string At(std::string_view key) const { return fmt::format("{}{}", prefix_, key); }

  base::Result<element> Get(std::string_view key) const {
    element value;
    if (object_.at_key(key).get(value)) return Invalid(At(key), "nothing", "this key");
    return value;
  }
  base::Result<Fields> Object(std::string_view key) const {
    FB_ASSIGN_OR_RETURN(const element value, Get(key));
    return Of(value, At(key));
  }
  base::Result<simdjson::dom::array> List(std::string_view key) const {
    FB_ASSIGN_OR_RETURN(const element value, Get(key));
    simdjson::dom::array list;
    if (value.get_array().get(list)) return Invalid(At(key), TypeName(value), "a list");
    return list;
  }
  base::Result<std::string> String(std::string_view key) const {
    FB_ASSIGN_OR_RETURN(const element value, Get(key));
    std::string_view text;
    if (value.get_string().get(text)) return Invalid(At(key), TypeName(value), "a string");
    if (text.empty()) return Invalid(At(key), "an empty string", "a text");
    return std::string(text);
  }
  base::Result<double> Number(std::string_view key, double least, double most) const {
    FB_ASSIGN_OR_RETURN(const element value, Get(key));
    return NumberOf(value, At(key), least, most);
  }
  static base::Result<double> NumberOf(element value, const std::string& where, double least,
                                       double most) {
    double number;
    if (!value.is_number() || value.get_double().get(number)) {
      return Invalid(where, TypeName(value), "a number");
    }
    if (!(number >= least && number <= most)) {
      return Invalid(where, fmt::format("{}", number),
                     fmt::format("a number from {} to {}", least, most));
    }
    return number;
  }
  template <typename Enum, int kCount>
  base::Result<Enum> OneOf(std::string_view key) const {
    FB_ASSIGN_OR_RETURN(const std::string text, String(key));
    if (const std::optional<Enum> value = EnumOf<Enum, kCount>(text)) return *value;
    std::string names;
    for (int i = 0; i < kCount; ++i)
      names += fmt::format("{}{}", i ? ", " : "", Name(static_cast<Enum>(i)));
    return Invalid(At(key), text, "one of " + names);
  }
  // Every key must be one of `known`.
  template <typename Known>
  base::Status Only(const Known& known) const {
    for (const auto& [key, value] : object_) {
      if (std::find(std::begin(known), std::end(known), key) == std::end(known)) {
        return Invalid(At(key), "an unknown key", "those of docs/profiles.md");
      }
    }
    return base::Status::Ok();
  }

 private:
  Fields(object found, std::string prefix) : object_(found), prefix_(std::move(prefix)) {}

  object object_;
  std::string prefix_;
};

base::Status ReadNumbers(const Fields& numbers, DeviceProfile* profile) {
  std::vector<std::string_view> known;
  for (const NumberRule& rule : kNumbers) {
    known.push_back(rule.key);
    if (!rule.required && !numbers.Get(rule.key).ok()) continue;
    FB_ASSIGN_OR_RETURN(const Fields number, numbers.Object(rule.key));
    FB_RETURN_IF_ERROR(
        number.Only(std::initializer_list<std::string_view>{"value", "mark", "source"}));
    FB_ASSIGN_OR_RETURN(profile->*rule.member, number.Number("value", rule.least, rule.most));
    FB_ASSIGN_OR_RETURN(const Mark mark, (number.OneOf<Mark, kNumMarks>("mark")));
    FB_ASSIGN_OR_RETURN(std::string source, number.String("source"));
    profile->provenance.push_back({std::string(rule.key), mark, std::move(source)});
  }
  return numbers.Only(known);
}

base::Result<std::vector<double>> ReadList(const Fields& parent, std::string_view key, double least,
                                           double most) {
  FB_ASSIGN_OR_RETURN(const simdjson::dom::array list, parent.List(key));
  if (list.size() == 0 || list.size() > kMostPoints) {
    return Fields::Invalid(parent.At(key), fmt::format("{} items", list.size()),
                           fmt::format("1 to {}", kMostPoints));
  }
  std::vector<double> values;
  for (const element value : list) {
    const std::string where = fmt::format("{}[{}]", parent.At(key), values.size());
    FB_ASSIGN_OR_RETURN(const double number, Fields::NumberOf(value, where, least, most));
    values.push_back(number);
  }
  return values;
}

base::Status ReadAxes(const Fields& axes, UtilisationTable* table) {
  table->by_weights = IsLinear(table->op) && axes.Get("weights").ok();
  const std::array<std::string_view, 3> names = AxisNames(table->op, table->by_weights);
  FB_RETURN_IF_ERROR(axes.Only(names));
  for (int d = 0; d < 3; ++d) {
    FB_ASSIGN_OR_RETURN(table->axes[d], ReadList(axes, names[d], 1, 1e15));
    const std::vector<double>& axis = table->axes[d];
    const auto fall = std::adjacent_find(axis.begin(), axis.end(), std::greater_equal<>());
    if (fall != axis.end()) {
      return Fields::Invalid(axes.At(names[d]), fmt::format("{} before {}", *fall, fall[1]),
                             "ascending numbers");
    }
  }
  return base::Status::Ok();
}

// Utilisations, in the order of the points, become seconds.
base::Status ToSeconds(const UtilisationTable& table, const DeviceProfile& profile,
                       const Fields& fields, std::vector<double>* values) {
  auto value = values->begin();
  for (double a : table.axes[0]) {
    for (double b : table.axes[1]) {
      for (double c : table.axes[2]) {
        const Roofline roofline = RooflineAt(table.op, table.format, table.by_weights, {a, b, c},
                                             table.head_dim, profile);
        if (!(roofline.seconds() > 0)) {
          return Fields::Invalid(fields.At("axes"), fmt::format("the point ({}, {}, {})", a, b, c),
                                 "points with work");
        }
        *value = roofline.seconds() / *value;
        ++value;
      }
    }
  }
  return base::Status::Ok();
}

base::Result<UtilisationTable> ReadTable(const Fields& fields, const DeviceProfile& profile) {
  UtilisationTable table;
  FB_RETURN_IF_ERROR(fields.Only(std::initializer_list<std::string_view>{
      "op", "format", "head_dim", "mark", "source", "outside", "residual", "axes", "utilisation"}));
  FB_ASSIGN_OR_RETURN(table.op, (fields.OneOf<TableOp, kNumTableOps>("op")));
  if (fields.Get("head_dim").ok()) {
    if (!IsAttention(table.op))
      return Fields::Invalid(fields.At("head_dim"), "it", "it for attention alone");
    FB_ASSIGN_OR_RETURN(table.head_dim, fields.Number("head_dim", 1, 1e6));
  }
  FB_ASSIGN_OR_RETURN(table.format, (fields.OneOf<NumberFormat, kNumNumberFormats>("format")));
  FB_ASSIGN_OR_RETURN(table.mark, (fields.OneOf<Mark, kNumMarks>("mark")));
  FB_ASSIGN_OR_RETURN(table.source, fields.String("source"));
  // A reason for readers and tests alone.
  if (fields.Get("outside").ok()) FB_RETURN_IF_ERROR(fields.String("outside").status());
  const UtilisationTable* same = profile.Find(table.op, table.format, table.head_dim);
  if (same != nullptr && same->head_dim == table.head_dim) {
    return Fields::Invalid(fields.At("op"), "a second table",
                           "one for each op, format and head size");
  }
  const bool over_host = table.op == TableOp::kCopy && profile.kind == DeviceKind::kGpu;
  if ((IsCollective(table.op) || table.op == TableOp::kCopy) &&
      (over_host ? profile.host_bytes_per_s : profile.link_bytes_per_s) == 0) {
    return Fields::Invalid(
        fields.At("op"), std::string(Name(table.op)),
        fmt::format("numbers.{}_bytes_per_s beside it", over_host ? "host" : "link"));
  }
  FB_ASSIGN_OR_RETURN(const Fields residual, fields.Object("residual"));
  FB_RETURN_IF_ERROR(residual.Only(
      std::initializer_list<std::string_view>{"median", "p90", "held_out", "fitted"}));
  FB_ASSIGN_OR_RETURN(table.residual.median, residual.Number("median", 0, 1e6));
  FB_ASSIGN_OR_RETURN(table.residual.p90, residual.Number("p90", table.residual.median, 1e6));
  FB_ASSIGN_OR_RETURN(const double held_out, residual.Number("held_out", 0, 1e9));
  table.residual.held_out = static_cast<int64_t>(held_out);
  FB_ASSIGN_OR_RETURN(const Fields axes, fields.Object("axes"));
  FB_RETURN_IF_ERROR(ReadAxes(axes, &table));
  FB_ASSIGN_OR_RETURN(std::vector<double> values,
                      ReadList(fields, "utilisation", 1e-12, kMostUtilisation));
  const size_t expected = table.axes[0].size() * table.axes[1].size() * table.axes[2].size();
  if (values.size() != expected) {
    return Fields::Invalid(fields.At("utilisation"), fmt::format("{} numbers", values.size()),
                           fmt::format("{}, one for each point of the axes", expected));
  }
  FB_RETURN_IF_ERROR(ToSeconds(table, profile, fields, &values));
  table.Prepare(std::move(values));
  return table;
}

}  // namespace

double DeviceProfile::Peak(NumberFormat format) const {
  double peak = 0;
  switch (format) {
    case NumberFormat::kFP8:
    case NumberFormat::kFP8Block: peak = fp8_flops; break;
    case NumberFormat::kNVFP4: peak = fp4_flops; break;
    case NumberFormat::kInt8: peak = int8_flops; break;
    case NumberFormat::kF32: peak = f32_flops; break;
    case NumberFormat::kBF16:
    case NumberFormat::kInt4:
    case NumberFormat::kQ8: break;
  }
  return peak > 0 ? peak : bf16_flops;
}

const UtilisationTable* DeviceProfile::Find(TableOp op, NumberFormat format,
                                            double head_dim) const {
  const auto distance = [&](const UtilisationTable& table) {
    return std::abs(std::log(table.head_dim / head_dim));
  };
  const UtilisationTable* nearest = nullptr;
  for (const UtilisationTable& table : tables) {
    if (table.op != op || table.format != format) continue;
    if (nearest == nullptr || distance(table) < distance(*nearest)) nearest = &table;
  }
  return nearest;
}

std::span<const NumberRule> NumberRules() { return kNumbers; }

base::Result<DeviceProfile> ParseProfile(std::string_view json, std::string_view file) {
  simdjson::dom::parser parser;
  base::Result<element> document = base::ParseJson(parser, json);
  if (!document.ok()) return document.status().WithContext(file);
  FB_ASSIGN_OR_RETURN(const Fields fields, Fields::Of(*document, std::string(file), ": "));
  FB_RETURN_IF_ERROR(fields.Only(std::initializer_list<std::string_view>{
      "format", "name", "description", "kind", "numbers", "tables"}));
  FB_RETURN_IF_ERROR(fields.Number("format", kFormat, kFormat).status());
  DeviceProfile profile;
  FB_ASSIGN_OR_RETURN(profile.name, fields.String("name"));
  FB_ASSIGN_OR_RETURN(profile.description, fields.String("description"));
  FB_ASSIGN_OR_RETURN(const std::string kind, fields.String("kind"));
  if (kind != "gpu" && kind != "cpu") return Fields::Invalid(fields.At("kind"), kind, "gpu or cpu");
  profile.kind = kind == "cpu" ? DeviceKind::kCpu : DeviceKind::kGpu;
  FB_ASSIGN_OR_RETURN(const Fields numbers, fields.Object("numbers"));
  FB_RETURN_IF_ERROR(ReadNumbers(numbers, &profile));
  if (profile.kind == DeviceKind::kCpu &&
      (profile.cores == 0 || profile.copy_bytes_per_core_s == 0)) {
    return Fields::Invalid(numbers.At(profile.cores == 0 ? "cores" : "copy_bytes_per_core_s"),
                           "nothing", "a number, since kind is cpu");
  }
  FB_ASSIGN_OR_RETURN(const simdjson::dom::array tables, fields.List("tables"));
  for (const element value : tables) {
    FB_ASSIGN_OR_RETURN(
        const Fields table_fields,
        Fields::Of(value, fmt::format("{}[{}]", fields.At("tables"), profile.tables.size())));
    FB_ASSIGN_OR_RETURN(UtilisationTable table, ReadTable(table_fields, profile));
    profile.tables.push_back(std::move(table));
  }
  return profile;
}

namespace {

bool IsPath(const std::string& name_or_path) {
  return name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json");
}

// Where the numbers of one's own begin; npos: there are none.
size_t SettingsOf(const std::string& device) {
  const size_t equals = device.find('=');
  return equals == device.npos ? device.npos : device.rfind(':', equals);
}

base::Result<DeviceProfile> LoadNamed(const std::string& name_or_path) {
  if (IsPath(name_or_path)) {
    FB_ASSIGN_OR_RETURN(const std::string json, base::ReadFile(name_or_path, kMostFileBytes));
    return ParseProfile(json, name_or_path);
  }
  std::string names;
  for (const BuiltinProfile& profile : BuiltinProfiles()) {
    if (profile.name == name_or_path) return ParseProfile(profile.json, name_or_path + ".json");
    names += fmt::format("{}{}", names.empty() ? "" : ", ", profile.name);
  }
  return base::Status(
      kProfileUnknown,
      fmt::format("device {}: no such profile; expected one of {}, or a path to a file",
                  name_or_path, names));
}

// "frequency_loss=0.226": a number of one's own in place of the profile's.
base::Status SetNumber(std::string_view device, std::string_view setting, DeviceProfile* profile) {
  const size_t equals = setting.find('=');
  const std::string_view key = setting.substr(0, equals);
  const auto rule = std::ranges::find(kNumbers, key, &NumberRule::key);
  const auto where = fmt::format("device {}: {}", device, key);
  if (rule == std::end(kNumbers))
    return Fields::Invalid(where, "it", "a number of docs/profiles.md");
  double number = 0;
  const char* end = setting.data() + setting.size();
  const char* begin = equals == setting.npos ? end : setting.data() + equals + 1;
  const auto [after, error] = std::from_chars(begin, end, number);
  if (error != std::errc() || after != end || !(number >= rule->least && number <= rule->most)) {
    return Fields::Invalid(where, std::string(begin, end),
                           fmt::format("a number from {} to {}", rule->least, rule->most));
  }
  profile->*rule->member = number;
  std::erase_if(profile->provenance, [&](const Provenance& entry) { return entry.key == key; });
  profile->provenance.push_back({std::string(key), Mark::kUncalibrated, "given with the device"});
  return base::Status::Ok();
}

// What copies and collectives take per byte, by what a roofline takes.
double LinkFactor(TableOp op, const DeviceProfile& device) {
  if (op == TableOp::kCopy && device.kind == DeviceKind::kCpu)
    return 1 / device.copy_bytes_per_core_s;
  return IsCollective(op) || op == TableOp::kCopy ? 1 / device.link_efficiency : 1;
}

// A table that was measured on one device, as it would be on the same with other numbers. What a
// point takes beyond its latency grows as its roofline does. The latency of collectives and copies
// is the time of the shortest buffer, and grows with the link's; that of kernels is the time of the
// table's fastest point.
void Rescale(const DeviceProfile& measured, const DeviceProfile& device, UtilisationTable* table) {
  const bool over_link = IsCollective(table->op) || table->op == TableOp::kCopy;
  const double link_factor = LinkFactor(table->op, device) / LinkFactor(table->op, measured),
               latency_factor = over_link && measured.link_latency_s > 0
                                    ? device.link_latency_s / measured.link_latency_s
                                    : 1;
  const size_t plane = table->axes[1].size() * table->axes[2].size();
  bool changed = latency_factor != 1;
  std::vector<double> seconds;
  for (const double a : table->axes[0]) {
    for (const double b : table->axes[1]) {
      for (const double c : table->axes[2]) {
        const size_t at = seconds.size();
        const auto roofline = [&](const DeviceProfile& of) {
          return RooflineAt(table->op, table->format, table->by_weights, {a, b, c}, table->head_dim,
                            of)
              .seconds();
        };
        const double factor = link_factor * roofline(device) / roofline(measured),
                     latency = over_link ? std::exp(table->log_seconds[at % plane])
                                         : table->floor_seconds;
        changed |= factor != 1;
        seconds.push_back(latency_factor * latency +
                          factor * (std::exp(table->log_seconds[at]) - latency));
      }
    }
  }
  if (!changed) return;
  table->Prepare(std::move(seconds));
  table->mark = Mark::kDerived;
  table->source += ", scaled to numbers given with the device";
}

}  // namespace

// Behind the name numbers of one's own may follow:
// "h20:frequency_loss=0.226:link_bytes_per_s=9e11".
base::Result<DeviceProfile> LoadProfile(const std::string& device) {
  const size_t colon = SettingsOf(device);
  FB_ASSIGN_OR_RETURN(DeviceProfile profile, LoadNamed(device.substr(0, colon)));
  if (colon == device.npos) return profile;
  const DeviceProfile measured = profile;
  for (size_t begin = colon; begin != device.npos;) {
    const size_t end = device.find(':', begin + 1);
    const std::string_view setting =
        std::string_view(device).substr(begin + 1, end == device.npos ? end : end - begin - 1);
    FB_RETURN_IF_ERROR(SetNumber(device.substr(0, colon), setting, &profile));
    begin = end;
  }
  for (UtilisationTable& table : profile.tables) Rescale(measured, profile, &table);
  return profile;
}

std::string ProfileFile(const std::string& device) {
  const std::string name = device.substr(0, SettingsOf(device));
  return IsPath(name) ? name : "";
}

std::vector<std::string_view> ProfileNames() {
  std::vector<std::string_view> names;
  for (const BuiltinProfile& profile : BuiltinProfiles()) names.push_back(profile.name);
  return names;
}

}  // namespace forebay::cost
