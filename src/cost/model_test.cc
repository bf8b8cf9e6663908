#include "cost/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "cost/roofline.h"
#include "testing/test_data.h"

namespace forebay::cost {
namespace {

DeviceProfile Profile(const std::string& name) {
  base::Result<DeviceProfile> profile = LoadProfile(name);
  EXPECT_TRUE(profile.ok()) << profile.status().ToString();
  return *profile;
}

OpDesc Linear(int64_t rows, int64_t n, int64_t k, NumberFormat format = NumberFormat::kBF16) {
  return {.kind = OpKind::kLinear, .rows = rows, .columns = n, .depth = k, .weight_format = format};
}

// `context` tokens for each of `sequences`.
// Weights that are stored in fewer bytes take their time where reading them binds, and no less
// where arithmetic does.
TEST(Prices, StoredWeightsAreReadInTheirOwnBytes) {
  for (const char* name : {"h20", "zen4"}) {
    const DeviceProfile device = Profile(name);
    for (const int64_t rows : {int64_t{1}, int64_t{8192}}) {
      OpDesc op = Linear(rows, 16384, 16384);
      const PriceResult expanded = Price(op, device);
      op.stored_bytes = 1;
      const PriceResult stored = Price(op, device);
      // A launch and the rows themselves cost what they did.
      EXPECT_NEAR(stored.seconds / expanded.seconds, rows == 1 ? 0.5 : 1, 0.01) << name << rows;
      EXPECT_GE(stored.how, How::kHeld);
    }
  }
}

// A form that was measured stands for those of about its bytes; int8 layers have their own peak.
TEST(Prices, FormsHaveTheirOwnTablesOrThoseOfBf16) {
  DeviceProfile device = Profile("zen4");
  device.launch_s = 0;
  OpDesc int8 = Linear(8192, 16384, 16384, NumberFormat::kInt8), exact = int8;
  exact.weight_format = NumberFormat::kBF16;
  EXPECT_NEAR(Price(int8, device).seconds / Price(exact, device).seconds,
              device.bf16_flops / device.int8_flops, 1e-3);
  EXPECT_EQ(Price(int8, device).how, How::kHeld);

  OpDesc stored = Linear(64, 4096, 4096);
  stored.stored_bytes = 0.5625;
  const double derived = Price(stored, device).seconds;
  UtilisationTable measured = *device.Find(TableOp::kLinear, NumberFormat::kBF16);
  measured.format = NumberFormat::kInt4;
  for (double& log_seconds : measured.log_seconds) log_seconds += std::log(1.25);
  device.tables.push_back(measured);
  EXPECT_NEAR(Price(stored, device).seconds, 1.25 * Price(Linear(64, 4096, 4096), device).seconds,
              1e-6 * derived);
  stored.stored_bytes = 1.0625;
  EXPECT_LT(Price(stored, device).seconds, 1.2 * Price(Linear(64, 4096, 4096), device).seconds);
}

OpDesc Decode(int64_t sequences, int64_t context) {
  return {.kind = OpKind::kAttention,
          .rows = sequences,
          .depth = sequences * context,
          .heads = 64,
          .kv_heads = 8,
          .head_dim = 128};
}

OpDesc Prefill(int64_t sequences, int64_t tokens) {
  const int64_t context = sequences * tokens * tokens / 2;
  return {.kind = OpKind::kAttention,
          .rows = sequences,
          .depth = context,
          .heads = 64,
          .kv_heads = 8,
          .head_dim = 128,
          .prefill_sequences = sequences,
          .prefill_context = context};
}

OpDesc Reduce(double bytes, int ranks) {
  return {.kind = OpKind::kCollective, .read_bytes = bytes, .ranks = ranks};
}

// An operation whose place in its table is `point`.
OpDesc OpAt(const UtilisationTable& table, const Point& point) {
  const TableOp op = table.op;
  const NumberFormat format = table.format;
  const int64_t a = std::llround(point[0]), b = std::llround(point[1]), c = std::llround(point[2]);
  switch (op) {
    case TableOp::kLinear: return Linear(a, b, table.by_weights ? 1 : c, format);
    case TableOp::kExperts: {  // a thousand of them
      OpDesc desc{.kind = OpKind::kExperts,
                  .rows = std::llround(1000 * point[0]),
                  .columns = 3 * 2048,
                  .depth = std::llround(point[2]) / (3 * 2048),
                  .weight_format = format,
                  .experts = 1000,
                  .busiest_rows = std::llround(point[0] * point[1])};
      return desc;
    }
    case TableOp::kDecodeAttention: {
      OpDesc desc{.kind = OpKind::kAttention,
                  .rows = a,
                  .depth = a * b,
                  .heads = static_cast<int>(c),
                  .kv_heads = 1,
                  .head_dim = static_cast<int>(table.head_dim),
                  .kv_format = format};
      return desc;
    }
    case TableOp::kPrefillAttention: {
      const int64_t heads = a % c == 0 ? c : a;  // streams are sequences * heads
      const int64_t sequences = a / heads;
      OpDesc desc{.kind = OpKind::kAttention,
                  .rows = sequences,
                  .depth = sequences * b * b / 2,
                  .heads = static_cast<int>(heads),
                  .kv_heads = static_cast<int>(heads / c),
                  .head_dim = static_cast<int>(table.head_dim),
                  .kv_format = format,
                  .prefill_sequences = sequences,
                  .prefill_context = sequences * b * b / 2};
      return desc;
    }
    default: {
      OpDesc desc = Reduce(point[0], static_cast<int>(b));
      desc.collective =
          static_cast<Collective>(static_cast<int>(op) - static_cast<int>(TableOp::kAllReduce));
      return desc;
    }
  }
}

// Rows of the calibration's CSVs that no table was fitted on:
// device,op,format,axis0,axis1,axis2,seconds.
TEST(Calibrated, ReproducesHeldOutMeasurementsWithinTheStatedResiduals) {
  std::ifstream file(TestData() + "/golden/cost/held_out.csv");
  ASSERT_TRUE(file);
  std::map<std::string, DeviceProfile> profiles;
  std::map<std::pair<std::string, const UtilisationTable*>, std::vector<double>> errors;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::vector<std::string> field;
    std::stringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) field.push_back(cell);
    ASSERT_EQ(field.size(), 7u) << line;
    if (!profiles.contains(field[0])) profiles[field[0]] = Profile(field[0]);
    const DeviceProfile& device = profiles[field[0]];
    const auto table =
        std::find_if(device.tables.begin(), device.tables.end(), [&](const UtilisationTable& t) {
          return Name(t.op) == field[1] && Name(t.format) == field[2];
        });
    ASSERT_NE(table, device.tables.end()) << line;
    const Point point{std::stod(field[3]), std::stod(field[4]), std::stod(field[5])};
    const PriceResult price = Price(OpAt(*table, point), device);
    EXPECT_TRUE(price.how == How::kExact || price.how == How::kInterpolated) << line;
    const double experts = table->op == TableOp::kExperts ? 1000 : 1;
    const double seconds = (price.seconds - device.launch_s) / experts;
    errors[{field[0], &*table}].push_back(std::abs(seconds / std::stod(field[6]) - 1));
  }
  EXPECT_EQ(errors.size(), 24u);
  for (auto& [key, values] : errors) {
    std::sort(values.begin(), values.end());
    const double median = values[values.size() / 2];
    const Residual& residual = key.second->residual;
    // The file holds a sample of the rows, so that its median lies around the stated one.
    EXPECT_LE(median, 1.35 * residual.median + 0.005)
        << key.first << " " << Name(key.second->op) << " " << Name(key.second->format);
    EXPECT_LE(residual.median, 0.10);
  }
}

TEST(Calibrated, GridPointsAreExactAndGiveTheirUtilisation) {
  const DeviceProfile h200 = Profile("h200");
  const PriceResult price = Price(Linear(4096, 8192, 8192), h200);
  EXPECT_EQ(price.how, How::kExact);
  EXPECT_EQ(price.bound, Bound::kCompute);
  const double utilisation = 2.0 * 4096 * 8192 * 8192 / 989e12 / (price.seconds - h200.launch_s);
  EXPECT_GT(utilisation, 0.6);
  EXPECT_LT(utilisation, 0.95);
  EXPECT_EQ(Price(Linear(16, 8192, 8192), h200).bound, Bound::kMemory);
  EXPECT_EQ(Price(Linear(1, 512, 512), h200).bound, Bound::kOverhead);
}

TEST(Calibrated, BetweenPointsLiesBetweenTheirTimes) {
  const DeviceProfile h200 = Profile("h200");
  const PriceResult low = Price(Linear(1024, 4096, 4096), h200);
  const PriceResult middle = Price(Linear(1448, 4096, 4096), h200);
  const PriceResult high = Price(Linear(2048, 4096, 4096), h200);
  EXPECT_EQ(middle.how, How::kInterpolated);
  EXPECT_GT(middle.seconds, low.seconds);
  EXPECT_LT(middle.seconds, high.seconds);
}

TEST(Calibrated, BordersHoldTheirUtilisation) {
  const DeviceProfile h200 = Profile("h200");
  const double border = Price(Linear(32768, 8192, 8192), h200).seconds - h200.launch_s;
  const PriceResult beyond = Price(Linear(3 * 32768, 8192, 8192), h200);
  EXPECT_EQ(beyond.how, How::kHeld);
  EXPECT_NEAR(beyond.seconds - h200.launch_s, 3 * border, 1e-9 * border);
  // Below the smallest shape nothing is faster than the fastest kernel measured.
  const PriceResult tiny = Price(Linear(1, 8, 8), h200);
  EXPECT_EQ(tiny.how, How::kHeld);
  EXPECT_DOUBLE_EQ(tiny.seconds - h200.launch_s,
                   h200.Find(TableOp::kLinear, NumberFormat::kBF16)->floor_seconds);
  // A head of 64 moves half of the bytes at the same utilisation.
  OpDesc half = Decode(256, 4096);
  half.head_dim = 64;
  const PriceResult full_price = Price(Decode(256, 4096), h200), half_price = Price(half, h200);
  EXPECT_EQ(half_price.how, How::kHeld);
  EXPECT_NEAR((half_price.seconds - h200.launch_s) * 2, full_price.seconds - h200.launch_s, 1e-9);
}

TEST(Calibrated, MissesAreExplicitAndTakeTheDefaults) {
  const DeviceProfile h200 = Profile("h200");
  for (const OpDesc& op :
       {Linear(64, 4096, 4096, NumberFormat::kInt8), OpDesc{.kind = OpKind::kNorm, .rows = 64},
        OpDesc{.kind = OpKind::kAttention, .rows = 4, .flops = 1e9, .read_bytes = 1e6}}) {
    const PriceResult price = Price(op, h200);
    EXPECT_EQ(price.how, How::kMiss);
    EXPECT_DOUBLE_EQ(price.seconds, Price(op, h200, Calibration::kUncalibrated).seconds);
  }
}

TEST(Price, MoreRowsAreNeverCheaper) {
  for (std::string_view name : ProfileNames()) {
    const DeviceProfile device = Profile(std::string(name));
    for (Calibration mode : {Calibration::kCalibrated, Calibration::kUncalibrated}) {
      for (NumberFormat format :
           {NumberFormat::kBF16, NumberFormat::kFP8, NumberFormat::kInt8, NumberFormat::kNVFP4}) {
        for (auto [n, k] :
             {std::pair<int64_t, int64_t>{64, 64}, {1000, 5120}, {5120, 25600}, {151936, 5120}}) {
          double before = 0;
          for (int64_t rows = 1; rows < 80000; rows += 1 + rows / 16) {
            const double seconds = Price(Linear(rows, n, k, format), device, mode).seconds;
            EXPECT_GE(seconds, before * (1 - 1e-12))
                << name << " " << rows << " x " << n << " x " << k;
            before = seconds;
          }
        }
      }
      for (const auto& make : {Decode, Prefill}) {
        double by_count = 0, by_length = 0;
        for (int64_t x = 1; x < 40000; x += 1 + x / 16) {
          const double count = Price(make(x, 700), device, mode).seconds;
          const double length = Price(make(3, x), device, mode).seconds;
          EXPECT_GE(count, by_count * (1 - 1e-12)) << name << " sequences " << x;
          EXPECT_GE(length, by_length * (1 - 1e-12)) << name << " tokens " << x;
          by_count = count;
          by_length = length;
        }
      }
      double before = 0;
      for (double bytes = 1; bytes < 4e9; bytes *= 1.3) {
        const double seconds = Price(Reduce(bytes, 8), device, mode).seconds;
        EXPECT_GE(seconds, before * (1 - 1e-12)) << name << " bytes " << bytes;
        before = seconds;
      }
    }
  }
}

TEST(Price, MixedAttentionIsTheSumOfItsParts) {
  const DeviceProfile h200 = Profile("h200");
  OpDesc mixed = Prefill(2, 1024);
  mixed.rows += 32;
  mixed.depth += 32 * 2000;
  const double parts =
      Price(Prefill(2, 1024), h200).seconds + Price(Decode(32, 2000), h200).seconds - h200.launch_s;
  EXPECT_NEAR(Price(mixed, h200).seconds, parts, 1e-12);
  EXPECT_GT(
      Price(OpDesc{.kind = OpKind::kAttention, .heads = 8, .kv_heads = 8, .head_dim = 128}, h200)
          .seconds,
      0);
}

// H200: 989 TFLOP/s, 4.8 TB/s, 450 GB/s. Defaults: MFU 0.72, MBU 0.8, links at 0.8 and 10 us
// latency, floors of 3 and 12 us, 0.5 us a launch.
TEST(Uncalibrated, IsTheRooflineByHand) {
  const DeviceProfile h200 = Profile("h200");
  struct Row {
    OpDesc op;
    double seconds;
    Bound bound;
  } const kRows[] = {
      // 1544 us
      {Linear(8192, 8192, 8192), 2.0 * 8192 * 8192 * 8192 / (989e12 * 0.72), Bound::kCompute},
      // 35 us
      {Linear(1, 8192, 8192), 8192.0 * 8192 * 2 / (4800e9 * 0.8), Bound::kMemory},
      {Linear(1, 8192, 8192, NumberFormat::kFP8), 8192.0 * 8192 / (4800e9 * 0.8), Bound::kMemory},
      {Linear(1, 64, 64), 3e-6, Bound::kOverhead},
      {Decode(1, 16), 12e-6, Bound::kOverhead},
      // 8 heads * 128 * 2 * 2 bytes a token
      {Decode(64, 4096), 64 * 4096 * 4096.0 / (4800e9 * 0.8), Bound::kMemory},
      {Prefill(1, 8192), 4.0 * 128 * 64 * (8192.0 * 8192 / 2) / (989e12 * 0.72), Bound::kCompute},
      {{.kind = OpKind::kNorm, .rows = 8192, .columns = 8192},
       2.0 * 2 * 8192 * 8192 / (4800e9 * 0.8),
       Bound::kMemory},
      {{.kind = OpKind::kCopy, .read_bytes = 36e6, .link = Link::kPeer},
       10e-6 + 100e-6,
       Bound::kMemory},
      {{.kind = OpKind::kCopy, .read_bytes = 36e6, .link = Link::kPeer, .sharers = 3},
       10e-6 + 300e-6,
       Bound::kMemory},
      {{.kind = OpKind::kCopy, .read_bytes = 5120e4, .link = Link::kHost},
       10e-6 + 1e-3,
       Bound::kMemory},
      {{.kind = OpKind::kCopy, .read_bytes = 1.92e9, .write_bytes = 1.92e9}, 1e-3, Bound::kMemory},
      {Reduce(36e6, 2), 10e-6 + 100e-6, Bound::kMemory},  // 2 * 1/2 of the buffer
  };
  for (const Row& row : kRows) {
    const PriceResult price = Price(row.op, h200, Calibration::kUncalibrated);
    EXPECT_NEAR(price.seconds, row.seconds + 0.5e-6, 1e-6 * row.seconds)
        << Name(row.op.kind) << " " << row.op.rows;
    EXPECT_EQ(price.bound, row.bound) << Name(row.op.kind) << " " << row.op.rows;
    EXPECT_EQ(price.how, How::kMiss);
  }
}

TEST(H20, IsTheH200WhereMemoryBoundAndSlowerByTheirPeaksWhereComputeBound) {
  const DeviceProfile h20 = Profile("h20"), h200 = Profile("h200");
  const auto ratio = [&](const OpDesc& op) {
    return Price(op, h20).seconds / Price(op, h200).seconds;
  };
  EXPECT_NEAR(ratio(Linear(16, 8192, 8192)), 1, 1e-3);
  EXPECT_NEAR(ratio(Linear(8192, 8192, 8192)), 989.0 / 148, 1.3);
  EXPECT_NEAR(ratio(Reduce(1 << 20, 8)), 1, 1e-3);
  for (const UtilisationTable& table : h20.tables) EXPECT_EQ(table.mark, Mark::kDerived);
}

constexpr Work kMemoryBound{.seconds = 1, .memory_seconds = 1},
    kComputeBound{.seconds = 1, .compute_seconds = 1};

TEST(Slowdown, IsNeverZero) {
  for (std::string_view name : ProfileNames()) {
    const Contention contention = ContentionOf(Profile(std::string(name)), 1);
    EXPECT_GT(Slowdown(kMemoryBound, {.in = 1e9}, contention), 1) << name;
    EXPECT_GT(Slowdown(kComputeBound, {.in = 1e9}, contention), 1) << name;
    EXPECT_EQ(Slowdown(kMemoryBound, {}, contention), 1) << name;
  }
}

TEST(Slowdown, TakesTheCopiesShare) {
  // 1.8 of 8 TB/s are lost when a GB200's link is full both ways: 22.5 %.
  const DeviceProfile profile = Profile("gb200-nvl72");
  const Contention gb200 = ContentionOf(profile, 1);
  EXPECT_NEAR(1 / Slowdown(kMemoryBound, {.in = 900e9, .out = 900e9}, gb200), 1 - 0.225, 1e-12);
  EXPECT_NEAR(Slowdown(kComputeBound, {.in = PullRate(profile) / 2}, gb200),
              1 + profile.frequency_loss / 2, 1e-12);
  // Only what streams is slowed, not a kernel's latency or the host's time.
  EXPECT_NEAR(Slowdown({.seconds = 4, .memory_seconds = 1}, {.in = 900e9, .out = 900e9}, gb200),
              1 + 0.225 / (1 - 0.225) / 4, 1e-12);
  // Other ranks take three quarters of the memory.
  EXPECT_NEAR(Slowdown({.seconds = 4, .memory_seconds = 1}, {}, gb200, 0.75), 1 + 3.0 / 4, 1e-12);
  // One of two cores copies 5.5 of the 11 GB/s it could: a quarter of the cores is lost.
  const DeviceProfile emerald = Profile("emerald-rapids-amx");
  const Contention cpu = ContentionOf(emerald, 2);
  EXPECT_NEAR(Slowdown(kComputeBound, {.in = 5.5e9}, cpu), (1 + emerald.frequency_loss / 2) / 0.75,
              1e-12);
}

TEST(Work, OfAStepHasTheHostsPart) {
  const DeviceProfile h200 = Profile("h200");
  const OpDesc embed{
      .kind = OpKind::kEmbed, .rows = 8, .columns = 4096, .read_bytes = 8 * 4096 * 2};
  const Work work = WorkOf(embed, h200);
  EXPECT_NEAR(work.seconds, Price(embed, h200).seconds + h200.step_overhead_s, 1e-15);
  EXPECT_LT(work.memory_seconds, 1e-6);
}

// A table of one utilisation over rows 1..64 and `columns`.
UtilisationTable RowTable(TableOp op, NumberFormat format, double utilisation,
                          const DeviceProfile& device) {
  UtilisationTable table;
  table.op = op;
  table.format = format;
  table.axes = {{{1, 64}, {100, 1000}, {1}}};
  std::vector<double> seconds;
  for (double rows : table.axes[0]) {
    for (double columns : table.axes[1]) {
      seconds.push_back(RooflineAt(op, format, false, {rows, columns, 1}, 0, device).seconds() /
                        utilisation);
    }
  }
  table.Prepare(seconds);
  return table;
}

TEST(Price, RowOperationsTakeTheirTables) {
  DeviceProfile device = Profile("zen4");
  device.launch_s = 0;
  const OpDesc norm{.kind = OpKind::kNorm, .rows = 8, .columns = 500};
  EXPECT_EQ(Price(norm, device).how, How::kMiss);
  device.tables = {RowTable(TableOp::kNorm, NumberFormat::kBF16, 0.5, device),
                   RowTable(TableOp::kArgmax, NumberFormat::kF32, 0.5, device),
                   RowTable(TableOp::kSample, NumberFormat::kF32, 0.1, device)};
  EXPECT_EQ(Price(norm, device).how, How::kInterpolated);
  EXPECT_NEAR(Price(norm, device).seconds, 2 * 2 * 8 * 500 / device.memory_bytes_per_s / 0.5,
              1e-12);
  EXPECT_EQ(Price(norm, device, Calibration::kUncalibrated).how, How::kMiss);
  // 4 of 12 rows draw, which costs five times as much a row.
  const OpDesc sample{.kind = OpKind::kSample, .rows = 12, .columns = 500, .drawn_rows = 4};
  const double row = 2 * 4 * 500 / device.memory_bytes_per_s;
  EXPECT_NEAR(Price(sample, device).seconds, 8 * row / 0.5 + 4 * row / 0.1, 1e-12);
}

TEST(Price, OddPanelsCostAsMuchAsOneEach) {
  DeviceProfile device = Profile("zen4");
  const double odd = Price(Linear(8, 2112, 2048), device).seconds,
               even = Price(Linear(8, 2176, 2048), device).seconds;
  EXPECT_LT(odd, even);
  device.column_grain = 128;
  EXPECT_EQ(Price(Linear(8, 2112, 2048), device).seconds, even);
  EXPECT_EQ(Price(Linear(8, 2176, 2048), device).seconds, even);
  EXPECT_LT(Price(Linear(256, 2112, 2048), device).seconds,
            Price(Linear(256, 2176, 2048), device).seconds);
}

TEST(Price, LeavesHaveATableOfTheirOwn) {
  DeviceProfile device = Profile("zen4");
  device.launch_s = 0;
  OpDesc op = Linear(8, 2048, 2048);
  const PriceResult whole = Price(op, device);
  op.leaves = 8;
  // Without one K in one leaf stands for them, and the price says so.
  EXPECT_EQ(Price(op, device).seconds, whole.seconds);
  EXPECT_EQ(Price(op, device).how, How::kHeld);
  UtilisationTable slower = *device.Find(TableOp::kLinear, NumberFormat::kBF16);
  slower.op = TableOp::kLinearLeaves;
  for (double& log_seconds : slower.log_seconds) log_seconds += std::log(1.25);
  device.tables.push_back(slower);
  EXPECT_NEAR(Price(op, device).seconds, 1.25 * whole.seconds, 1e-6 * whole.seconds);
  EXPECT_EQ(Price(op, device).how, whole.how);
  op.leaves = 1;
  EXPECT_EQ(Price(op, device).seconds, whole.seconds);
}

TEST(Price, RopeIsTheSumOfPromptsAndDecodingRows) {
  DeviceProfile device = Profile("zen4");
  device.launch_s = 0;
  UtilisationTable prompts;
  prompts.op = TableOp::kRopeKv;
  prompts.axes = {{{1, 100}, {64}, {1}}};
  prompts.Prepare({1e-6, 1e-4});
  UtilisationTable decoding = prompts;
  decoding.op = TableOp::kRopeKvDecode;
  decoding.Prepare({3e-6, 3e-4});
  device.tables = {prompts, decoding};
  const OpDesc rope{.kind = OpKind::kRopeKv,
                    .rows = 30,
                    .columns = 192,
                    .heads = 1,
                    .kv_heads = 1,
                    .head_dim = 64,
                    .prefill_rows = 20};
  EXPECT_NEAR(Price(rope, device).seconds, 20e-6 + 30e-6, 1e-9);
}

TEST(Price, RecurrencesByRowsOfASequenceAndElementsOfStates) {
  DeviceProfile device = Profile("zen4");
  device.launch_s = 0;
  // 3 sequences of 20 rows, and states of 1000 elements.
  const OpDesc recurrence{.kind = OpKind::kRecurrence,
                          .rows = 60,
                          .columns = 100,
                          .flops = kRecurrenceFlops * 60 * 1000,
                          .read_bytes = 4.0 * 3 * 1000,
                          .write_bytes = 4.0 * 3 * 1000,
                          .weight_format = NumberFormat::kF32};
  EXPECT_EQ(Price(recurrence, device).how, How::kMiss);
  UtilisationTable table;
  table.op = TableOp::kRecurrence;
  table.format = NumberFormat::kF32;
  table.axes = {{{1, 20}, {1000, 3000}, {1}}};
  table.Prepare({1e-5, 3e-5, 4e-5, 12e-5});
  device.tables = {table};
  EXPECT_EQ(Price(recurrence, device).how, How::kExact);
  EXPECT_NEAR(Price(recurrence, device).seconds, 12e-5, 1e-9);
}

TEST(Price, WhatSequencesShareIsPricedByItsOwnTable) {
  DeviceProfile device = Profile("h200");
  device.launch_s = 0;
  const OpDesc apart = Decode(16, 4096);
  OpDesc half = apart, all = apart;
  half.repeated_context = apart.depth / 2;
  all.repeated_context = apart.depth;
  const double seconds = Price(apart, device).seconds;
  EXPECT_EQ(Price(all, device).seconds, seconds) << "no table of shared contexts";
  UtilisationTable shared = *device.Find(TableOp::kDecodeAttention, NumberFormat::kBF16);
  shared.op = TableOp::kDecodeShared;
  for (double& log_seconds : shared.log_seconds) log_seconds -= std::log(4.0);
  device.tables.push_back(shared);
  EXPECT_EQ(Price(apart, device).seconds, seconds);
  EXPECT_NEAR(Price(half, device).seconds / seconds, 0.625, 1e-9);
  EXPECT_NEAR(Price(all, device).seconds / seconds, 0.25, 1e-9);
}

TEST(Price, ACpusCacheOfCodesIsReadInItsOwnBytes) {
  DeviceProfile device = Profile("zen4");
  device.launch_s = 0;
  if (device.Find(TableOp::kDecodeAttention, NumberFormat::kBF16) == nullptr) {
    UtilisationTable table = *Profile("h200").Find(TableOp::kDecodeAttention, NumberFormat::kBF16);
    device.tables.push_back(table);
  }
  OpDesc op = Decode(64, 2048);
  op.heads = 2 * op.kv_heads;  // few: reading binds
  const double plain = Price(op, device).seconds;
  for (const NumberFormat format : {NumberFormat::kInt8, NumberFormat::kFP8}) {
    op.kv_format = format;
    EXPECT_NEAR(Price(op, device).seconds / plain, 0.5, 0.05) << Name(format);
    EXPECT_EQ(Price(op, device).how, How::kHeld);
  }
}

TEST(Price, AttentionTakesTheTableOfTheNearestHeadSize) {
  DeviceProfile device = Profile("h200");
  UtilisationTable small = *device.Find(TableOp::kDecodeAttention, NumberFormat::kBF16);
  for (double& log_seconds : small.log_seconds) log_seconds += std::log(3.0);
  small.head_dim = 64;
  device.tables.push_back(small);
  EXPECT_EQ(device.Find(TableOp::kDecodeAttention, NumberFormat::kBF16, 80)->head_dim, 64);
  EXPECT_EQ(device.Find(TableOp::kDecodeAttention, NumberFormat::kBF16, 128)->head_dim, 128);
  OpDesc op = Decode(16, 4096);
  device.launch_s = 0;
  const double usual = Price(op, device).seconds;
  op.head_dim = 64;
  EXPECT_NEAR(Price(op, device).seconds, 3 * usual, 1e-9);
  EXPECT_NE(Price(op, device).how, How::kHeld);
}

// Keys of 192 and values of 128 a head for prompts, whose table is of heads of 160; 576 values a
// position for all heads of generated rows, of which there is none.
TEST(Price, LatentAttentionInBothForms) {
  const DeviceProfile gb200 = Profile("gb200-nvl72");
  constexpr double kContext = 4 * 8192.0 * 8192 / 2;
  OpDesc prompts{.kind = OpKind::kAttention,
                 .rows = 4,
                 .columns = 128 * 128,
                 .depth = static_cast<int64_t>(kContext),
                 .heads = 128,
                 .kv_heads = 128,
                 .head_dim = 192,
                 .prefill_sequences = 4,
                 .prefill_context = static_cast<int64_t>(kContext)};
  const PriceResult expanded = Price(prompts, gb200);
  EXPECT_EQ(expanded.how, How::kExact);
  const double work = 2 * 128 * (192.0 + 128) * kContext;
  EXPECT_GT(work / 2500e12 / expanded.seconds, 0.4);
  EXPECT_LT(work / 2500e12 / expanded.seconds, 0.6);
  prompts.kv_format = NumberFormat::kFP8;
  EXPECT_LT(Price(prompts, gb200).seconds, 0.85 * expanded.seconds);
  const OpDesc absorbed{.kind = OpKind::kAttention,
                        .rows = 256,
                        .columns = 128 * 512,
                        .depth = 256 * 4000,
                        .heads = 128,
                        .kv_heads = 1,
                        .head_dim = 576};
  for (const char* const name : {"gb200-nvl72", "h200"}) {
    const DeviceProfile device = Profile(name);
    const PriceResult price = Price(absorbed, device);
    EXPECT_EQ(price.how, How::kMiss) << name;
    const double compute = 2 * 128 * (576.0 + 512) * 256 * 4000 / (device.bf16_flops * 0.72),
                 memory = 576 * 2 * 256 * 4000.0 / (device.memory_bytes_per_s * 0.8);
    EXPECT_NEAR(price.seconds - device.launch_s, std::max(compute, memory), 1e-12) << name;
  }
}

UtilisationTable CopyTable() {
  UtilisationTable table;
  table.op = TableOp::kCopy;
  table.axes = {{{1e3, 1e6}, {1, 2}, {1}}};
  table.Prepare({1e-6, 1.5e-6, 1e-4, 1.9e-4});
  return table;
}

TEST(Price, CopiesOfACpuTakeTheirTable) {
  DeviceProfile device = Profile("zen4");
  device.launch_s = 0;
  device.tables = {CopyTable()};
  OpDesc copy{.kind = OpKind::kCopy, .read_bytes = 1e6, .link = Link::kPeer, .sharers = 2};
  EXPECT_NEAR(Price(copy, device).seconds, 1.9e-4, 1e-9);
  copy.sharers = 1;
  EXPECT_NEAR(Price(copy, device).seconds, 1e-4, 1e-9);
}

// A GPU's table is of copies between it and its host; others take their link.
TEST(Price, CopiesToTheHostOfAGpuTakeTheirTable) {
  DeviceProfile device = Profile("h100");
  device.launch_s = 0;
  OpDesc copy{.kind = OpKind::kCopy, .read_bytes = 1e6, .link = Link::kPeer};
  const double peer = Price(copy, device).seconds;
  device.tables = {CopyTable()};
  EXPECT_EQ(Price(copy, device).seconds, peer);
  copy.link = Link::kHost;
  EXPECT_NEAR(Price(copy, device).seconds, 1e-4, 1e-9);
}

// Where a CPU's experts were measured an expert's share is its table's, by mean rows and skew; in
// formats that were not, it is the dense layer's.
TEST(Price, ExpertsOfACpuTakeTheirTable) {
  DeviceProfile device = Profile("zen4");
  device.launch_s = 0;
  UtilisationTable table;
  table.op = TableOp::kExperts;
  table.axes = {{{1, 64}, {1, 4}, {1 << 20}}};
  table.Prepare({1e-4, 1e-4, 2e-4, 3e-4});
  device.tables.push_back(table);
  OpDesc experts{.kind = OpKind::kExperts,
                 .rows = 8 * 64,
                 .columns = 1024,
                 .depth = 1024,
                 .experts = 8,
                 .busiest_rows = 64};
  EXPECT_NEAR(Price(experts, device).seconds, 8 * 2e-4, 1e-12);
  experts.busiest_rows = 4 * 64;
  EXPECT_NEAR(Price(experts, device).seconds, 8 * 3e-4, 1e-12);
  EXPECT_EQ(Price(experts, device).how, How::kExact);
  experts.weight_format = NumberFormat::kF32;
  EXPECT_NEAR(Price(experts, device).seconds,
              8 * Price(Linear(64, 1024, 1024, NumberFormat::kF32), device).seconds, 1e-12);
}

// A CPU computes one expert after another; an accelerator all at once, from the bytes of those that
// have rows.
TEST(Price, ExpertsAreDenseLayersOfTheirRows) {
  OpDesc experts{
      .kind = OpKind::kExperts, .rows = 96, .columns = 1536, .depth = 2048, .experts = 4};
  const auto kernel_seconds = [](const OpDesc& op, const DeviceProfile& device) {
    return Price(op, device).seconds - device.launch_s;
  };
  const DeviceProfile cpu = Profile("zen4");
  EXPECT_NEAR(kernel_seconds(experts, cpu), 4 * kernel_seconds(Linear(24, 1536, 2048), cpu), 1e-12);
  const DeviceProfile gpu = Profile("h200");
  experts.columns = 8192;
  const double expert_seconds = 8192.0 * 2048 * 2 / (gpu.memory_bytes_per_s * gpu.mbu);
  EXPECT_NEAR(kernel_seconds(experts, gpu), 4 * expert_seconds, 1e-12);
  experts.experts = 8;
  EXPECT_NEAR(kernel_seconds(experts, gpu), 8 * expert_seconds, 1e-12);
  experts.rows = experts.experts = 0;
  EXPECT_NEAR(kernel_seconds(experts, gpu), gpu.op_floor_s, 1e-12);
}

}  // namespace
}  // namespace forebay::cost
