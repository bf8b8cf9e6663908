// Requests that one replica begins and another ends: the same answers as one rank gives.
#include "testing/layout_fixture.h"

namespace forebay {
namespace {

// Requests of very unequal lengths that nobody knows: some rank runs out of work while another has
// much.
std::vector<Request> MakeTail() {
  std::vector<Request> requests = MakeRequests();
  for (Request& request : requests) {
    request.sampling.max_tokens = -1;
    request.ends_after = request.line % 8 == 0 ? 60 : 1 + static_cast<int32_t>(request.line % 3);
  }
  return requests;
}

class StealLayoutTest : public LayoutTest {};

// Whoever ends a request gives the same answer, whether its KV came along or is computed again.
TEST_P(StealLayoutTest, StolenRequestsGiveTheSameDigests) {
  requests_ = MakeTail();
  const Answers expected = Run("cpu", "");
  int64_t requests = 0, bytes = 0;
  const std::pair<const char*, const char*> layouts[] = {{"2xcpu", "dp=2"},
                                                         {"4xcpu", "dp=4"},
                                                         {"4xcpu", "groups=2,dp=2"},
                                                         {"4xcpu", "dp=2,tp=2"},
                                                         {"4xcpu", "dp=2,pp=2"},
                                                         {"3xcpu", "dp=3,weights=by_layer"},
                                                         {"2xcpu", "dp=2,weights=striped"}};
  for (const schedule::WantedMode& mode : {schedule::WantedMode(kPull), {kShip}, {}}) {
    for (const auto steal : {layout::Stealing::kAlways, layout::Stealing::kAuto}) {
      for (const auto& [devices, layout] : layouts) {
        if (mode != kPull && std::string(layout).find("weights") == std::string::npos) continue;
        options_.ship.mode = mode;
        options_.steal = steal;
        EXPECT_EQ(Run(devices, layout), expected)
            << layout << " " << schedule::Name(mode) << " " << static_cast<int>(steal);
        requests += stats_.requests_stolen;
        bytes += stats_.kv_bytes_stolen;
        EXPECT_EQ(stats_.mode_counters["requests_stolen"], stats_.requests_stolen);
      }
    }
  }
  EXPECT_GT(requests, 0);
  EXPECT_GT(bytes, 0);
  options_.ship.mode = kPull;
  options_.steal = layout::Stealing::kOff;
  EXPECT_EQ(Run("4xcpu", "dp=4"), expected);
  EXPECT_EQ(stats_.requests_stolen, 0);
}

// One replica has requests for 11, 90 and 110 tokens, at most two at once; the other has none and
// gets the first two, whose places are taken until it has pulled them.
TEST_P(StealLayoutTest, WhatIsLentKeepsItsPlace) {
  requests_.resize(3);
  const int lengths[] = {11, 90, 110};
  for (size_t i = 0; i < requests_.size(); ++i) {
    requests_[i].prompts = {{1, 2, static_cast<int32_t>(i)}};
    requests_[i].n = 1;
    requests_[i].sampling.max_tokens = lengths[i];
  }
  options_.limits.max_num_seqs = 2;
  const Answers expected = Run("cpu", "");
  options_.steal = layout::Stealing::kAlways;
  hand_out_.replicas = {{{0, 0}, {0, 1}, {0, 2}}, {}};
  int64_t stolen = 0;
  for (const auto& layout : {"dp=2", "dp=2,weights=by_layer"}) {
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(Run("2xcpu", layout), expected) << layout;
      stolen += stats_.requests_stolen;
    }
  }
  EXPECT_GT(stolen, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, StealLayoutTest,
                         testing::Values("llama3-gqa", "qwen3", "qwen3.5"));

// What a window let go of is not lent, and nobody finds it where it did not come to: all prompts
// are the same, so that those which wait look for it.
class WindowedLayoutTest : public LayoutTest {};
TEST_P(WindowedLayoutTest, StolenRequestsGiveTheSameDigests) {
  requests_.resize(6);
  const int lengths[] = {50, 60, 58, 62, 30, 30};
  for (size_t i = 0; i < requests_.size(); ++i) {
    requests_[i].prompts = {std::vector<int32_t>(64, 3)};
    requests_[i].n = 1;
    requests_[i].sampling.max_tokens = lengths[i];
  }
  options_.limits.max_num_seqs = 4;
  for (const bool mixed : {false, true}) {
    if (mixed) files_.config.sliding_window = {0, 32};
    hand_out_.replicas.clear();
    options_.steal = layout::Stealing::kOff;
    const Answers expected = Run("cpu", "");
    options_.steal = layout::Stealing::kAlways;
    hand_out_.replicas = {{{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}}, {}};
    int64_t bytes = 0;
    for (const auto& [devices, layout] :
         {std::pair("2xcpu", "dp=2"), std::pair("4xcpu", "dp=2,tp=2"),
          std::pair("2xcpu", "dp=2,weights=by_layer")}) {
      for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(Run(devices, layout), expected) << layout;
        bytes += stats_.kv_bytes_stolen;
      }
    }
    EXPECT_GT(bytes, 0);
  }
}
INSTANTIATE_TEST_SUITE_P(Models, WindowedLayoutTest, testing::Values("mistral"));

}  // namespace
}  // namespace forebay
