#include "engine/request_queue.h"

#include <gtest/gtest.h>

#include "runtime/real/real_runtime.h"

namespace forebay::engine {
namespace {

// Says that it has ended only once it was asked for more than it has, `late` times in vain.
class LateSource final : public RequestSource {
 public:
  LateSource(int64_t requests, int late) : left_(requests), late_(late) {}
  std::optional<Request> Next(bool) override {
    if (left_ == 0) {
      ended_ = --late_ < 0;
      return std::nullopt;
    }
    Request request{.id = --left_, .prompts = {{1, 2, 3}}};
    request.sampling.max_tokens = 1 + static_cast<int32_t>(left_);
    return request;
  }
  bool ended() const override { return ended_; }
  int64_t remaining() const override { return left_; }

 private:
  int64_t left_;
  int late_;
  bool ended_ = false;
};

class NoSink final : public ResultSink {
 public:
  bool Finish(RequestResult) override { return true; }
};

TEST(RequestQueue, EndsWhateverItHasReadAheadWhenItsSourceEnds) {
  const auto runtime = runtime::CreateRealRuntime();
  const auto policy = schedule::CreatePolicy("continuous");
  ASSERT_TRUE(policy.ok());
  for (const int64_t requests : {1, 3, 4, 5, 8, 9}) {
    for (const int late : {0, 2}) {
      LateSource source(requests, late);
      NoSink sink;
      RequestQueue queue(*runtime, 1, 4, source, sink);
      int64_t taken = 0;
      for (int asked = 0; asked < 40 && !queue.ended(0); ++asked)
        taken += queue.Next(0, asked, **policy, true).has_value();
      EXPECT_EQ(taken, requests);
      EXPECT_TRUE(queue.ended(0)) << requests << " requests, " << late;
    }
  }
}

}  // namespace
}  // namespace forebay::engine
