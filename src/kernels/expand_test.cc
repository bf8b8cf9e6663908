#include "kernels/expand.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "kernels/testing/random_rows.h"
#include "tensor/bf16.h"

namespace forebay::kernels {
namespace {

struct Expander {
  const char* name;
  ExpandFunction function;
};

std::vector<Expander> Expanders() {
  std::vector<Expander> expanders{{"ref", &ref::Expand}};
  if (__builtin_cpu_supports("avx2")) expanders.push_back({"avx2", &avx2::Expand});
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
    expanders.push_back({"avx512f", &avx512f::Expand});
  if (__builtin_cpu_supports("avx512bf16"))
    expanders.push_back({"avx512bf16", &avx512bf16::Expand});
  return expanders;
}

class EveryForm : public ::testing::TestWithParam<int> {
 protected:
  TileForm form() const { return static_cast<TileForm>(GetParam()); }
};

using Memory =
    std::unique_ptr<std::byte[],
                    decltype([](std::byte* p) { ::operator delete[](p, std::align_val_t{64}); })>;
Memory NewMemory(int64_t bytes) {
  Memory memory(new (std::align_val_t{64}) std::byte[static_cast<size_t>(bytes)]);
  std::memset(memory.get(), 0xA5, static_cast<size_t>(bytes));
  return memory;
}

// The values [begin, end) of some rows through a tile, in pieces, against the rows themselves.
template <typename T>
void ExpectRows(TileForm form, int64_t begin, int64_t end) {
  constexpr int kRows = 50;  // unused columns too
  const testing::RandomRows rows(form, end + 7, kRows, static_cast<unsigned>(begin * 31 + end));
  const StoredRow* columns[kPanelColumns] = {};
  for (int row = 0; row < kRows; ++row) columns[row + 3] = &rows[static_cast<size_t>(row)];
  const Memory tile = NewMemory(PartsOf(form, begin, end).bytes);
  PackTile(form, begin, end, columns, tile.get());
  const int64_t pairs = (end - begin + 1) / 2;
  std::vector<float> values(static_cast<size_t>(end - begin));
  std::vector<T> expected(static_cast<size_t>(pairs * 2 * kPanelColumns));
  for (int row = 0; row < kRows; ++row) {
    ExpandRow(form, rows[static_cast<size_t>(row)], begin, end, values.data());
    for (int64_t i = 0; i < end - begin; ++i) {
      expected[static_cast<size_t>((i / 2 * kPanelColumns + row + 3) * 2 + i % 2)] =
          tensor::RoundTo<T>(values[static_cast<size_t>(i)]);
    }
  }
  const tensor::DType dtype = sizeof(T) == 4 ? tensor::DType::kF32 : tensor::DType::kBF16;
  const int64_t pair_elements = 2 * kPanelColumns;
  const Memory out = NewMemory(pairs * pair_elements * static_cast<int64_t>(sizeof(T)));
  for (const Expander& expander : Expanders()) {
    for (const int64_t piece : {pairs, int64_t{8}, int64_t{5}}) {
      for (int64_t pair = 0; pair < pairs; pair += piece) {
        const int64_t count = std::min(piece, pairs - pair);
        expander.function({form, dtype, tile.get(), begin, end, pair, count, out.get()});
        const T* const got = reinterpret_cast<const T*>(out.get());
        for (int64_t i = 0; i < count * pair_elements; ++i) {
          const int64_t column = i / 2 % kPanelColumns - 3;
          if (column < 0 || column >= kRows) continue;  // zeros of either sign
          if (begin + 2 * (pair + i / pair_elements) + i % 2 >= end) continue;
          const T& want = expected[static_cast<size_t>(pair * pair_elements + i)];
          ASSERT_EQ(std::memcmp(&want, got + i, sizeof(T)), 0)
              << expander.name << " " << TraitsOf(form).name << " [" << begin << ", " << end
              << "), pair " << pair + i / pair_elements << ", column " << column << ": "
              << tensor::ToFloat(got[i]) << ", not " << tensor::ToFloat(want);
        }
      }
    }
  }
}

// Leaves that begin and end in the middle of groups and blocks.
TEST_P(EveryForm, TilesHoldRows) {
  constexpr int64_t kBorders[][2] = {{0, 256},   {0, 512}, {256, 320}, {80, 160},
                                     {240, 288}, {24, 56}, {0, 8},     {2, 35}};
  for (const auto& [begin, end] : kBorders) {
    ExpectRows<tensor::BF16>(form(), begin, end);
    ExpectRows<float>(form(), begin, end);
  }
}

TEST_P(EveryForm, OneColumnIsTheColumn) {
  const int64_t k = 288;
  const testing::RandomRows rows(form(), k, 1, 5);
  const StoredRow* columns[kPanelColumns] = {};
  columns[37] = &rows[0];
  const Memory tile = NewMemory(PartsOf(form(), 0, k).bytes);
  PackTile(form(), 0, k, columns, tile.get());
  std::vector<float> got(static_cast<size_t>(k)), want(got);
  ref::ExpandColumn({form(), tensor::DType::kF32, tile.get(), 0, k, 0, k / 2,
                     reinterpret_cast<std::byte*>(got.data())},
                    37);
  ExpandRow(form(), rows[0], 0, k, want.data());
  EXPECT_EQ(std::memcmp(got.data(), want.data(), sizeof(float) * got.size()), 0);
}

INSTANTIATE_TEST_SUITE_P(Forms, EveryForm, ::testing::Range(1, kNumValueForms),
                         [](const auto& info) {
                           return std::string(TraitsOf(static_cast<TileForm>(info.param)).name);
                         });

TEST(TileForms, BytesOfAWeight) {
  const auto bytes = [](TileForm form) {
    return static_cast<double>(PartsOf(form, 0, 4096).bytes) / (4096 * kPanelColumns);
  };
  EXPECT_EQ(bytes(TileForm::kQ8_0), 1.0625);
  EXPECT_EQ(bytes(TileForm::kQ6_K), 0.8203125);
  EXPECT_EQ(bytes(TileForm::kQ5_K), 0.703125);
  EXPECT_EQ(bytes(TileForm::kQ4_K), 148.0 / 256);
  EXPECT_EQ(bytes(TileForm::kMXFP4), 0.53125);
}

}  // namespace
}  // namespace forebay::kernels
