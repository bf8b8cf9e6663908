// Counts allocations: a step's planning and book-keeping makes none once its vectors have grown.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "kv/book/block_book.h"
#include "schedule/policy.h"

namespace {
int64_t allocations = 0;
}

// Not inlined: GCC would see new's malloc and delete's free apart and call them mismatched.
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size);
}
[[gnu::noinline]] void* operator new(size_t size) {
  if (void* memory = operator new(size, std::nothrow)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace forebay::schedule {
namespace {

class AllocationTest : public ::testing::TestWithParam<const char*> {};

TEST_P(AllocationTest, NoneInSteadyState) {
  constexpr int kSequences = 8;
  kv::BlockBook book({.num_blocks = 40, .max_sequences = kSequences, .max_blocks_per_sequence = 8});
  const auto policy = CreatePolicy(GetParam());
  std::vector<int32_t> tokens(200);
  StepView view;
  StepPlan plan;
  int64_t before = 0;
  for (int32_t round = 0; round < 100; ++round) {
    if (round == 50) before = allocations;
    for (int32_t& token : tokens) token = round % 4;
    view.running.clear();
    view.waiting.clear();
    for (kv::SequenceId i = 0; i < kSequences; ++i) {
      const kv::SequenceId sequence = book.Open(tokens, 0, 100);
      book.Reserve(sequence, 120);
      view.running.push_back(
          {.known_tokens = 121, .computed_tokens = 120, .reserved_blocks = 4, .decoding = true});
      view.waiting.push_back({.known_tokens = 10, .remaining_output = 9});
    }
    view.available_blocks = 20;
    view.limits = {.total_blocks = 40};
    (*policy)->Plan(view, &plan);
    for (kv::SequenceId sequence = 0; sequence < kSequences; ++sequence) {
      book.SetComputed(sequence, 120);
      book.Commit(sequence, std::span(tokens).subspan(book.committed(sequence),
                                                      120 - book.committed(sequence)));
      book.Truncate(sequence, 70);
      book.Close(sequence);
    }
  }
  EXPECT_GT(before, 0);
  EXPECT_EQ(allocations, before);
  EXPECT_GT(book.stats().evictions, 0);
}

INSTANTIATE_TEST_SUITE_P(Policies, AllocationTest, ::testing::Values("continuous", "interactive"));

}  // namespace
}  // namespace forebay::schedule
