// Any bytes as a recorded routing: refused with a code, or rows that it says it knows are counted.
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "base/check.h"
#include "model/recorded_routing.h"

using namespace forebay;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto routing = model::ParseRecordedRouting(text, "fuzz.routing");
  if (!routing.ok()) {
    FB_CHECK(routing.status().code() == model::kRoutingInvalid, "another code");
    FB_CHECK(!routing.status().message().empty(), "an error without a message");
    return 0;
  }
  // The corpus is of the model of recorded_routing_test.cc.
  const model::NamedRows row{.line = 3, .choice = 1, .first_position = 0, .count = 1};
  if (!(*routing)->Tell(0, 7, std::span(&row, 1)).ok()) return 0;
  std::vector<int32_t> counts(65536);
  uint32_t layers = 0, first_layer = 0, chosen = 0;
  std::memcpy(&chosen, data + 12, sizeof(chosen));
  std::memcpy(&layers, data + 28, sizeof(layers));
  std::memcpy(&first_layer, data + 32, sizeof(first_layer));
  FB_CHECK(layers > 0, "a routing of no layer");
  (*routing)->Count({.step = 7, .layer = first_layer, .rows = 1, .experts_per_token = chosen},
                    counts);
  FB_CHECK(std::accumulate(counts.begin(), counts.end(), int64_t{0}) == chosen, "a row is lost");
  return 0;
}
