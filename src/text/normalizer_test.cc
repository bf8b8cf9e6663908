#include "text/normalizer.h"

#include <gtest/gtest.h>

namespace forebay::text {
namespace {

using StepKind = NormalizerStep::Kind;

// What normalizers.NFC of tokenizers 0.23.3 gives.
TEST(Normalizer, NfcIsTheReferences) {
  EXPECT_EQ(ToNfc(""), "");
  EXPECT_EQ(ToNfc("plain"), "plain");
  EXPECT_EQ(ToNfc("e\u0301"), "\u00E9");
  EXPECT_EQ(ToNfc("a\u0301\u0323"), "\u1EA1\u0301");
  EXPECT_EQ(ToNfc("\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(ToNfc("\u304B\u3099"), "\u304C");
  EXPECT_EQ(ToNfc("\u212B\u0340"), "\u00C5\u0300");
  EXPECT_EQ(ToNfc("\u0958"), "\u0915\u093C");
  EXPECT_EQ(ToNfc("\u0F73\u0F71"), "\u0F71\u0F71\u0F72");
  // A mark of Unicode 14 changes no places, a pair of Unicode 13 does not compose.
  EXPECT_EQ(ToNfc("x\u0898\u0334"), "x\u0898\u0334");
  EXPECT_EQ(ToNfc("\U00011935\U00011930"), "\U00011935\U00011930");
}

std::vector<std::pair<size_t, size_t>> Untrusted(const std::vector<NormalizerStep>& steps,
                                                 std::string_view text, ByteRanges ranges) {
  Normalizer(steps).Apply(text, &ranges);
  std::vector<std::pair<size_t, size_t>> out;
  for (const ByteRange& range : ranges) out.emplace_back(range.begin, range.end);
  return out;
}

TEST(Normalizer, UntrustedRangesMoveWithTheirText) {
  using Pairs = std::vector<std::pair<size_t, size_t>>;
  const NormalizerStep prepend{StepKind::kPrepend, "", "__"},
      replace{StepKind::kReplace, " ", "..."}, nfc{StepKind::kNfc, "", ""};
  EXPECT_EQ(Untrusted({}, "abc", {{1, 2}}), (Pairs{{1, 2}}));
  EXPECT_EQ(Untrusted({prepend}, "abc", {{0, 1}, {2, 3}}), (Pairs{{2, 3}, {4, 5}}));
  EXPECT_EQ(Untrusted({replace}, "a b c", {{1, 2}, {4, 5}}), (Pairs{{1, 4}, {8, 9}}));
  EXPECT_EQ(Untrusted({replace}, "a b c", {{0, 1}}), (Pairs{{0, 1}}));
  EXPECT_EQ(Untrusted({prepend, replace}, "a b", {{2, 3}}), (Pairs{{6, 7}}));
  // "e" and its accent become one character: both of it or none.
  EXPECT_EQ(Untrusted({nfc}, "ae\u0301z", {{2, 4}}), (Pairs{{1, 3}}));
  EXPECT_EQ(Untrusted({nfc}, "ae\u0301z", {{0, 1}, {4, 5}}), (Pairs{{0, 1}, {3, 4}}));
}

TEST(Normalizer, Ranges) {
  const ByteRanges ranges = {{2, 4}, {6, 8}};
  EXPECT_FALSE(Overlaps(ranges, 0, 2));
  EXPECT_TRUE(Overlaps(ranges, 0, 3));
  EXPECT_FALSE(Overlaps(ranges, 4, 6));
  EXPECT_TRUE(Overlaps(ranges, 3, 7));
  EXPECT_FALSE(Overlaps(ranges, 8, 9));
  const ByteRanges inside = Slice(ranges, 3, 7);
  ASSERT_EQ(inside.size(), 2u);
  EXPECT_EQ(inside[0].begin, 0u);
  EXPECT_EQ(inside[0].end, 1u);
  EXPECT_EQ(inside[1].begin, 3u);
  EXPECT_EQ(inside[1].end, 4u);
}

}  // namespace
}  // namespace forebay::text
