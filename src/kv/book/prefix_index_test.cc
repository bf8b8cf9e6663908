#include "kv/book/prefix_index.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/rng.h"
#include "kv/book/block_tokens.h"

namespace forebay::kv {
namespace {

TEST(PrefixKeyTest, DependsOnSaltParentTokensAndOrder) {
  const std::vector<int32_t> ab = {1, 2}, ba = {2, 1}, a = {1}, a0 = {1, 0}, zero = {0};
  std::set<std::pair<uint64_t, uint64_t>> seen;
  for (uint64_t salt : {0, 1}) {
    for (const auto& first : {ab, ba, a, a0, zero}) {
      const PrefixKey key = ChainKey(RootKey(salt), first);
      seen.insert({key.low, key.high});
      for (const auto& second : {ab, ba, a, a0, zero}) {
        const PrefixKey child = ChainKey(key, second);
        seen.insert({child.low, child.high});
      }
    }
  }
  EXPECT_EQ(seen.size(), 2u * (5 + 25));
}

// Keys with few distinct homes make long probes that wrap around the table's end.
TEST(PrefixIndexTest, AgreesWithAMapUnderRandomOperations) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    base::Rng rng(seed);
    PrefixIndex index(16);
    std::map<std::pair<uint64_t, uint64_t>, BlockId> model;
    for (int step = 0; step < 5000; ++step) {
      const PrefixKey key{60 + rng.Below(8), rng.Below(6)};
      const auto it = model.find({key.low, key.high});
      ASSERT_EQ(index.Find(key), it == model.end() ? -1 : it->second);
      if (it != model.end()) {
        index.Erase(key);
        model.erase(it);
      } else if (index.size() < 16) {
        const auto block = static_cast<BlockId>(rng.Below(1000));
        index.Insert(key, block);
        model[{key.low, key.high}] = block;
      }
      ASSERT_EQ(index.size(), static_cast<int32_t>(model.size()));
    }
    for (const auto& [key, block] : model) ASSERT_EQ(index.Find({key.first, key.second}), block);
  }
}

// Where generated rows differ from a prompt's, blocks with some are found by equal prompts alone.
TEST(PrefixKeyTest, BlocksBehindThePromptAreItsOwn) {
  std::vector<int32_t> tokens(5 * kBlockTokens, 3);
  const auto keys = [&](int64_t prompt_tokens) {
    std::vector<PrefixKey> found;
    ExtendKeys(tokens, {0, prompt_tokens}, 5, &found);
    return found;
  };
  std::vector<PrefixKey> plain;
  ExtendKeys(tokens, 0, 5, &plain);
  for (const int64_t prompt : {1, 31, 32, 33, 64, 100, 159}) {
    const std::vector<PrefixKey> own = keys(prompt);
    for (int64_t block = 0; block < 5; ++block) {
      EXPECT_EQ(own[block] == plain[block], (block + 1) * kBlockTokens <= prompt) << prompt;
      EXPECT_EQ(own[block] == keys(prompt + 1)[block], (block + 1) * kBlockTokens <= prompt);
    }
    EXPECT_EQ(own, keys(prompt));
  }
  EXPECT_EQ(keys(160), plain);
}

}  // namespace
}  // namespace forebay::kv
