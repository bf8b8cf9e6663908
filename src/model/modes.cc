#include "model/modes.h"

namespace forebay::model {

using base::EvenPart;
using base::Part;

int RankOfBlock(const Degrees& layout, int block) {
  return layout.SpIndex(block) * layout.tp + layout.TpIndex(block);
}

int BlockOfRank(const Degrees& layout, int rank) {
  return rank % layout.tp * layout.sp + rank / layout.tp;
}

Part PartOfBlocks(int64_t total, const Degrees& layout, const Part& blocks) {
  const auto begin_of = [&](int64_t block) {
    if (block == layout.ranks()) return total;
    const Part run = EvenPart(total, layout.tp, block / layout.sp);
    return run.begin + EvenPart(run.size(), layout.sp, block % layout.sp).begin;
  };
  return {begin_of(blocks.begin), begin_of(blocks.end)};
}

Part BlocksOf(const Degrees& mode, int index) {
  return {int64_t{index} * mode.sp, (int64_t{index} + 1) * mode.sp};
}

std::vector<int> SpRanks(const Degrees& layout, const Degrees& mode, int block) {
  std::vector<int> ranks;
  for (int i = 0; i < mode.sp; ++i)
    ranks.push_back(RankOfBlock(layout, mode.TpIndex(block) * mode.sp + i));
  return ranks;
}

std::vector<int> TpRanks(const Degrees& layout, const Degrees& mode, int block) {
  std::vector<int> ranks;
  for (int j = 0; j < mode.tp; ++j)
    ranks.push_back(RankOfBlock(layout, j * mode.sp + mode.SpIndex(block)));
  return ranks;
}

}  // namespace forebay::model
