#include "price/park_price.h"

#include <algorithm>

#include "price/step_price.h"

namespace forebay::price {
namespace {

// Rows of prompts by which the price of one more is found, and the context by which that of one
// more token of it is.
constexpr int64_t kFewRows = 128, kManyRows = 512, kDepth = 4096;

}  // namespace

schedule::ParkPrices PriceParking(const layout::EngineOptions& options,
                                  const layout::LayoutPlan& plan) {
  if (plan.ranks[0].memory.tier_blocks.all() == 0) return {};
  if (options.tier.preempt == layout::Preempting::kPark) return {.row_seconds = 1};
  const cost::DeviceProfile& profile = plan.machine.profile;
  const StepPricer pricer(plan.config, plan.dtype, plan.layout.degrees(),
                          {.rows = kDepth, .logit_rows = kManyRows}, profile, options.pricing());
  const auto seconds = [&](int64_t rows, int64_t length) {
    return pricer.Prompts(rows, length).all().seconds;
  };
  // Rows of one long prompt see `kDepth` / 2 tokens on average.
  const double few = seconds(kFewRows, kFewRows), many = seconds(kManyRows, kFewRows),
               shallow = seconds(kDepth, kFewRows), deep = seconds(kDepth, kDepth);
  const auto bytes = static_cast<double>(plan.BlockBytesBelow(options.digest));
  const double copy = bytes / cost::HostRate(profile);
  // A step waits for what comes up, and a full staging for the disk.
  const double ranks = plan.machine.spec.count;
  const double file_down = copy + ranks * bytes / cost::DiskWriteRate(profile),
               file_up = copy + ranks * bytes / cost::DiskReadRate(profile);
  const bool in_memory = options.tier.in_memory();
  return {
      .preempted = options.tier.preempt != layout::Preempting::kRecompute,
      .row_seconds = std::max(0.0, many - few) / (kManyRows - kFewRows),
      .context_token_seconds = std::max(0.0, deep - shallow) / (kDepth * (kDepth - kFewRows) / 2.0),
      .block_seconds = in_memory ? copy : file_down,
      .block_up_seconds = in_memory ? copy : file_up,
      .far_block_seconds = file_down,
      .far_block_up_seconds = file_up,
      .move_seconds = profile.link_latency_s};
}

}  // namespace forebay::price
