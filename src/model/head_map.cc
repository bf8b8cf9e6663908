#include "model/head_map.h"

#include "base/check.h"

namespace forebay::model {
namespace {

void Place(const HeadPlace& place, int rank, int32_t head, std::vector<int32_t>* heads) {
  if (place.rank != rank) return;
  if (static_cast<size_t>(place.slot) >= heads->size())
    heads->resize(static_cast<size_t>(place.slot) + 1, -1);
  FB_CHECK((*heads)[place.slot] < 0, "heads {} and {} share slot {} of rank {}",
           (*heads)[place.slot], head, place.slot, rank);
  (*heads)[place.slot] = head;
}

}  // namespace

HeadMap HeadMap::SingleRank(int64_t heads, int64_t kv_heads) {
  HeadMap map;
  for (int32_t head = 0; head < heads; ++head) map.query.push_back({0, head});
  for (int32_t head = 0; head < kv_heads; ++head) map.kv.push_back({{0, head}});
  return map;
}

std::vector<int32_t> HeadMap::QueryHeadsOf(int rank) const {
  std::vector<int32_t> heads;
  for (size_t head = 0; head < query.size(); ++head)
    Place(query[head], rank, static_cast<int32_t>(head), &heads);
  return heads;
}

std::vector<int32_t> HeadMap::KvHeadsOf(int rank) const {
  std::vector<int32_t> heads;
  for (size_t head = 0; head < kv.size(); ++head) {
    for (const HeadPlace& replica : kv[head])
      Place(replica, rank, static_cast<int32_t>(head), &heads);
  }
  return heads;
}

std::vector<int32_t> HeadMap::QueryHeadsOf(std::span<const int> ranks) const {
  std::vector<int32_t> all;
  for (const int rank : ranks) {
    const std::vector<int32_t> heads = QueryHeadsOf(rank);
    all.insert(all.end(), heads.begin(), heads.end());
  }
  return all;
}

std::vector<int32_t> HeadMap::KvHeadsOf(std::span<const int> ranks) const {
  std::vector<int32_t> all;
  for (const int rank : ranks) {
    for (const int32_t head : KvHeadsOf(rank)) {
      if (all.empty() || all.back() != head) all.push_back(head);
    }
  }
  return all;
}

}  // namespace forebay::model
