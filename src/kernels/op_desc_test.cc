// What kernels tell the cost model and the hazard checker of their steps.
#include <gtest/gtest.h>

#include <vector>

#include "device/hazard_checker.h"
#include "kernels/kernel_set.h"

namespace forebay::kernels {
namespace {

class CapturingStream final : public device::Stream {
 public:
  void Enqueue(const device::Operation& operation) override {
    descs.push_back(operation.desc);
    operations.push_back(operation);
  }
  void Record(device::DeviceEvent&) override {}
  void Wait(const device::DeviceEvent&) override {}
  void Post(device::Counter&, uint64_t) override {}
  void Await(device::Counter&, uint64_t) override {}
  std::vector<cost::OpDesc> descs;
  std::vector<device::Operation> operations;
};

// A chunk of 64 rows after 100 positions, and two decoding rows at positions 9 and 39.
ContextSums MixedStep() {
  ContextSums sums;
  sums.Add(100, 64);
  sums.Add(9, 1);
  sums.Add(39, 1);
  return sums;
}

TEST(ContextSums, SplitPrefillFromDecode) {
  const ContextSums sums = MixedStep();
  EXPECT_EQ(sums.prefill_sequences, 1);
  EXPECT_EQ(sums.prefill_rows, 64);
  EXPECT_EQ(sums.prefill_context, 64 * 100 + 64 * 65 / 2);
  EXPECT_EQ(sums.decode_rows, 2);
  EXPECT_EQ(sums.decode_context, 10 + 40);
}

// Texts of 64 and 30 rows and of one, all of whose rows see all rows of theirs.
TEST(OpDesc, RowsThatSeeThoseBehindThemCountThem) {
  CapturingStream stream;
  AttentionArgs args;
  args.batch = {.num_rows = 95, .num_sequences = 3};
  args.layout = {.dtype = tensor::DType::kF32,
                 .kv_heads = 2,
                 .key_dim = 64,
                 .value_dim = 64,
                 .block_stride = 1 << 20};
  args.heads = 2;
  for (const int64_t rows : {64, 30, 1}) args.context.Add(0, rows);
  args.reach.ahead = base::Reach::kAllAhead;
  Attention(stream, RefKernels(), args);
  ASSERT_EQ(stream.descs.size(), 1u);
  EXPECT_EQ(stream.descs[0].prefill_context, 64 * 64 + 30 * 30);
  EXPECT_EQ(stream.descs[0].depth, 64 * 64 + 30 * 30 + 1);
}

TEST(OpDesc, AttentionTellsItsHeadsAndBothParts) {
  CapturingStream stream;
  AttentionArgs args;
  args.batch = {.num_rows = 66, .num_sequences = 3};
  args.layout = {.dtype = tensor::DType::kF32,
                 .kv_heads = 2,
                 .key_dim = 64,
                 .value_dim = 64,
                 .block_stride = 1 << 20};
  args.heads = 6;
  args.context = MixedStep();
  Attention(stream, RefKernels(), args);
  ASSERT_EQ(stream.descs.size(), 1u);
  const cost::OpDesc& desc = stream.descs[0];
  EXPECT_EQ(desc.rows, 3);
  EXPECT_EQ(desc.depth, args.context.context());
  EXPECT_EQ(desc.prefill_sequences, 1);
  EXPECT_EQ(desc.prefill_context, args.context.prefill_context);
  EXPECT_EQ(desc.heads, 6);
  EXPECT_EQ(desc.kv_heads, 2);
  EXPECT_EQ(desc.head_dim, 64);
  EXPECT_EQ(desc.kv_format, cost::NumberFormat::kF32);
  // The chunk sees 164 positions, the rows 10 and 40: K and V of 2 heads of 64 in fp32.
  EXPECT_DOUBLE_EQ(desc.read_bytes, (164 + 10 + 40) * 2.0 * 2 * 64 * 4);
  EXPECT_DOUBLE_EQ(desc.flops, 4.0 * static_cast<double>(args.context.context()) * 6 * 64);
}

TEST(OpDesc, LinearTellsItsWeightsType) {
  for (const auto& [dtype, format] : {std::pair(tensor::DType::kBF16, cost::NumberFormat::kBF16),
                                      std::pair(tensor::DType::kF32, cost::NumberFormat::kF32)}) {
    CapturingStream stream;
    alignas(64) std::byte workspace[64];
    LinearArgs args;
    args.weight = {
        .dtype = dtype, .k = 64, .n = 64, .num_panels = 1, .leaves = LeafBorders::Single(64)};
    args.x_stride = args.y_stride = 64;
    args.rows = 5;
    args.leaf_end = 1;
    args.workspace = workspace;
    Linear(stream, RefKernels(), "linear", args);
    ASSERT_EQ(stream.descs.size(), 1u);
    EXPECT_EQ(stream.descs[0].weight_format, format);
    EXPECT_EQ(stream.descs[0].leaves, 1);
    EXPECT_EQ(stream.descs[0].rows, 5);
    EXPECT_DOUBLE_EQ(stream.descs[0].read_bytes, 64 * 64 * cost::BytesPerElement(format));
    args.weight.leaves = {.num_leaves = 2, .begin = {0, 32, 64}};
    args.leaf_end = 2;
    Linear(stream, RefKernels(), "linear", args);
    EXPECT_EQ(stream.descs[1].leaves, 2);
  }
}

// Leaf 0's two tiles side by side, leaf 1's in two slots: 8 KiB each.
TEST(Accesses, LinearReadsTheTilesOfItsLeaves) {
  constexpr uint64_t kTile = 32 * kPanelColumns * 2 * 2;
  alignas(64) static std::byte workspace[1024], x[256], y[1024], tiles[8 * kTile];
  const std::byte* pointers[] = {tiles, tiles + kTile, tiles + 3 * kTile, tiles + 6 * kTile};
  const PanelColumns panels[] = {{0, 64}, {64, 64}};
  LinearArgs args;
  args.weight = {.k = 128,
                 .n = 128,
                 .num_panels = 2,
                 .leaves = {.num_leaves = 2, .begin = {0, 64, 128}},
                 .tiles = pointers,
                 .panels = panels};
  ASSERT_EQ(args.weight.TileBytes(1, 0), static_cast<int64_t>(kTile));
  args.x = x, args.y = y, args.workspace = workspace;
  args.x_stride = args.y_stride = 128;
  args.rows = 1;
  args.output = LinearOutput::kPartial;
  const auto hits = [&](int leaf_begin, int leaf_end, uint64_t offset) {
    args.leaf_begin = leaf_begin, args.leaf_end = leaf_end;
    CapturingStream stream;
    Linear(stream, RefKernels(), "linear", args);
    device::Operation pull;
    pull.desc.label = "pull";
    pull.Writes(tiles + offset, 1);
    device::HazardChecker checker;
    checker.Begin("compute", stream.operations.at(0));
    checker.Begin("copy", pull);
    return !checker.status().ok();
  };
  const auto reads = [&](int begin, int end) {
    std::vector<int> tiles_read;
    for (int tile = 0; tile < 8; ++tile) {
      EXPECT_EQ(hits(begin, end, tile * kTile), hits(begin, end, (tile + 1) * kTile - 1));
      if (hits(begin, end, tile * kTile)) tiles_read.push_back(tile);
    }
    return tiles_read;
  };
  EXPECT_EQ(reads(0, 2), (std::vector<int>{0, 1, 3, 6}));
  EXPECT_EQ(reads(0, 1), (std::vector<int>{0, 1}));
  EXPECT_EQ(reads(1, 2), (std::vector<int>{3, 6}));
}

// Blocks of 256 bytes a layer, 512 from one to the next; a row at position 70 of the first
// sequence, rows 30 .. 33 of the second.
TEST(Accesses, AttentionAndRopeNameTheirBlocks) {
  alignas(64) static std::byte kv[8192], q[256];
  static uint64_t digests[16 * kBlockTokens];
  SequenceRows sequences[] = {{0, 1, 70, 1}, {1, 4, 30, 0}};
  uint32_t tables[] = {9, 4, 0, 0, /**/ 5, 2, 7, 0};
  const KvLayout layout{.dtype = tensor::DType::kBF16,
                        .kv_heads = 1,
                        .key_dim = 2,
                        .value_dim = 2,
                        .block_stride = 512};
  ASSERT_EQ(layout.LayerBytes(), 256);
  const StepBatch batch{.num_rows = 5,
                        .num_sequences = 2,
                        .sequences = sequences,
                        .block_tables = tables,
                        .table_stride = 4};
  const KvLayer layer{.resident = kv};
  const auto blocks = [&](const device::Operation& operation, bool write) {
    std::vector<device::Access> accesses;
    operation.further_accesses(operation.args.data(), &accesses);
    std::vector<int64_t> found;
    for (const device::Access& access : accesses) {
      if (access.bytes != 256) continue;
      EXPECT_EQ(access.write, write);
      found.push_back((static_cast<const std::byte*>(access.data) - layer.resident) /
                      layout.block_stride);
    }
    return found;
  };
  CapturingStream stream;
  AttentionArgs attention{
      .batch = batch, .layout = layout, .layer = layer, .q = q, .out = q + 128, .heads = 1};
  Attention(stream, RefKernels(), attention);
  attention.reach = 7;  // position 70 sees 64 .. 70
  Attention(stream, RefKernels(), attention);
  RopeKv(
      stream, RefKernels(),
      {.batch = batch, .layout = layout, .layer = layer, .q = q, .heads = 1, .digests = digests});
  EXPECT_EQ(blocks(stream.operations.at(0), false), (std::vector<int64_t>{5, 2, 7, 9, 4}));
  EXPECT_EQ(blocks(stream.operations.at(1), false), (std::vector<int64_t>{7, 9, 4}));
  EXPECT_EQ(blocks(stream.operations.at(2), true), (std::vector<int64_t>{7, 9, 4}));
  std::vector<device::Access> written;
  stream.operations.at(2).further_accesses(stream.operations.at(2).args.data(), &written);
  std::vector<int64_t> positions;
  for (const device::Access& access : written) {
    if (access.bytes == sizeof(uint64_t))
      positions.push_back(static_cast<const uint64_t*>(access.data) - digests);
  }
  EXPECT_EQ(positions,
            (std::vector<int64_t>{7 * 32 + 6, 9 * 32 + 30, 9 * 32 + 31, 4 * 32, 4 * 32 + 1}));
}

// Three experts of two panels, of which the middle one has no rows.
TEST(OpDesc, ExpertsCountWhatTheyFind) {
  CapturingStream stream;
  const PanelColumns panels[] = {{0, 64}, {64, 36}};
  std::byte x[64], y[64];
  std::byte runs[3];
  const std::byte* const run_of[] = {&runs[2], &runs[0], &runs[1]};
  int32_t offsets[4] = {};
  ExpertsArgs args;
  args.weight = {
      .k = 32, .n = 100, .num_panels = 2, .leaves = LeafBorders::Single(32), .panels = panels};
  args.runs = run_of;
  args.offsets = offsets;
  args.num_experts = 3;
  args.max_rows = 40;
  args.x = x;
  args.y = y;
  args.x_stride = 32;
  args.y_stride = 100;
  Experts(stream, RefKernels(), "experts_down", args);
  ASSERT_EQ(stream.operations.size(), 1u);
  offsets[1] = offsets[2] = 4, offsets[3] = 9;
  const cost::OpDesc desc = stream.operations[0].CompleteDesc();
  EXPECT_EQ(desc.rows, 9);
  EXPECT_EQ(desc.experts, 2);
  EXPECT_EQ(desc.busiest_rows, 5);
  EXPECT_EQ(desc.columns, 128);
  EXPECT_EQ(desc.flops, 2.0 * 9 * 128 * 32);
  EXPECT_EQ(desc.read_bytes, 2.0 * 128 * 32 * 2);
  std::vector<device::Access> reads;
  stream.operations[0].further_accesses(stream.operations[0].args.data(), &reads);
  ASSERT_EQ(reads.size(), 2u);
  EXPECT_EQ(reads[0].data, &runs[2]);
  EXPECT_EQ(reads[1].data, &runs[1]);
  EXPECT_EQ(reads[1].bytes, 128u * 32 * 2);

  // What is read of x: the rows of the grouped order, or those that are picked by number.
  const auto bytes_of_x = [&](const device::Operation& operation) {
    uint64_t bytes = 0;
    for (int i = 0; i < operation.num_accesses; ++i) {
      const device::Access& access = operation.accesses[static_cast<size_t>(i)];
      if (access.data == x) bytes += access.bytes;
      EXPECT_EQ(access.write, access.data == y);
    }
    return bytes;
  };
  EXPECT_EQ(bytes_of_x(stream.operations[0]), 40u * 32 * 2);
  const int32_t x_rows[40] = {};
  args.x_rows = x_rows;
  args.x_count = 10;
  Experts(stream, RefKernels(), "experts_gate_up", args);
  EXPECT_EQ(bytes_of_x(stream.operations[1]), 10u * 32 * 2);
}

}  // namespace
}  // namespace forebay::kernels
