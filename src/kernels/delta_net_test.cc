// Layers with state: every set has the bytes of ref, however a sequence is cut into steps.
#include "kernels/delta_net.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/rng.h"
#include "kernels/exp.h"
#include "kernels/kernel_set.h"
#include "kernels/kv_layout.h"
#include "kernels/testing/team.h"
#include "tensor/bf16.h"

namespace forebay::kernels {
namespace {

using testing::Team;

enum class Kind { kDeltaNet, kMamba2, kShortConv };

struct NetShape {
  int32_t key_heads, value_heads, key_dim, value_dim;
  Kind kind = Kind::kDeltaNet;
  int32_t taps = kConvTaps;
  int32_t normed_heads = 1;

  int32_t values() const { return value_heads * value_dim; }
  int32_t channels() const { return 2 * key_heads * key_dim + values(); }
  int64_t stride() const {
    return channels() + (kind == Kind::kShortConv ? 2 : 1) * values() + 2 * value_heads;
  }
};

// Two sequences of `kRows` rows each, in places 2 and 0; or, where their states move, each of the
// time in two others.
constexpr int32_t kRows = 21, kPlaces = 5;

std::vector<float> RandomFloats(base::Rng& rng, int64_t count, float scale) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = scale * static_cast<float>(rng.Uniform() * 2 - 1);
  return values;
}

struct NetData {
  NetShape shape;
  std::vector<float> inputs, conv, conv_bias, a_log, dt_bias, d, norm;

  explicit NetData(const NetShape& shape) : shape(shape) {
    base::Rng rng(5);
    inputs = RandomFloats(rng, 2 * kRows * shape.stride(), 2);
    conv = RandomFloats(rng, shape.channels() * shape.taps, 1);
    a_log = RandomFloats(rng, shape.value_heads, 1);
    dt_bias = RandomFloats(rng, shape.value_heads, 3);
    norm = RandomFloats(rng, shape.values(), 1);
    conv_bias = RandomFloats(rng, shape.channels(), 1);
    d = RandomFloats(rng, shape.value_heads, 1);
  }
};

struct NetResult {
  std::vector<tensor::BF16> out;  // of the sequences one after the other
  std::vector<uint64_t> digests;
  std::vector<float> states;

  bool operator==(const NetResult& other) const {
    return std::memcmp(out.data(), other.out.data(), out.size() * sizeof(out[0])) == 0 &&
           digests == other.digests &&
           std::memcmp(states.data(), other.states.data(), states.size() * sizeof(float)) == 0;
  }
};

// The rows in steps of `chunk` rows of each sequence. `moves`: the state is kept in another place
// on the way, within a step too.
NetResult RunNet(const NetData& data, const KernelSet& set, Team& team, int32_t chunk,
                 bool moves = false) {
  const NetShape& shape = data.shape;
  const int64_t tail = (shape.taps - 1) * shape.channels(),
                matrices = shape.value_heads * StateMatrixFloats(shape.key_dim, shape.value_dim),
                place = tail + matrices, columns = shape.value_heads * shape.value_dim;
  NetResult result;
  // A place holds what its last choice left.
  std::vector<float> states(static_cast<size_t>(kPlaces * place), NAN);
  std::fill_n(states.begin() + place, place, 0.0f);
  int32_t in_place[2] = {-1, -1};
  result.digests.assign(3 * kBlockTokens, 1);
  result.out.resize(static_cast<size_t>(2 * kRows * columns));
  uint32_t tables[3] = {2, 1, 0};
  for (int32_t begin = 0; begin < kRows; begin += chunk) {
    const int32_t count = std::min(chunk, kRows - begin);
    std::vector<float> x(static_cast<size_t>(2 * count * shape.stride()));
    std::vector<int32_t> positions, row_sequence;
    SequenceRows sequences[2];
    std::vector<StateRows> state_rows;
    for (int32_t s = 0; s < 2; ++s) {
      sequences[s] = {s * count, count, begin, s == 0 ? 2 : 0};
      const auto pass = [&](int32_t first, int32_t rows, int32_t to) {
        if (rows == 0) return;
        state_rows.push_back({first, rows, in_place[s], to});
        in_place[s] = to;
      };
      const int32_t kept = moves ? (count + 1) / 2 : 0;
      pass(s * count, kept, 3 + s);
      pass(s * count + kept, count - kept, sequences[s].table_row);
      std::copy_n(data.inputs.begin() + (s * kRows + begin) * shape.stride(),
                  count * shape.stride(), x.begin() + s * count * shape.stride());
      for (int32_t i = 0; i < count; ++i) {
        positions.push_back(begin + i);
        row_sequence.push_back(s);
      }
    }
    const StepBatch batch{.num_rows = 2 * count,
                          .num_sequences = 2,
                          .own_end = 2 * count,
                          .positions = positions.data(),
                          .row_sequence = row_sequence.data(),
                          .sequences = sequences,
                          .num_state_rows = static_cast<int32_t>(state_rows.size()),
                          .state_rows = state_rows.data(),
                          .block_tables = tables,
                          .table_stride = 1};
    const auto at = [&](int64_t floats) {
      return StateLayer{reinterpret_cast<std::byte*>(states.data() + floats),
                        place * static_cast<int64_t>(sizeof(float))};
    };
    const bool delta = shape.kind == Kind::kDeltaNet, mamba = shape.kind == Kind::kMamba2;
    const ShortConvArgs conv{.batch = batch,
                             .x = x.data(),
                             .stride = shape.stride(),
                             .channels = shape.channels(),
                             .taps = shape.taps,
                             .weight = data.conv.data(),
                             .bias = mamba ? data.conv_bias.data() : nullptr,
                             .gates_at = delta || mamba ? 0 : shape.channels(),
                             .silu = delta || mamba,
                             .tails = at(0)};
    const Mamba2Args mamba2{.batch = batch,
                            .x = x.data(),
                            .stride = shape.stride(),
                            .dt_at = static_cast<int32_t>(shape.channels() + columns),
                            .groups = shape.key_heads,
                            .heads = shape.value_heads,
                            .state_dim = shape.key_dim,
                            .head_dim = shape.value_dim,
                            .least_step = .25f,
                            .a_log = data.a_log.data(),
                            .dt_bias = data.dt_bias.data(),
                            .d = data.d.data(),
                            .matrices = at(tail)};
    const DeltaNetArgs net{
        .batch = batch,
        .x = x.data(),
        .stride = shape.stride(),
        .b_at = static_cast<int32_t>(shape.channels() + columns),
        .a_at = static_cast<int32_t>(shape.channels() + columns) + shape.value_heads,
        .key_heads = shape.key_heads,
        .value_heads = shape.value_heads,
        .key_dim = shape.key_dim,
        .value_dim = shape.value_dim,
        .a_log = data.a_log.data(),
        .dt_bias = data.dt_bias.data(),
        .matrices = at(tail)};
    std::vector<tensor::BF16> out(static_cast<size_t>(2 * count * columns));
    const GatedNormArgs norm{.batch = batch,
                             .x = x.data() + 2 * shape.key_heads * shape.key_dim,
                             .z = x.data() + shape.channels() + (delta || mamba ? 0 : columns),
                             .stride = shape.stride(),
                             .gate = delta   ? StateGate::kBehindNorm
                                     : mamba ? StateGate::kBeforeNorm
                                             : StateGate::kWithoutNorm,
                             .heads = shape.value_heads,
                             .dim = shape.value_dim,
                             .normed_heads = shape.normed_heads,
                             .weight = data.norm.data(),
                             .eps = 1e-6f,
                             .out = reinterpret_cast<std::byte*>(out.data()),
                             .digests = result.digests.data(),
                             .layer_index = 3,
                             .first_layer = true};
    team.Run([&](const device::WorkerContext& context) { set.short_conv(conv, context); });
    if (delta) team.Run([&](const device::WorkerContext& context) { set.delta_net(net, context); });
    if (mamba) team.Run([&](const device::WorkerContext& context) { set.mamba2(mamba2, context); });
    team.Run([&](const device::WorkerContext& context) { set.gated_norm(norm, context); });
    for (int32_t s = 0; s < 2; ++s) {
      std::copy_n(out.begin() + s * count * columns, count * columns,
                  result.out.begin() + (s * kRows + begin) * columns);
    }
  }
  // Nobody writes to place 1.
  for (const int32_t at : {in_place[0], in_place[1], 1}) {
    result.states.insert(result.states.end(), states.begin() + at * place,
                         states.begin() + (at + 1) * place);
  }
  return result;
}

TEST(DeltaNet, EverySetHasTheBytesOfRefHoweverItIsCut) {
  Team teams[] = {Team(1), Team(3)};
  for (const NetShape& shape :
       {NetShape{2, 4, 16, 16}, NetShape{1, 2, 128, 128}, NetShape{2, 2, 24, 40},
        NetShape{1, 1, 8, 100}, NetShape{2, 4, 16, 16, Kind::kMamba2, 4, 2},
        NetShape{1, 3, 32, 64, Kind::kMamba2, 4, 3}, NetShape{1, 2, 24, 100, Kind::kMamba2, 2, 1},
        NetShape{0, 4, 0, 16, Kind::kShortConv, 3}, NetShape{0, 3, 0, 36, Kind::kShortConv, 2}}) {
    const NetData data(shape);
    const NetResult expected = RunNet(data, RefKernels(), teams[0], kRows);
    for (const KernelSet* set : AvailableKernels()) {
      for (Team& team : teams) {
        for (const int32_t chunk : {1, 2, 5, kRows}) {
          for (const bool moves : {false, true}) {
            if (moves && chunk != 5) continue;
            EXPECT_TRUE(RunNet(data, *set, team, chunk, moves) == expected)
                << set->name << ", " << shape.value_dim << " columns, " << chunk
                << " rows a step, moves " << moves;
          }
        }
      }
    }
  }
}

// The rule as the paper writes it, in double.
TEST(DeltaNet, IsTheGatedDeltaRule) {
  const NetShape shape{1, 1, 8, 4};
  NetData data(shape);
  Team team(1);
  const NetResult result = RunNet(data, RefKernels(), team, kRows);
  std::vector<double> state(32, 0.0);
  for (int32_t t = 0; t < kRows; ++t) {
    std::vector<double> x(static_cast<size_t>(shape.channels()));
    for (int32_t c = 0; c < shape.channels(); ++c) {
      double sum = 0;
      for (int i = 0; i < kConvTaps; ++i) {
        const int32_t from = t - kConvTaps + 1 + i;
        if (from >= 0)
          sum += double{data.conv[static_cast<size_t>(i * shape.channels() + c)]} *
                 data.inputs[static_cast<size_t>(from * shape.stride() + c)];
      }
      x[static_cast<size_t>(c)] = sum / (1 + std::exp(-sum));
    }
    const float* const row = data.inputs.data() + t * shape.stride();
    const double beta = 1 / (1 + std::exp(-double{row[24]})),
                 decay = std::exp(-std::exp(double{data.a_log[0]}) *
                                  std::log1p(std::exp(double{row[25]} + data.dt_bias[0])));
    double q_norm = 1e-6, k_norm = 1e-6;
    for (size_t i = 0; i < 8; ++i) q_norm += x[i] * x[i], k_norm += x[8 + i] * x[8 + i];
    double out[4], squares = 0;
    for (size_t j = 0; j < 4; ++j) {
      double known = 0;
      out[j] = 0;
      for (size_t i = 0; i < 8; ++i)
        known += (state[i * 4 + j] *= decay) * x[8 + i] / std::sqrt(k_norm);
      for (size_t i = 0; i < 8; ++i) {
        state[i * 4 + j] += x[8 + i] / std::sqrt(k_norm) * beta * (x[16 + j] - known);
        out[j] += state[i * 4 + j] * x[i] / std::sqrt(q_norm) / std::sqrt(8.0);
      }
      squares += out[j] * out[j];
    }
    for (size_t j = 0; j < 4; ++j) {
      const double z = row[20 + j], y = out[j] / std::sqrt(squares / 4 + 1e-6) * data.norm[j] * z /
                                        (1 + std::exp(-z));
      EXPECT_NEAR(tensor::ToFloat(result.out[static_cast<size_t>(t) * 4 + j]), y,
                  std::abs(y) * 0x1p-7 + 1e-4);
    }
  }
}

// Mamba-2 as its paper writes it, in double: a step's input weighs its key, D passes it by, and a
// norm of both heads follows the gate.
TEST(Mamba2, IsTheSelectiveStateSpace) {
  const NetShape shape{1, 2, 8, 4, Kind::kMamba2, 4, 2};
  NetData data(shape);
  Team team(1);
  const NetResult result = RunNet(data, RefKernels(), team, kRows);
  std::vector<double> state(64, 0.0);
  for (int32_t t = 0; t < kRows; ++t) {
    std::vector<double> x(static_cast<size_t>(shape.channels()));
    for (int32_t c = 0; c < shape.channels(); ++c) {
      double sum = data.conv_bias[static_cast<size_t>(c)];
      for (int i = 0; i < 4; ++i) {
        const int32_t from = t - 3 + i;
        if (from >= 0)
          sum += double{data.conv[static_cast<size_t>(i * shape.channels() + c)]} *
                 data.inputs[static_cast<size_t>(from * shape.stride() + c)];
      }
      x[static_cast<size_t>(c)] = sum / (1 + std::exp(-sum));
    }
    const float* const row = data.inputs.data() + t * shape.stride();
    double gated[8], squares = 0;
    for (size_t head = 0; head < 2; ++head) {
      const double step =
          std::max(.25, std::log1p(std::exp(double{row[32 + head]} + data.dt_bias[head])));
      const double decay = std::exp(-std::exp(double{data.a_log[head]}) * step);
      for (size_t j = 0; j < 4; ++j) {
        const double input = x[16 + head * 4 + j];
        double out = data.d[head] * input;
        for (size_t i = 0; i < 8; ++i) {
          double& s = state[head * 32 + i * 4 + j];
          s = s * decay + x[8 + i] * step * input;
          out += s * x[i];
        }
        const double z = row[24 + head * 4 + j];
        gated[head * 4 + j] = out * z / (1 + std::exp(-z));
        squares += gated[head * 4 + j] * gated[head * 4 + j];
      }
    }
    for (size_t j = 0; j < 8; ++j) {
      const double y = gated[j] / std::sqrt(squares / 8 + 1e-6) * data.norm[j];
      EXPECT_NEAR(tensor::ToFloat(result.out[static_cast<size_t>(t) * 8 + j]), y,
                  std::abs(y) * 0x1p-7 + 1e-4);
    }
  }
}

TEST(Softplus, IsTheLogarithm) {
  for (float x = -30; x < 40; x += 0.37f) {
    const double y = std::log1p(std::exp(double{x}));
    EXPECT_NEAR(Softplus(x), y, y * 4e-7) << x;
  }
}

}  // namespace
}  // namespace forebay::kernels
