#include "engine/step_routing.h"

#include <algorithm>

namespace forebay::engine {
namespace {

model::NamedRows NameOf(const ChoiceRows& rows) {
  return {rows.sequence->request->request.line, rows.sequence->choice_index, rows.begin,
          rows.count()};
}

// The stage that has the layer.
const Rank& RankOf(std::span<const std::unique_ptr<Rank>> ranks, int64_t layer) {
  return **std::ranges::find_if(ranks, [layer](const auto& rank) {
    return rank->shard().layers.begin <= layer && layer < rank->shard().layers.end;
  });
}

}  // namespace

base::Status StepRouting::Tell(int64_t step, std::span<const ChoiceRows> rows) {
  if (!source_) return {};
  named_.clear();
  for (const ChoiceRows& each : rows) named_.push_back(NameOf(each));
  return source_->Tell(static_cast<uint64_t>(replica_), static_cast<uint64_t>(step), named_);
}

base::Status StepRouting::Record(std::span<const std::unique_ptr<Rank>> ranks, int flight,
                                 std::span<const ChoiceRows> rows) {
  if (!log_) return {};
  const model::RoutingShape& shape = log_->shape();
  const int64_t k = shape.experts_per_token;
  int64_t first = 0;  // row of the step
  for (const ChoiceRows& each : rows) {
    chosen_.clear();
    for (int64_t row = first; row < first + each.count(); ++row) {
      for (const uint32_t layer : shape.layers) {
        const Rank& rank = RankOf(ranks, layer);
        const int64_t own = layer - rank.shard().layers.begin;
        const uint16_t* const from = rank.chosen(flight) + (own * rank.chosen_rows() + row) * k;
        chosen_.insert(chosen_.end(), from, from + k);
      }
    }
    first += each.count();
    log_->Append(NameOf(each), chosen_);
  }
  return log_->Flush();
}

}  // namespace forebay::engine
