// The layer program over the ranks of a replica, enqueued by one control task, against one rank: logits by memcmp, and the
// digests of keys and values, for every degree of tp and pp that the model allows.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "base/units.h"
#include "device/hazard_checker.h"
#include "kernels/kernel_set.h"
#include "model/decoder.h"
#include "runtime/runtime_test_base.h"
#include "weights/random_reader.h"

namespace forebay::model {
namespace {

using runtime::Runtime;
using tensor::DType;

constexpr int kMaxPositions = 128, kBlocksPerSequence = kMaxPositions / kernels::kBlockTokens, kSequences = 2;
constexpr StepCapacity kCapacity{.rows = 48, .logit_rows = 48};

struct Case {
  const char* name;
  int64_t heads, kv_heads, intermediate, vocab;
  DType dtype;
  bool tied = false, biases = false;
};
constexpr Case kCases[] = {
    {"gqa", 8, 4, 256, 2500, DType::kBF16},
    {"few_kv_heads", 8, 2, 320, 1100, DType::kF32, false, true},
    {"tied", 9, 3, 288, 3000, DType::kBF16, true},
};

ModelConfig Config(const Case& c) {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.family = "llama";
  config.vocab_size = c.vocab;
  config.hidden_size = 96;
  config.intermediate_size = c.intermediate;
  config.num_layers = 3;
  config.num_heads = c.heads;
  config.num_kv_heads = c.kv_heads;
  config.head_dim = 16;
  config.rms_norm_eps = 1e-5;
  config.tie_word_embeddings = c.tied;
  config.attention_bias = config.attention_out_bias = config.mlp_bias = c.biases;
  config.sliding_window = {0, 0, 0};
  config.max_position_embeddings = kMaxPositions;
  for (int i = 0; i < 8; ++i) config.rope.inv_freq.push_back(1.0f / static_cast<float>(1 << i));
  return config;
}

// Some rows of a sequence.
struct Rows {
  int sequence, first_position, count;
};
const std::vector<std::vector<Rows>> kSteps = {{{0, 0, 37}}, {{0, 37, 1}, {1, 0, 20}}, {{0, 38, 1}, {1, 20, 3}}};

// A step's arrays, which all ranks read.
struct Batch {
  explicit Batch(const std::vector<Rows>& parts, int64_t vocab) {
    for (int i = 0; i < kSequences * kBlocksPerSequence; ++i) tables.push_back(static_cast<uint32_t>(i));
    for (const Rows& part : parts) {
      const auto index = static_cast<int32_t>(sequences.size());
      sequences.push_back({static_cast<int32_t>(tokens.size()), part.count, part.first_position, part.sequence});
      context.Add(part.first_position, part.count);
      for (int32_t position = part.first_position; position < part.first_position + part.count; ++position) {
        logit_rows.push_back(static_cast<int32_t>(tokens.size()));
        tokens.push_back(static_cast<int32_t>((position * 7919 + part.sequence * 31) % vocab));
        positions.push_back(position);
        row_sequence.push_back(index);
      }
    }
    const auto rows = static_cast<int32_t>(tokens.size());
    batch = {.num_rows = rows, .num_sequences = static_cast<int32_t>(sequences.size()), .num_logit_rows = rows, .own_end = rows,
             .tokens = tokens.data(), .positions = positions.data(), .row_sequence = row_sequence.data(),
             .sequences = sequences.data(), .table_stride = kBlocksPerSequence, .logit_rows = logit_rows.data()};
    batch.group_tables[0] = tables.data();
  }
  std::vector<int32_t> tokens, positions, row_sequence, logit_rows;
  std::vector<kernels::SequenceRows> sequences;
  std::vector<uint32_t> tables;
  kernels::ContextSums context;
  kernels::StepBatch batch;
};

struct Rank {
  Rank(Runtime& runtime, std::unique_ptr<fabric::Fabric> own_fabric, const ModelConfig& config, DType dtype,
       const ReplicaCut& rank_cut, const weights::TensorReader& reader, device::HazardChecker& checker, uint64_t seed)
      : cut(rank_cut), fabric(std::move(own_fabric)) {
    device = device::CreateCpuDevice(runtime, {.rank = fabric->rank(),
                                               .memory_bytes = 64 * base::kMiB,
                                               .num_workers = 1 + fabric->rank() % 2,
                                               .scratch_bytes = 2 * base::kMiB,
                                               .checker = &checker,
                                               .max_virtual_delay = 100,
                                               .seed = seed})
                 .value();
    const DecoderPlan plan = PlanDecoder(config, dtype, kMaxPositions, cut);
    device::Arena& arena = device->arena();
    const auto allocate = [&](const char* name, uint64_t bytes) { return arena.Allocate(name, bytes + 64).value(); };
    decoder.config = &config;
    decoder.dtype = dtype;
    decoder.kernels = *kernels::ChooseKernels("auto");
    decoder.stream = &device->compute();
    decoder.capacity = kCapacity;
    weight_bytes = plan.bytes();
    decoder.weights =
        LoadDecoder(plan, &reader, *allocate("weights", plan.bytes()), *allocate("tables", plan.table_bytes()), {}, 1).value();
    device::RegionCutter cutter(*allocate("activations", ActivationBytes(config, dtype, kCapacity, cut)));
    decoder.activations = CutActivations(config, dtype, kCapacity, &cutter, cut);
    const Shard& shard = decoder.weights.shard;
    const auto groups = PlanKvGroups(config, dtype, shard.layers, shard.kv_heads.size());
    FB_CHECK(groups.size() == 1, "{} KV groups", groups.size());
    constexpr int64_t kBlocks = kBlocksPerSequence * kSequences;
    decoder.kv = CutKvCache(groups, kBlocks, true, allocate("kv", kBlocks * KvBlockBytes(groups, true))->data);
    digests = decoder.kv.groups[0].digests;
    tensor_staging = arena.Allocate("tensor staging", TensorStagingBytes(config, kCapacity, cut)).value();
    stage_staging = arena.Allocate("stage staging", StageStagingBytes(config, dtype, kCapacity, cut)).value();
    for (const device::Region* region : {tensor_staging, stage_staging}) FB_CHECK(fabric->Publish(*region).ok(), "publish");
  }

  // After all ranks have published.
  void Link() {
    const int first = fabric->rank() - cut.tp_rank;
    fabric::Communicator stage{.my_index = cut.tp_rank};
    for (int t = 0; t < cut.tp; ++t) stage.ranks.push_back(first + t);
    if (cut.tp > 1) {
      exchange = std::make_unique<fabric::Exchange>(
          fabric::Exchange::Create(*fabric, stage, *tensor_staging, fabric::kTensorChannel).value());
    }
    const auto handover = [&](int from, int to) {
      return std::make_unique<fabric::Handover>(fabric::Handover::Create(*fabric, from, to, "stage staging").value());
    };
    if (!cut.first_stage()) last_stage = handover(fabric->rank() - cut.tp, fabric->rank());
    if (!cut.last_stage()) next_stage = handover(fabric->rank(), fabric->rank() + cut.tp);
    decoder.links = {exchange.get(), last_stage.get(), next_stage.get()};
  }

  const ReplicaCut cut;
  std::unique_ptr<fabric::Fabric> fabric;
  std::unique_ptr<fabric::Exchange> exchange;
  std::unique_ptr<fabric::Handover> last_stage, next_stage;
  std::unique_ptr<device::Device> device;
  const device::Region *tensor_staging, *stage_staging;
  uint64_t* digests;
  uint64_t weight_bytes;
  Decoder decoder;
};

struct Outcome {
  std::vector<std::vector<float>> logits;  // [steps][rows, vocab], of each rank of the last stage one behind the other
  std::vector<uint64_t> digests;           // [positions], summed over the ranks
  uint64_t weight_bytes = 0;
};

// `overlap`: a step is enqueued before the one before has ended, and only the last one's logits are there.
Outcome RunReplica(Runtime& runtime, const Case& c, int tp, int pp, uint64_t seed, bool overlap = false) {
  const ModelConfig config = Config(c);
  const weights::RandomReader reader(5, PlanDecoder(config, c.dtype, 1).TensorShapes());
  device::HazardChecker checker;
  std::vector<std::unique_ptr<Rank>> ranks;
  for (auto& fabric : fabric::CreateLocalFabric(runtime, tp * pp)) {
    const ReplicaCut cut{.tp = tp, .pp = pp, .tp_rank = fabric->rank() % tp, .stage = fabric->rank() / tp};
    ranks.push_back(std::make_unique<Rank>(runtime, std::move(fabric), config, c.dtype, cut, reader, checker, seed));
  }
  for (auto& rank : ranks) rank->Link();
  Outcome outcome;
  std::deque<Batch> batches;  // live as long as their steps
  for (const std::vector<Rows>& step : kSteps) {
    const Batch& batch = batches.emplace_back(step, c.vocab);
    for (auto& rank : ranks) {
      rank->decoder.Forward(batch.batch, batch.context);
      if (rank->cut.last_stage()) rank->decoder.Logits(batch.batch, 0, batch.batch.num_logit_rows);
    }
    if (overlap && &step != &kSteps.back()) continue;
    std::vector<float>& logits = outcome.logits.emplace_back();
    for (auto& rank : ranks) {
      EXPECT_TRUE(rank->device->Synchronize(rank->device->compute()).ok());
      if (!rank->cut.last_stage()) continue;
      const float* const own = rank->decoder.activations.logits;
      logits.insert(logits.end(), own, own + batch.batch.num_logit_rows * c.vocab);
    }
  }
  outcome.digests.resize(kSequences * kMaxPositions);
  for (auto& rank : ranks) {
    for (size_t i = 0; i < outcome.digests.size(); ++i) outcome.digests[i] += rank->digests[i];
    outcome.weight_bytes += rank->weight_bytes;
  }
  EXPECT_TRUE(checker.status().ok()) << checker.status().ToString();
  return outcome;
}

class ReplicaTest : public runtime::OnBothRuntimes {
 protected:
  // Whether tp x pp ranks give the bytes of one; how many cuts the model allows.
  int CheckAllCuts(const Case& c, const std::vector<std::pair<int, int>>& cuts, int num_seeds) {
    const auto real = runtime::CreateRealRuntime();
    const Outcome one = RunReplica(*real, c, 1, 1, 1);
    EXPECT_NE(one.logits[0][0], one.logits[0][c.vocab]);
    EXPECT_NE(one.digests[0], one.digests[1]);
    int allowed = 0;
    for (const auto& [tp, pp] : cuts) {
      if (!CheckCut(Config(c), tp, pp).ok()) continue;
      ++allowed;
      uint64_t seed = 0;
      Run([&](Runtime& runtime) {
        const Outcome many = RunReplica(runtime, c, tp, pp, seed++);
        EXPECT_EQ(many.digests, one.digests) << c.name << " tp " << tp << " pp " << pp;
        for (size_t step = 0; step < one.logits.size(); ++step) {
          const std::vector<float>&want = one.logits[step], &got = many.logits[step];
          ASSERT_EQ(got.size(), tp * want.size());
          for (int rank = 0; rank < tp; ++rank) {
            EXPECT_EQ(std::memcmp(&got[rank * want.size()], want.data(), want.size() * sizeof(float)), 0)
                << c.name << " tp " << tp << " pp " << pp << " step " << step << " rank " << rank;
          }
        }
      }, num_seeds);
    }
    return allowed;
  }
};
FB_ON_BOTH_RUNTIMES(ReplicaTest);

TEST_P(ReplicaTest, TensorParallelRanksHaveTheBytesOfOne) {
  int allowed = 0;
  for (const Case& c : kCases) {
    allowed += CheckAllCuts(c, {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}, {7, 1}, {8, 1}}, 2);
  }
  EXPECT_GE(allowed, 10);
}

TEST_P(ReplicaTest, StagesHaveTheBytesOfOne) {
  for (const Case& c : kCases) CheckAllCuts(c, {{1, 2}, {1, 3}, {2, 2}, {3, 2}, {4, 3}}, 2);
}

TEST_P(ReplicaTest, StepsThatOverlapHaveTheBytesOfOne) {
  const Case& c = kCases[0];
  const auto real = runtime::CreateRealRuntime();
  const Outcome one = RunReplica(*real, c, 1, 1, 1);
  for (const auto& [tp, pp] : {std::pair{1, 2}, {1, 3}, {2, 2}}) {
    uint64_t seed = 0;
    Run([&](Runtime& runtime) {
      const Outcome many = RunReplica(runtime, c, tp, pp, seed++, true);
      EXPECT_EQ(many.digests, one.digests) << "tp " << tp << " pp " << pp;
      ASSERT_EQ(many.logits.size(), 1u);
      EXPECT_EQ(std::memcmp(many.logits[0].data(), one.logits.back().data(), one.logits.back().size() * sizeof(float)), 0)
          << "tp " << tp << " pp " << pp;
    }, 5);
  }
}

TEST(Replica, RanksHoldTheirShareOfTheWeights) {
  const ModelConfig config = Config(kCases[0]);
  const uint64_t whole = PlanDecoder(config, DType::kBF16, kMaxPositions).bytes();
  const uint64_t embedding = tensor::BytesOf(DType::kBF16, config.vocab_size * config.hidden_size);
  const uint64_t half = PlanDecoder(config, DType::kBF16, kMaxPositions, {.tp = 2, .tp_rank = 1}).bytes();
  EXPECT_NEAR(static_cast<double>(half - embedding), static_cast<double>(whole - embedding) / 2, 0.1 * static_cast<double>(whole));
  const uint64_t stage = PlanDecoder(config, DType::kBF16, kMaxPositions, {.pp = 3, .stage = 1}).bytes();
  EXPECT_LT(stage, (whole - 2 * embedding) / 3 + 64 * base::kKiB);  // neither embedding nor head
}

}  // namespace
}  // namespace forebay::model
