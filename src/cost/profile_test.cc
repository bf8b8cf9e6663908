#include "cost/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/json.h"
#include "cost/builtin_profiles.h"
#include "cost/profile_writer.h"
#include "cost/roofline.h"
#include "testing/test_data.h"

namespace forebay::cost {
namespace {

using ::testing::HasSubstr;

// A small valid profile with one table; `from` (once in it) is replaced by `to`.
std::string Sample(std::string_view from = "", std::string_view to = "") {
  std::string text =
      R"({"format": 1, "name": "toy", "description": "A toy", "kind": "gpu", "numbers": {)";
  const char* separator = "";
  for (const char* number :
       {R"("bf16_flops": {"value": 1e12)", R"("memory_bytes": {"value": 1e9)",
        R"("memory_bytes_per_s": {"value": 1e10)", R"("mfu": {"value": 0.5)",
        R"("mbu": {"value": 0.5)", R"("op_floor_s": {"value": 0)",
        R"("decode_floor_s": {"value": 0)", R"("link_efficiency": {"value": 1)",
        R"("link_latency_s": {"value": 0)", R"("launch_s": {"value": 0)",
        R"("step_overhead_s": {"value": 0)", R"("runtime_bytes": {"value": 0)",
        R"("frequency_loss": {"value": 0.1)"}) {
    text += separator + std::string(number) + R"(, "mark": "datasheet", "source": "s"})";
    separator = ", ";
  }
  text += R"(}, "tables": [{"op": "linear", "format": "bf16", "mark": "measured", "source": "s",
             "residual": {"median": 0.1, "p90": 0.2, "held_out": 3},
             "axes": {"rows": [1, 8], "n": [16], "k": [16]}, "utilisation": [0.5, 0.25]}]})";
  if (!from.empty()) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  }
  return text;
}

TEST(ParseProfile, ReadsASample) {
  const base::Result<DeviceProfile> profile = ParseProfile(Sample(), "toy.json");
  ASSERT_TRUE(profile.ok()) << profile.status().ToString();
  EXPECT_EQ(profile->bf16_flops, 1e12);
  EXPECT_EQ(profile->provenance.size(), 13u);
  ASSERT_EQ(profile->tables.size(), 1u);
  // 512 bytes at 1e10 a second and utilisation 0.5.
  EXPECT_NEAR(profile->tables[0].Lookup({1, 16, 16}).seconds, 102.4e-9, 1e-15);
}

TEST(ParseProfile, NamesWhatIsWrong) {
  struct Row {
    const char *from, *to, *where, *found, *expected;
  } const kRows[] = {
      {R"("format": 1)", R"("format": 2)", "toy.json: format", "2", "from 1 to 1"},
      {R"("kind": "gpu")", R"("kind": "tpu")", "toy.json: kind", "tpu", "gpu or cpu"},
      {R"("kind": "gpu")", R"("kind": "cpu")", "numbers.cores", "nothing", "since kind is cpu"},
      {R"("kind": "gpu")", R"("kind": "gpu", "colour": 1)", "toy.json: colour", "unknown key",
       "docs/profiles.md"},
      {R"("name": "toy")", R"("name": "")", "toy.json: name", "an empty string", "a text"},
      {R"("name": "toy")", R"("name": 3)", "toy.json: name", "a number", "a string"},
      {R"("mfu": {)", R"("mfy": {)", "numbers.mfu", "nothing", "this key"},
      {R"("frequency_loss": {)", R"("more": {}, "frequency_loss": {)", "numbers.more",
       "unknown key", ""},
      {R"("mfu": {"value": 0.5)", R"("mfu": {"value": 1.5)", "numbers.mfu.value", "1.5",
       "0.001 to 1"},
      {R"("mfu": {"value": 0.5)", R"("mfu": {"value": "x")", "numbers.mfu.value", "a string",
       "a number"},
      {R"("bf16_flops": {"value": 1e12)", R"("bf16_flops": {"value": -1)",
       "numbers.bf16_flops.value", "-1", ""},
      {R"("mfu": {)",
       R"("disk_read_bytes_per_s": {"value": 0, "mark": "datasheet", "source": "s"}, "mfu": {)",
       "numbers.disk_read_bytes_per_s.value", "0", ""},
      {R"("mark": "datasheet")", R"("mark": "guessed")", "numbers.bf16_flops.mark", "guessed",
       "uncalibrated"},
      {R"(, "source": "s"})", "}", "numbers.bf16_flops.source", "nothing", "this key"},
      {R"("tables": [)", R"("table": [)", "toy.json: table", "unknown key", ""},
      {R"("op": "linear")", R"("op": "conv")", "tables[0].op", "conv", "decode_attention"},
      {R"("op": "linear", "format": "bf16")", R"("op": "linear", "format": "fp7")",
       "tables[0].format", "fp7", "nvfp4"},
      {R"("rows": [1, 8])", R"("rows": [8, 1])", "tables[0].axes.rows", "8 before 1", "ascending"},
      {R"("rows": [1, 8])", R"("rows": [])", "tables[0].axes.rows", "0 items", ""},
      {R"("rows": [1, 8])", R"("rows": [0, 8])", "tables[0].axes.rows[0]", "0", "from 1"},
      {R"("rows": [1, 8])", R"("tokens": [1, 8])", "tables[0].axes.tokens", "unknown key", ""},
      {R"([0.5, 0.25])", R"([0.5])", "tables[0].utilisation", "1 numbers", "2, one for each point"},
      {R"([0.5, 0.25])", R"([0.5, 0])", "tables[0].utilisation[1]", "0", ""},
      {R"([0.5, 0.25])", R"([0.5, 50])", "tables[0].utilisation[1]", "50", "to 10"},
      {R"([0.5, 0.25])", R"(0.5)", "tables[0].utilisation", "a number", "a list"},
      {R"("p90": 0.2)", R"("p90": 0.01)", "tables[0].residual.p90", "0.01", "from 0.1"},
      {R"("op": "linear")", R"("op": "linear", "head_dim": 64)", "tables[0].head_dim", "",
       "attention alone"},
      {R"("op": "linear")", R"("op": "copy")", "tables[0].op", "copy", "host_bytes_per_s"},
      {R"("op": "linear")", R"("op": "all_reduce")", "tables[0].op", "all_reduce",
       "link_bytes_per_s"},
      {R"("tables": [)", R"("tables": [3, )", "tables[0]", "a number", "an object"},
  };
  for (const Row& row : kRows) {
    const base::Status status = ParseProfile(Sample(row.from, row.to), "toy.json").status();
    EXPECT_EQ(status.code(), kProfileInvalid) << row.to;
    EXPECT_THAT(status.message(), HasSubstr("toy.json")) << row.to;
    EXPECT_THAT(status.message(), HasSubstr(row.where)) << row.to;
    EXPECT_THAT(status.message(), HasSubstr(row.found)) << row.to;
    EXPECT_THAT(status.message(), HasSubstr(row.expected)) << row.to;
  }
  EXPECT_EQ(ParseProfile("{", "toy.json").status().code(), base::kJsonInvalid);
  EXPECT_EQ(ParseProfile(Sample(R"("value": 1e12)", R"("value": NaN)"), "toy.json").status().code(),
            base::kJsonInvalid);
  EXPECT_EQ(ParseProfile("[]", "toy.json").status().code(), kProfileInvalid);
}

TEST(ParseProfile, RefusesASecondTableOfTheSameKind) {
  const std::string text = Sample();
  const size_t begin = text.find("[{\"op\"") + 1, end = text.rfind("]}");
  const std::string table = text.substr(begin, end - begin);
  const std::string twice = text.substr(0, end) + "," + table + "]}";
  EXPECT_THAT(ParseProfile(twice, "toy.json").status().message(),
              HasSubstr("tables[1].op: found a second table"));
}

TEST(ParseProfile, RefusesPointsWithoutWork) {
  std::string text =
      Sample(R"("mfu": {)",
             R"("link_bytes_per_s": {"value": 1e9, "mark": "datasheet", "source": "s"}, "mfu": {)");
  text.replace(text.find(R"("linear")"), 8, R"("all_reduce")");
  text.replace(text.find(R"("rows": [1, 8], "n": [16], "k": [16])"), 36,
               R"("bytes": [8], "ranks": [1, 2], "one": [1])");
  EXPECT_THAT(ParseProfile(text, "toy.json").status().message(),
              HasSubstr("axes: found the point (8, 1, 1)"));
}

// Every built-in profile survives being written and read.
TEST(WriteProfile, RoundTrips) {
  for (std::string_view name : ProfileNames()) {
    const base::Result<DeviceProfile> profile = LoadProfile(std::string(name));
    ASSERT_TRUE(profile.ok());
    const base::Result<DeviceProfile> read = ParseProfile(WriteProfile(*profile), "written.json");
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(read->name, profile->name);
    EXPECT_EQ(read->description, profile->description);
    EXPECT_EQ(read->kind, profile->kind);
    for (const NumberRule& rule : NumberRules()) {
      EXPECT_NEAR(*read.*rule.member, *profile.*rule.member, 1e-5 * *profile.*rule.member)
          << rule.key;
    }
    ASSERT_EQ(read->provenance.size(), profile->provenance.size());
    for (size_t i = 0; i < read->provenance.size(); ++i) {
      EXPECT_EQ(read->provenance[i].key, profile->provenance[i].key);
      EXPECT_EQ(read->provenance[i].mark, profile->provenance[i].mark);
      EXPECT_EQ(read->provenance[i].source, profile->provenance[i].source);
    }
    ASSERT_EQ(read->tables.size(), profile->tables.size());
    for (size_t i = 0; i < read->tables.size(); ++i) {
      const UtilisationTable &a = read->tables[i], &b = profile->tables[i];
      EXPECT_EQ(a.op, b.op);
      EXPECT_EQ(a.format, b.format);
      EXPECT_EQ(a.head_dim, b.head_dim);
      EXPECT_EQ(a.axes, b.axes);
      ASSERT_EQ(a.log_seconds.size(), b.log_seconds.size());
      for (size_t j = 0; j < a.log_seconds.size(); ++j)
        EXPECT_NEAR(a.log_seconds[j], b.log_seconds[j], 1e-3);
    }
  }
}

TEST(LoadProfile, KnowsTheBuiltInDevices) {
  const std::set<std::string_view> expected{
      "a10", "a10-as-a40", "a100-80g", "a40",  "b200", "emerald-rapids-amx", "gb200-nvl72", "h100",
      "h20", "h200",       "rtx4090",  "zen4", "zen5"};
  const std::vector<std::string_view> names = ProfileNames();
  EXPECT_EQ(std::set<std::string_view>(names.begin(), names.end()), expected);
  for (std::string_view name : names) {
    const base::Result<DeviceProfile> profile = LoadProfile(std::string(name));
    ASSERT_TRUE(profile.ok()) << profile.status().ToString();
    EXPECT_EQ(profile->name, name);
    for (const Provenance& number : profile->provenance)
      EXPECT_FALSE(number.source.empty()) << number.key;
    EXPECT_TRUE(profile->kind == DeviceKind::kCpu || profile->tdp_w > 0) << name;
  }
}

// What Vasuki's simulator had for an A10.
TEST(LoadProfile, AnA10WithTheKernelsOfAnA40) {
  const DeviceProfile a10 = *LoadProfile("a10"), a40 = *LoadProfile("a40"),
                      both = *LoadProfile("a10-as-a40");
  EXPECT_EQ(both.memory_bytes, a10.memory_bytes);
  EXPECT_EQ(both.host_bytes_per_s, a10.host_bytes_per_s);
  EXPECT_EQ(both.link_bytes_per_s, a10.link_bytes_per_s);
  EXPECT_EQ(both.tdp_w, a10.tdp_w);
  EXPECT_EQ(both.bf16_flops, a40.bf16_flops);
  EXPECT_EQ(both.memory_bytes_per_s, a40.memory_bytes_per_s);
  ASSERT_EQ(both.tables.size(), a40.tables.size());
  for (size_t i = 0; i < a40.tables.size(); ++i)
    EXPECT_EQ(both.tables[i].log_seconds, a40.tables[i].log_seconds);
  // Reading memory, which bounds steps of decoding, is that much faster.
  EXPECT_NEAR(both.memory_bytes_per_s / a10.memory_bytes_per_s, 1.16, 0.001);
  EXPECT_NEAR(both.bf16_flops / a10.bf16_flops, 1.2, 0.005);
}

// The greatest part of the datasheet's rate that a table has at any point, and that at its largest.
struct Rates {
  double greatest = 0, at_largest = 0;
};
Rates RatesOf(const UtilisationTable& table, const DeviceProfile& device) {
  Rates rates;
  const double* log_seconds = table.log_seconds.data();
  for (const double a : table.axes[0]) {
    for (const double b : table.axes[1]) {
      for (const double c : table.axes[2]) {
        const Roofline roofline =
            RooflineAt(table.op, table.format, table.by_weights, {a, b, c}, table.head_dim, device);
        rates.at_largest = roofline.seconds() / std::exp(*log_seconds++);
        rates.greatest = std::max(rates.greatest, rates.at_largest);
      }
    }
  }
  return rates;
}

// Units that were misread show as a rate above the datasheet's or far below it. What is so for
// another reason says it, and nothing else does.
TEST(LoadProfile, NoRateIsAboveTheDatasheetsOrFarBelowItWithoutAReason) {
  constexpr double kRounding = 1.005, kLeast = 0.1;
  int tables = 0;
  for (const BuiltinProfile& builtin : BuiltinProfiles()) {
    const DeviceProfile profile = *ParseProfile(builtin.json, builtin.name);
    simdjson::dom::parser parser;
    const simdjson::dom::element document = *base::ParseJson(parser, builtin.json);
    for (size_t i = 0; i < profile.tables.size(); ++i, ++tables) {
      const UtilisationTable& table = profile.tables[i];
      const Rates rates = RatesOf(table, profile);
      std::string_view reason;
      const bool stated = document["tables"].at(i)["outside"].get(reason) == simdjson::SUCCESS;
      EXPECT_EQ(rates.greatest > kRounding || rates.at_largest < kLeast, stated)
          << builtin.name << " " << Name(table.op) << " " << Name(table.format) << ": "
          << rates.greatest << " of the datasheet's rate, " << rates.at_largest
          << " at the largest point, \"" << reason << "\"";
    }
  }
  EXPECT_GT(tables, 50);
}

// Sizes are bytes: at the largest, eight devices reach the link's rate in an all-reduce, and two
// thirds of it and more in the others.
TEST(LoadProfile, CollectivesReachTheLink) {
  for (const char* name : {"h20", "h100", "h200"}) {
    const DeviceProfile profile = *LoadProfile(name);
    for (const TableOp op :
         {TableOp::kAllReduce, TableOp::kAllGather, TableOp::kReduceScatter, TableOp::kAllToAll}) {
      const UtilisationTable* table = profile.Find(op, NumberFormat::kBF16, kUsualHeadDim);
      ASSERT_NE(table, nullptr) << name << " " << Name(op);
      EXPECT_GT(RatesOf(*table, profile).at_largest, op == TableOp::kAllReduce ? 0.95 : 0.66)
          << name << " " << Name(op);
    }
  }
}

TEST(LoadProfile, NamesTheKnownOnesAndMissingFiles) {
  const base::Status unknown = LoadProfile("h300").status();
  EXPECT_EQ(unknown.code(), kProfileUnknown);
  EXPECT_THAT(unknown.message(), HasSubstr("h300"));
  EXPECT_THAT(unknown.message(), HasSubstr("gb200-nvl72, h100"));
  EXPECT_EQ(LoadProfile("./nowhere.json").status().code(), base::kIoError);
}

TEST(LoadProfile, TakesNumbersOfOnesOwn) {
  const DeviceProfile plain = *LoadProfile("h20");
  const auto given = LoadProfile("h20:frequency_loss=0.226:link_bytes_per_s=9e11");
  ASSERT_TRUE(given.ok()) << given.status().ToString();
  EXPECT_EQ(given->frequency_loss, 0.226);
  EXPECT_EQ(given->link_bytes_per_s, 9e11);
  EXPECT_EQ(given->bf16_flops, plain.bf16_flops);
  EXPECT_EQ(given->provenance.size(), plain.provenance.size());
  EXPECT_EQ(given->provenance.back().source, "given with the device");
  const UtilisationTable* table = plain.Find(TableOp::kLinear, NumberFormat::kBF16);
  EXPECT_EQ(given->Find(TableOp::kLinear, NumberFormat::kBF16)->log_seconds, table->log_seconds);
  for (const char* wrong : {"h20:frequency_los=1", "h20:frequency_loss=", "h20:frequency_loss=-1",
                            "h20:frequency_loss=1:", "h20:frequency_loss=1x"}) {
    EXPECT_EQ(LoadProfile(wrong).status().code(), kProfileInvalid) << wrong;
  }
  EXPECT_THAT(LoadProfile("h20:frequency_los=1").status().message(),
              HasSubstr("device h20: frequency_los"));
  EXPECT_EQ(LoadProfile("h21:frequency_loss=1").status().code(), kProfileUnknown);
  EXPECT_EQ(LoadProfile("h20:9e11").status().code(), kProfileUnknown);
}

// Seconds at a table's point.
double SecondsAt(const DeviceProfile& device, TableOp op, const Point& point) {
  return device.Find(op, NumberFormat::kBF16)->Lookup(point).seconds;
}

TEST(LoadProfile, TablesFollowNumbersOfOnesOwn) {
  const DeviceProfile plain = *LoadProfile("h200");
  const auto ratio = [&](const char* device, TableOp op, const Point& point) {
    return SecondsAt(*LoadProfile(device), op, point) / SecondsAt(plain, op, point);
  };
  constexpr double kLong = 1 << 28;
  for (const TableOp op :
       {TableOp::kAllReduce, TableOp::kAllGather, TableOp::kReduceScatter, TableOp::kAllToAll}) {
    for (const double ranks : {2.0, 8.0}) {
      const double shortest = plain.Find(op, NumberFormat::kBF16)->axes[0].front();
      // A ninth of the link: what is bound by it takes nine times as long, the latency stays.
      EXPECT_NEAR(ratio("h200:link_bytes_per_s=5e10", op, {kLong, ranks, 1}), 9, 0.15) << Name(op);
      EXPECT_NEAR(ratio("h200:link_bytes_per_s=5e10", op, {shortest, ranks, 1}), 1, 1e-9);
      EXPECT_NEAR(ratio("h200:link_efficiency=0.4", op, {kLong, ranks, 1}), 2, 0.02) << Name(op);
      EXPECT_NEAR(ratio("h200:link_latency_s=3e-5", op, {shortest, ranks, 1}), 3, 1e-9);
    }
  }
  const Point large{16384, 8192, 8192}, small{1, 8192, 28672};
  EXPECT_NEAR(ratio("h200:bf16_flops=4.945e14", TableOp::kLinear, large), 2, 0.02);
  EXPECT_NEAR(ratio("h200:bf16_flops=4.945e14", TableOp::kLinear, small), 1, 1e-9);
  EXPECT_NEAR(ratio("h200:memory_bytes_per_s=2.4e12", TableOp::kLinear, small), 2, 0.1);
  const DeviceProfile slow = *LoadProfile("h200:link_bytes_per_s=5e10");
  EXPECT_EQ(slow.Find(TableOp::kLinear, NumberFormat::kBF16)->mark, Mark::kMeasured);
  EXPECT_EQ(slow.Find(TableOp::kAllReduce, NumberFormat::kBF16)->mark, Mark::kDerived);
}

TEST(LoadProfile, ReadsAFile) {
  const base::Result<DeviceProfile> profile =
      LoadProfile(TestData() + "/../src/cost/profiles/h200.json");
  ASSERT_TRUE(profile.ok()) << profile.status().ToString();
  EXPECT_EQ(profile->name, "h200");
  EXPECT_EQ(profile->Peak(NumberFormat::kNVFP4), profile->bf16_flops);
}

}  // namespace
}  // namespace forebay::cost
