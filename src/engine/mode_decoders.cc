#include "engine/mode_decoders.h"

#include <algorithm>

#include "base/check.h"

namespace forebay::engine {

void ModeDecoders::SetOwn(const model::Degrees& degrees) {
  modes_.front().degrees = degrees;
  own().exchanged = modes_.front().exchanged.get();
}

model::Decoder& ModeDecoders::Add(const model::Degrees& degrees) {
  Mode& mode = modes_.emplace_back(Mode{degrees, own()});
  mode.decoder.exchanged = mode.exchanged.get();
  return mode.decoder;
}

base::Status ModeDecoders::Connect(const Membership& group, const RankRegions& regions) {
  const auto link = [&](const fabric::Communicator& ranks, layout::RegionId staging, int channel,
                        fabric::Exchange** exchange) -> base::Status {
    if (ranks.ranks.size() < 2) return {};
    FB_ASSIGN_OR_RETURN(fabric::Exchange made,
                        fabric::Exchange::Create(*group.fabric, ranks, regions[staging], channel));
    *exchange = &exchanges_.emplace_back(std::move(made));
    return {};
  };
  model::ReplicaLinks common{.pace = group.pace};
  if (group.cut.sp > 1) {
    FB_RETURN_IF_ERROR(
        link(group.stage, layout::RegionId::kHeadStaging, fabric::kHeadChannel, &common.stage));
  }
  FB_RETURN_IF_ERROR(ConnectStages(group, &common));
  for (size_t i = 0; i < modes_.size(); ++i) {
    const Membership::Mode& ranks = group.modes[i];
    const int further = fabric::kFirstModeChannel + 2 * (static_cast<int>(i) - 1);
    model::ReplicaLinks& links = modes_[i].decoder.links;
    links = common;
    links.all_reduce = ranks.all_reduce;
    FB_RETURN_IF_ERROR(link(ranks.tensor, layout::RegionId::kTensorStaging,
                            i == 0 ? fabric::kTensorChannel : further, &links.tensor));
    FB_RETURN_IF_ERROR(link(ranks.sequence, layout::RegionId::kSequenceStaging,
                            i == 0 ? fabric::kSequenceChannel : further + 1, &links.sequence));
  }
  return base::Status::Ok();
}

base::Status ModeDecoders::ConnectStages(const Membership& group, model::ReplicaLinks* links) {
  const model::ReplicaCut& cut = group.cut;
  const auto handover = [&](int from, int to) {
    const std::vector<int>& stages = group.stages.ranks;
    return fabric::Handover::Create(*group.fabric, stages[from], stages[to],
                                    layout::NameOf(layout::RegionId::kStageStaging));
  };
  if (!cut.first_stage()) {
    FB_ASSIGN_OR_RETURN(from_last_stage_, handover(cut.stage - 1, cut.stage));
    links->last_stage = &*from_last_stage_;
  }
  if (!cut.last_stage()) {
    FB_ASSIGN_OR_RETURN(to_next_stage_, handover(cut.stage, cut.stage + 1));
    links->next_stage = &*to_next_stage_;
  }
  return base::Status::Ok();
}

const model::Decoder& ModeDecoders::Begin(const StepMode& mode, uint16_t* chosen) {
  const model::Degrees degrees{mode.sp, mode.tp};
  const auto found = std::ranges::find(modes_, degrees, &Mode::degrees);
  FB_CHECK(found != modes_.end(), "a step in a mode of sp={}, tp={}", mode.sp, mode.tp);
  model::Decoder& decoder = found->decoder;
  decoder.step = begun_++;
  decoder.chosen = chosen;
  ++steps_[static_cast<size_t>(mode.ffn)];
  if (last_ != nullptr && last_ != &decoder) {
    // All that was read in the last one is read by now.
    decoder.links.stage->Meet(*decoder.stream);
    ++switches_;
  }
  last_ = &decoder;
  return decoder;
}

}  // namespace forebay::engine
