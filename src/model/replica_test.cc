// The layer program over the ranks of a replica, enqueued by one control task, against one rank:
// logits by memcmp, and the digests of keys and values, for every degree of tp and pp that the
// model allows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <vector>

#include "base/units.h"
#include "device/hazard_checker.h"
#include "kernels/kernel_set.h"
#include "model/decoder.h"
#include "model/kv_groups.h"
#include "runtime/testing/on_both_runtimes.h"
#include "weights/random_reader.h"

namespace forebay::model {
namespace {

using runtime::Runtime;
using tensor::DType;

constexpr int kMaxPositions = 128, kBlocksPerSequence = kMaxPositions / kernels::kBlockTokens,
              kSequences = 2;
constexpr StepCapacity kCapacity{.rows = 48, .logit_rows = 48};

struct Case {
  const char* name;
  int64_t heads, kv_heads, intermediate, vocab;
  DType dtype;
  bool tied = false, biases = false, latent = false;
};
constexpr Case kCases[] = {
    {"gqa", 8, 4, 256, 2500, DType::kBF16},
    {"few_kv_heads", 8, 2, 320, 1100, DType::kF32, false, true},
    {"tied", 9, 3, 288, 3000, DType::kBF16, true},
    {"latent", 6, 6, 256, 1500, DType::kBF16, false, false, true},
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
  if (c.latent) {
    config.family = "deepseek_v3";
    // One form for all rows: a step needs no rounds of prompts.
    config.mla = MlaConfig{.q_lora_rank = 40,
                           .kv_lora_rank = 24,
                           .qk_nope_head_dim = 12,
                           .qk_rope_head_dim = 16,
                           .v_head_dim = 10,
                           .softmax_scale = 0.2f,
                           .absorbed = true};
  }
  return config;
}

// What is planted into the ranks of a replica.
enum class Fault { kNone, kSpGroupForTp, kInverseHeads, kNeighbourKvHead, kShardsInRankOrder };

struct Trial {
  // A step is enqueued before the one before has ended, and only the last one's logits are there.
  bool overlap = false;
  int64_t one_meeting_rows = std::numeric_limits<int64_t>::max();
  Fault fault = Fault::kNone;
  bool two_step_kv = false;
};

// Some rows of a sequence.
struct Rows {
  int sequence, first_position, count;
};
const std::vector<std::vector<Rows>> kSteps = {
    {{0, 0, 37}}, {{0, 37, 1}, {1, 0, 20}}, {{0, 38, 1}, {1, 20, 3}}};

// A step's arrays, which all ranks read.
struct Batch {
  explicit Batch(const std::vector<Rows>& parts, int64_t vocab) {
    for (int i = 0; i < kSequences * kBlocksPerSequence; ++i)
      tables.push_back(static_cast<uint32_t>(i));
    for (const Rows& part : parts) {
      const auto index = static_cast<int32_t>(sequences.size());
      sequences.push_back(
          {static_cast<int32_t>(tokens.size()), part.count, part.first_position, part.sequence});
      context.Add(part.first_position, part.count);
      for (int32_t position = part.first_position; position < part.first_position + part.count;
           ++position) {
        logit_rows.push_back(static_cast<int32_t>(tokens.size()));
        tokens.push_back(static_cast<int32_t>((position * 7919 + part.sequence * 31) % vocab));
        positions.push_back(position);
        row_sequence.push_back(index);
      }
    }
    const auto rows = static_cast<int32_t>(tokens.size());
    batch = {.num_rows = rows,
             .num_sequences = static_cast<int32_t>(sequences.size()),
             .num_logit_rows = rows,
             .own_end = rows,
             .tokens = tokens.data(),
             .positions = positions.data(),
             .row_sequence = row_sequence.data(),
             .sequences = sequences.data(),
             .table_stride = kBlocksPerSequence,
             .logit_rows = logit_rows.data()};
    batch.group_tables[0] = tables.data();
  }
  std::vector<int32_t> tokens, positions, row_sequence, logit_rows;
  std::vector<kernels::SequenceRows> sequences;
  std::vector<uint32_t> tables;
  kernels::ContextSums context;
  kernels::StepBatch batch;
};

struct Rank {
  Rank(Runtime& runtime, std::unique_ptr<fabric::Fabric> own_fabric, const ModelConfig& config,
       DType dtype, const ReplicaCut& rank_cut, const weights::TensorReader& reader,
       device::HazardChecker& checker, uint64_t seed)
      : cut(rank_cut), fabric(std::move(own_fabric)) {
    device = device::CreateCpuDevice(runtime, {.rank = fabric->rank(),
                                               .memory_bytes = 64 * base::kMiB,
                                               .num_workers = 1 + fabric->rank() % 2,
                                               .scratch_bytes = 2 * base::kMiB,
                                               .checker = &checker,
                                               .max_virtual_delay = 100,
                                               .seed = seed})
                 .value();
    const DecoderPlan plan = PlanDecoder(config, dtype, cut);
    device::Arena& arena = device->arena();
    const auto allocate = [&](const char* name, uint64_t bytes) {
      return arena.Allocate(name, bytes + 64).value();
    };
    decoder.config = &config;
    decoder.dtype = dtype;
    decoder.kernels = *kernels::ChooseKernels("auto");
    decoder.stream = &device->compute();
    decoder.capacity = kCapacity;
    weight_bytes = plan.bytes(kMaxPositions);
    decoder.weights =
        LoadDecoder(plan, kMaxPositions, &reader, *allocate("weights", plan.bytes(kMaxPositions)),
                    *allocate("tables", plan.table_bytes()), {}, 1)
            .value();
    device::RegionCutter cutter(
        *allocate("activations", ActivationBytes(config, dtype, kCapacity, cut)));
    decoder.activations = CutActivations(config, dtype, kCapacity, &cutter, cut);
    const Shard& shard = decoder.weights.shard;
    const auto groups = PlanKvGroups(config, dtype, shard.layers, shard.own_kv_heads.size());
    FB_CHECK(groups.size() == 1, "{} KV groups", groups.size());
    constexpr int64_t kBlocks = kBlocksPerSequence * kSequences;
    decoder.kv = kv::CutCache(groups, kBlocks, true,
                              allocate("kv", kBlocks * kv::KvBlockBytes(groups, true))->data);
    digests = decoder.kv.groups[0].digests;
    tensor_staging =
        arena.Allocate("tensor staging", TensorStagingBytes(config, dtype, kCapacity, cut)).value();
    stage_staging =
        arena.Allocate("stage staging", StageStagingBytes(config, dtype, kCapacity, cut)).value();
    sequence_staging =
        arena.Allocate("sequence staging", SequenceStagingBytes(config, dtype, kCapacity, cut))
            .value();
    head_staging = arena.Allocate("head staging", HeadStagingBytes(config, kCapacity, cut)).value();
    decoder.exchanged = &exchanged;
    for (const device::Region* region :
         {tensor_staging, stage_staging, sequence_staging, head_staging})
      FB_CHECK(fabric->Publish(*region).ok(), "publish");
  }

  // After all ranks have published.
  void Link(const Trial& trial) {
    const Degrees layout = cut.degrees();
    const Fault fault = trial.fault;
    std::vector<BlockHeads>& run = decoder.weights.shard.run_heads;
    if (fault == Fault::kInverseHeads) std::ranges::reverse(run);
    if (fault == Fault::kNeighbourKvHead) std::swap(run[0].kv_heads, run.back().kv_heads);
    decoder.links.all_reduce.one_meeting_rows = trial.one_meeting_rows;
    const auto meet = [&](std::vector<int> members, int my_index, const device::Region& staging,
                          int channel) -> fabric::Exchange* {
      for (int& rank : members) rank += cut.stage * layout.ranks();
      return &exchanges.emplace_back(
          fabric::Exchange::Create(*fabric, {members, my_index}, staging, channel).value());
    };
    const int block = cut.block();
    if (cut.tp > 1) {
      const bool wrong = fault == Fault::kSpGroupForTp;
      decoder.links.tensor =
          meet(wrong ? SpRanks(layout, layout, block) : TpRanks(layout, layout, block),
               wrong ? layout.SpIndex(block) : layout.TpIndex(block), *tensor_staging,
               fabric::kTensorChannel);
    }
    if (cut.sp > 1) {
      decoder.links.sequence = meet(SpRanks(layout, layout, block), layout.SpIndex(block),
                                    *sequence_staging, fabric::kSequenceChannel);
      std::vector<int> all;
      const bool wrong = fault == Fault::kShardsInRankOrder;
      for (int b = 0; b < layout.ranks(); ++b) all.push_back(wrong ? b : RankOfBlock(layout, b));
      if (cut.last_stage()) {
        decoder.links.stage = meet(all, wrong ? RankOfBlock(layout, block) : block, *head_staging,
                                   fabric::kHeadChannel);
      }
    }
    const auto handover = [&](int from, int to) {
      return std::make_unique<fabric::Handover>(
          fabric::Handover::Create(*fabric, from, to, "stage staging").value());
    };
    if (!cut.first_stage()) last_stage = handover(fabric->rank() - layout.ranks(), fabric->rank());
    if (!cut.last_stage()) next_stage = handover(fabric->rank(), fabric->rank() + layout.ranks());
    decoder.links.last_stage = last_stage.get();
    decoder.links.next_stage = next_stage.get();
  }
  // The wanted rows that it draws: their logits of the whole vocabulary are its own.
  Part LogitRows(int64_t rows) const {
    return cut.last_stage() ? DrawnRows(rows, cut.degrees(), cut.block()) : Part{};
  }

  const ReplicaCut cut;
  std::unique_ptr<fabric::Fabric> fabric;
  std::deque<fabric::Exchange> exchanges;
  ExchangeCounters exchanged;
  std::unique_ptr<fabric::Handover> last_stage, next_stage;
  std::unique_ptr<device::Device> device;
  const device::Region *tensor_staging, *stage_staging, *sequence_staging, *head_staging;
  uint64_t* digests;
  uint64_t weight_bytes;
  Decoder decoder;
};

struct Outcome {
  std::vector<std::vector<float>> logits;  // [steps][rows, vocab]
  std::vector<uint64_t> digests;           // [positions], summed over the ranks
  uint64_t weight_bytes = 0;
  int64_t bytes_all_to_all = 0, bytes_all_reduce = 0, bytes_head = 0, pad_rows = 0;
  int64_t meetings = 0;  // of one rank
};

Outcome RunReplica(Runtime& runtime, const Case& c, const Degrees& layout, int pp, uint64_t seed,
                   const Trial& trial = {}) {
  const ModelConfig config = Config(c);
  const weights::RandomReader reader(5, PlanDecoder(config, c.dtype).TensorShapes());
  device::HazardChecker checker;
  std::vector<std::unique_ptr<Rank>> ranks;
  for (auto& fabric : fabric::CreateLocalFabric(runtime, layout.ranks() * pp)) {
    const int rank = fabric->rank();
    const ReplicaCut cut{.tp = layout.tp,
                         .pp = pp,
                         .tp_rank = rank % layout.tp,
                         .stage = rank / layout.ranks(),
                         .sp = layout.sp,
                         .sp_rank = rank / layout.tp % layout.sp,
                         .two_step_kv = trial.two_step_kv};
    ranks.push_back(std::make_unique<Rank>(runtime, std::move(fabric), config, c.dtype, cut, reader,
                                           checker, seed));
  }
  for (auto& rank : ranks) rank->Link(trial);
  Outcome outcome;
  std::deque<Batch> batches;  // live as long as their steps
  for (const std::vector<Rows>& step : kSteps) {
    const Batch& batch = batches.emplace_back(step, c.vocab);
    for (auto& rank : ranks) {
      rank->decoder.Forward(batch.batch, batch.context);
      if (!rank->cut.last_stage()) continue;
      rank->decoder.WantedRows(batch.batch, 0, batch.batch.num_logit_rows);
      rank->decoder.Logits(batch.batch.num_logit_rows);
    }
    if (trial.overlap && &step != &kSteps.back()) continue;
    const auto wanted = static_cast<size_t>(batch.batch.num_logit_rows * c.vocab);
    std::vector<float>& logits = outcome.logits.emplace_back(wanted);
    for (auto& rank : ranks) {
      EXPECT_TRUE(rank->device->Synchronize(rank->device->compute()).ok());
      const Part rows = rank->LogitRows(batch.batch.num_logit_rows);
      std::copy_n(rank->decoder.activations.logits, rows.size() * c.vocab,
                  logits.begin() + rows.begin * c.vocab);
    }
  }
  outcome.digests.resize(kSequences * kMaxPositions);
  for (auto& rank : ranks) {
    for (size_t i = 0; i < outcome.digests.size(); ++i) outcome.digests[i] += rank->digests[i];
    outcome.weight_bytes += rank->weight_bytes;
    outcome.bytes_all_to_all += rank->exchanged.bytes_all_to_all;
    outcome.bytes_all_reduce += rank->exchanged.bytes_all_reduce;
    outcome.bytes_head += rank->exchanged.bytes_head;
  }
  outcome.pad_rows = ranks[0]->exchanged.pad_rows;
  outcome.meetings = ranks[0]->exchanged.meetings;
  EXPECT_TRUE(checker.status().ok()) << checker.status().ToString();
  return outcome;
}

class ReplicaTest : public runtime::OnBothRuntimes {
 protected:
  // The ranks of a stage, and how many stages there are.
  struct Cut {
    Degrees layout;
    int pp;
  };

  // Whether sp x tp x pp ranks give the bytes of one; how many cuts the model allows.
  int CheckAllCuts(const Case& c, const std::vector<Cut>& cuts, int num_seeds,
                   const Trial& trial = {}) {
    const auto real = runtime::CreateRealRuntime();
    const Outcome one = RunReplica(*real, c, {}, 1, 1);
    EXPECT_NE(one.logits[0][0], one.logits[0][c.vocab]);
    EXPECT_NE(one.digests[0], one.digests[1]);
    int allowed = 0;
    for (const Cut& cut : cuts) {
      const Degrees& layout = cut.layout;
      const int pp = cut.pp;
      if (!CheckCut(Config(c), layout, pp).ok()) continue;
      const std::string name =
          fmt::format("{} sp {} tp {} pp {}", c.name, layout.sp, layout.tp, pp);
      ++allowed;
      uint64_t seed = 0;
      Run(
          [&](Runtime& runtime) {
            const Outcome many = RunReplica(runtime, c, layout, pp, seed++, trial);
            EXPECT_EQ(many.digests, one.digests) << name;
            EXPECT_EQ(many.bytes_all_to_all > 0, layout.sp > 1) << name;
            EXPECT_EQ(many.bytes_all_reduce > 0, layout.tp > 1) << name;
            EXPECT_EQ(many.bytes_head > 0, layout.ranks() > 1) << name;
            for (size_t step = 0; step < one.logits.size(); ++step) {
              const std::vector<float>&want = one.logits[step], &got = many.logits[step];
              ASSERT_EQ(got.size(), want.size());
              EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0)
                  << name << " step " << step;
            }
          },
          num_seeds);
    }
    return allowed;
  }
};
FB_ON_BOTH_RUNTIMES(ReplicaTest);

TEST_P(ReplicaTest, TensorParallelRanksHaveTheBytesOfOne) {
  int allowed = 0;
  for (const Case& c : kCases) {
    allowed += CheckAllCuts(c,
                            {{{1, 1}, 1},
                             {{1, 2}, 1},
                             {{1, 3}, 1},
                             {{1, 4}, 1},
                             {{1, 5}, 1},
                             {{1, 6}, 1},
                             {{1, 7}, 1},
                             {{1, 8}, 1}},
                            2);
  }
  EXPECT_GE(allowed, 22);
}

TEST_P(ReplicaTest, StagesHaveTheBytesOfOne) {
  for (const Case& c : kCases)
    CheckAllCuts(c, {{{1, 1}, 2}, {{1, 1}, 3}, {{1, 2}, 2}, {{1, 3}, 2}, {{1, 4}, 3}}, 2);
}

// Rows are cut over ranks, and heads change hands twice a layer.
TEST_P(ReplicaTest, RanksThatCutRowsHaveTheBytesOfOne) {
  std::vector<Cut> cuts = {{{2, 2}, 3}};
  for (int sp = 2; sp <= 8; ++sp) {
    for (int tp = 1; sp * tp <= 8; ++tp) {
      cuts.push_back({{sp, tp}, 1});
      if (sp * tp <= 4) cuts.push_back({{sp, tp}, 2});
    }
  }
  int allowed = 0;
  for (const Case& c : kCases) allowed += CheckAllCuts(c, cuts, 2);
  EXPECT_GE(allowed, 28);
}

// A KV head that several ranks hold comes to one of them each, and from these to the others: the
// bytes of one rank, as many from rank to rank, one meeting more a layer.
TEST_P(ReplicaTest, KvHeadsInTwoStepsHaveTheBytesOfOne) {
  const Case& c = kCases[1];
  EXPECT_EQ(CheckAllCuts(c, {{{4, 1}, 1}, {{8, 1}, 1}, {{2, 2}, 1}, {{2, 4}, 1}, {{4, 1}, 2}}, 2,
                         {.two_step_kv = true}),
            5);
  const auto real = runtime::CreateRealRuntime();
  for (const Degrees& layout : {Degrees{4, 1}, Degrees{8, 1}, Degrees{2, 2}}) {
    const Outcome fused = RunReplica(*real, c, layout, 1, 1),
                  two = RunReplica(*real, c, layout, 1, 1, {.two_step_kv = true});
    EXPECT_EQ(two.bytes_all_to_all, fused.bytes_all_to_all);
    EXPECT_EQ(two.meetings, fused.meetings + 3 * 3);  // steps x layers
  }
  const Outcome alone = RunReplica(*real, kCases[0], {4, 1}, 1, 1),
                asked = RunReplica(*real, kCases[0], {4, 1}, 1, 1, {.two_step_kv = true});
  EXPECT_EQ(asked.meetings, alone.meetings);  // each KV head lies on one rank
}

// Sums of few rows and of many, of fewer than there are ranks too.
TEST_P(ReplicaTest, SumsInTwoMeetingsHaveTheBytesOfOne) {
  int allowed = 0;
  for (const Case& c : kCases) {
    for (const int64_t one_meeting_rows : {0, 10}) {
      allowed += CheckAllCuts(c,
                              {{{1, 2}, 1},
                               {{1, 3}, 1},
                               {{1, 4}, 1},
                               {{1, 8}, 1},
                               {{1, 2}, 3},
                               {{2, 2}, 1},
                               {{3, 2}, 1},
                               {{2, 3}, 1},
                               {{4, 2}, 1},
                               {{2, 4}, 1}},
                              1, {.one_meeting_rows = one_meeting_rows});
    }
  }
  EXPECT_GE(allowed, 30);
}

// 2 (t - 1) n d (4 + a) a layer where a rank has one plane; 8 t (t - 1) n d in one meeting.
TEST(Replica, BytesOfSumsAreTheClosedForms) {
  const Case& c = kCases[0];
  const auto real = runtime::CreateRealRuntime();
  const int64_t hidden = 96, layers = 3, steps = 3, all = 37 + 21 + 4;
  for (const int t : {2, 4, 8}) {
    const Outcome one = RunReplica(*real, c, {1, t}, 1, 1),
                  two = RunReplica(*real, c, {1, t}, 1, 1, {.one_meeting_rows = 0}),
                  both = RunReplica(*real, c, {1, t}, 1, 1, {.one_meeting_rows = 21});
    const int64_t once = layers * 8 * t * (t - 1) * hidden,
                  twice = layers * 2 * (t - 1) * hidden * (4 + 2);
    EXPECT_EQ(one.bytes_all_reduce, all * once) << t;
    EXPECT_EQ(two.bytes_all_reduce, all * twice) << t;
    EXPECT_EQ(both.bytes_all_reduce, (21 + 4) * once + 37 * twice) << t;
    // Logits meet once a step.
    EXPECT_EQ(one.meetings, steps * (layers * 2 + 1)) << t;
    EXPECT_EQ(two.meetings, steps * (layers * 4 + 1)) << t;
    EXPECT_EQ(both.meetings, one.meetings + layers * 2) << t;
  }
  // 3, 3 and 2 of 8 leaves are 2, 2 and 1 nodes of the tree.
  const int64_t planes[] = {2, 2, 1};
  int64_t bytes = 0;
  for (const int64_t n : {37, 21, 4}) {
    for (int rank = 0; rank < 3; ++rank)
      bytes += (2 + 2 + 1 - planes[rank]) * base::EvenPart(n, 3, rank).size() * hidden * 4;
    bytes += (3 - 1) * n * hidden * 2;
  }
  EXPECT_EQ(RunReplica(*real, kCases[2], {1, 3}, 1, 1, {.one_meeting_rows = 0}).bytes_all_reduce,
            2 * layers * bytes);
}

// The paper's Table 2, where each rank computes n w / P: what it reads is O(n) with tp, by its
// computation more with every rank, and O(n / s) with sp, by its computation below a constant.
TEST(Replica, BytesOfARankAreThoseOfThePapersTable2) {
  const Case c{"mha", 8, 8, 256, 2500, DType::kBF16};
  const auto real = runtime::CreateRealRuntime();
  const auto sums = [&](int ranks) {
    return RunReplica(*real, c, {1, ranks}, 1, 1, {.one_meeting_rows = 0}).bytes_all_reduce;
  };
  const auto heads = [&](int ranks) {
    return RunReplica(*real, c, {ranks, 1}, 1, 1).bytes_all_to_all;
  };
  const int64_t sums_of_two = sums(2), heads_of_two = heads(2);
  for (const int ranks : {4, 8}) {
    // Over all ranks, so by a rank's computation: (t - 1) and (s - 1) / s times a constant.
    EXPECT_EQ(sums(ranks), (ranks - 1) * sums_of_two) << ranks;
    EXPECT_EQ(heads(ranks) * ranks, 2 * (ranks - 1) * heads_of_two) << ranks;
  }
}

// What the digests and logits of the tests above cannot miss: each fault is one that leaves every
// shape as it is.
TEST(Replica, PlantedFaultsAreSeen) {
  const auto real = runtime::CreateRealRuntime();
  struct Planted {
    const char* name;
    Fault fault;
    const Case& shape;
    Degrees layout;
    bool in_logits;  // else in the digests of the cache alone
  };
  const Planted planted[] = {
      {"SP group for TP group", Fault::kSpGroupForTp, kCases[0], {2, 2}, true},
      {"inverse head order", Fault::kInverseHeads, kCases[0], {4, 1}, false},
      {"the neighbour's KV head", Fault::kNeighbourKvHead, kCases[1], {4, 1}, true},
      {"logits shards in rank order", Fault::kShardsInRankOrder, kCases[0], {2, 2}, true}};
  for (const Planted& p : planted) {
    const Outcome one = RunReplica(*real, p.shape, {}, 1, 1),
                  right = RunReplica(*real, p.shape, p.layout, 1, 1),
                  wrong = RunReplica(*real, p.shape, p.layout, 1, 1, {.fault = p.fault});
    EXPECT_EQ(right.logits, one.logits) << p.name;
    EXPECT_EQ(right.digests, one.digests) << p.name;
    if (p.in_logits) {
      EXPECT_NE(wrong.logits, one.logits) << p.name;
    } else {
      EXPECT_NE(wrong.digests, one.digests) << p.name;
    }
  }
}

// The counters are the closed forms: 61 + 21 + 4 rows of 3 layers, of which all logits are wanted.
TEST(Replica, BytesBetweenRanksAreTheClosedForms) {
  const Case& c = kCases[0];
  const auto real = runtime::CreateRealRuntime();
  const auto run = [&](const Degrees& layout) { return RunReplica(*real, c, layout, 1, 1); };
  const int64_t vectors = (c.heads + 2 * c.kv_heads + c.heads) * 16 * 2 * 3;  // of a row
  const int64_t rows[] = {37, 21, 4};
  int64_t moved = 0, pads = 0, all = 0;
  for (const int64_t n : rows) {
    // Two ranks of equal heads: each takes the other's rows.
    moved += n * vectors / 2;
    pads += n % 2;
    all += n;
  }
  const Outcome two = run({2, 1});
  EXPECT_EQ(two.bytes_all_to_all, moved);
  EXPECT_EQ(two.pad_rows, pads);
  EXPECT_EQ(two.bytes_all_reduce, 0);
  // Three chunks of the vocabulary; each rank of the stage draws its share of the rows.
  const int64_t hidden = 96;
  const auto head_bytes = [&](const Degrees& layout, const std::vector<int64_t>& vocab_of_blocks) {
    int64_t bytes = (layout.ranks() - layout.tp) * all * hidden * 2;
    for (const int64_t n : rows) {
      for (int block = 0; block < layout.ranks(); ++block) {
        bytes += 4 * base::EvenPart(n, layout.ranks(), block).size() *
                 (c.vocab - vocab_of_blocks[static_cast<size_t>(block)]);
      }
    }
    return bytes;
  };
  EXPECT_EQ(two.bytes_head, head_bytes({2, 1}, {2048, 452}));
  EXPECT_EQ(run({1, 2}).bytes_head, head_bytes({1, 2}, {2048, 452}));
  EXPECT_EQ(run({2, 2}).bytes_head, head_bytes({2, 2}, {1024, 1024, 452, 0}));
  const Outcome tensor = run({1, 4});
  EXPECT_EQ(tensor.bytes_head, head_bytes({1, 4}, {1024, 1024, 452, 0}));
  EXPECT_EQ(tensor.bytes_all_reduce, 3 * 8 * 4 * (4 - 1) * all * hidden);
  EXPECT_EQ(tensor.bytes_all_to_all, 0);
}

// The same where rows and weights are cut together, where several ranks hold a KV head, and where
// ranks have unequally many heads.
TEST(Replica, BytesBetweenRanksOfOtherCutsAreTheClosedForms) {
  const auto real = runtime::CreateRealRuntime();
  const int64_t hidden = 96, layers = 3, head_dim = 16, steps[] = {37, 21, 4};
  // The sum over ranks of the rows that are not their own, for each of their heads.
  const auto moved = [&](int sp, const std::vector<int64_t>& heads, int64_t kv_heads) {
    int64_t values = 0;
    for (const int64_t rows : steps) {
      for (int index = 0; index < sp; ++index) {
        const int64_t others = rows - base::EvenPart(rows, sp, index).size();
        for (size_t block = static_cast<size_t>(index); block < heads.size();
             block += static_cast<size_t>(sp))
          values += others * (2 * heads[block] + 2 * kv_heads);
      }
    }
    return values * head_dim * layers;
  };
  const int64_t rows = 37 + 21 + 4;
  const Case& gqa = kCases[0];
  const Outcome both = RunReplica(*real, gqa, {2, 2}, 1, 1);
  EXPECT_EQ(both.bytes_all_to_all, 2 * moved(2, {2, 2, 2, 2}, 1));
  // Half of the rows and (8 + 2 x 4 + 8) heads' vectors of 2 bytes.
  EXPECT_EQ(both.bytes_all_to_all, rows * (8 + 8 + 8) * head_dim * 2 / 2 * layers);
  EXPECT_EQ(both.bytes_all_reduce, layers * 8 * 2 * (2 - 1) * rows * hidden);
  EXPECT_EQ(both.pad_rows, 1 + 1 + 0);
  const Outcome twice = RunReplica(*real, gqa, {2, 2}, 1, 1, {.one_meeting_rows = 0});
  EXPECT_EQ(twice.bytes_all_to_all, both.bytes_all_to_all);
  EXPECT_EQ(twice.bytes_all_reduce, layers * 2 * (2 - 1) * rows * hidden * (4 + 2));
  // Two KV heads on four ranks: R = 2. Values are fp32.
  const Outcome copies = RunReplica(*real, kCases[1], {4, 1}, 1, 1);
  EXPECT_EQ(copies.bytes_all_to_all, 4 * moved(4, {2, 2, 2, 2}, 1));
  EXPECT_EQ(copies.bytes_all_to_all, rows * 3 * (8 + 2 * 2 * 2 + 8) * head_dim * 4 / 4 * layers);
  // 14 heads are 8 leaves of 1 or 2, so that ranks have 3, 4, 3 and 4.
  const Case uneven{"uneven", 14, 2, 256, 1100, DType::kBF16};
  EXPECT_EQ(RunReplica(*real, uneven, {4, 1}, 1, 1).bytes_all_to_all,
            2 * moved(4, {3, 4, 3, 4}, 1));
}

TEST_P(ReplicaTest, StepsThatOverlapHaveTheBytesOfOne) {
  const Case& c = kCases[0];
  const auto real = runtime::CreateRealRuntime();
  const Outcome one = RunReplica(*real, c, {}, 1, 1);
  for (const Cut& cut : {Cut{{}, 2}, {{}, 3}, {{1, 2}, 2}, {{2, 1}, 2}}) {
    const std::string name = fmt::format("sp {} tp {} pp {}", cut.layout.sp, cut.layout.tp, cut.pp);
    uint64_t seed = 0;
    Run(
        [&](Runtime& runtime) {
          const Outcome many =
              RunReplica(runtime, c, cut.layout, cut.pp, seed++, {.overlap = true});
          EXPECT_EQ(many.digests, one.digests) << name;
          ASSERT_EQ(many.logits.size(), 1u);
          EXPECT_EQ(std::memcmp(many.logits[0].data(), one.logits.back().data(),
                                one.logits.back().size() * sizeof(float)),
                    0)
              << name;
        },
        5);
  }
}

TEST(Replica, RanksHoldTheirShareOfTheWeights) {
  const ModelConfig config = Config(kCases[0]);
  const uint64_t whole = PlanDecoder(config, DType::kBF16).bytes(kMaxPositions);
  const uint64_t embedding = tensor::BytesOf(DType::kBF16, config.vocab_size * config.hidden_size);
  const uint64_t half =
      PlanDecoder(config, DType::kBF16, {.tp = 2, .tp_rank = 1}).bytes(kMaxPositions);
  EXPECT_NEAR(static_cast<double>(half - embedding), static_cast<double>(whole - embedding) / 2,
              0.1 * static_cast<double>(whole));
  const uint64_t stage =
      PlanDecoder(config, DType::kBF16, {.pp = 3, .stage = 1}).bytes(kMaxPositions);
  EXPECT_LT(stage, (whole - 2 * embedding) / 3 + 64 * base::kKiB);  // neither embedding nor head
}

}  // namespace
}  // namespace forebay::model
