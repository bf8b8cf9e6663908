#include "report/rank_charts.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "report/svg_chart.h"

namespace forebay::report {
namespace {

constexpr std::string_view kNames[kNumTimeKinds] = {
    "attention",     "grouped GEMM",     "dense GEMM",          "others",
    "communication", "slowed by copies", "waits for own pulls", "waits for other ranks",
    "for staging",   "for KV below"};

TimeKind KindOf(const device::OpProfile& entry) {
  switch (entry.kind) {
    case cost::OpKind::kAttention: return TimeKind::kAttention;
    case cost::OpKind::kExperts: return TimeKind::kGrouped;
    case cost::OpKind::kLinear: return TimeKind::kDense;
    case cost::OpKind::kCollective:
    case cost::OpKind::kCopy: return TimeKind::kCommunication;
    default: return TimeKind::kOthers;
  }
}

std::string NameOf(size_t rank, const engine::RankReport& report) {
  return report.role == GroupRole::kAll ? fmt::format("rank {}", rank)
                                        : fmt::format("{}, {}", rank, Name(report.role));
}

}  // namespace

TimeByKind TimesOf(const engine::RankReport& rank) {
  TimeByKind times{};
  if (rank.profile.empty()) return times;
  const auto of = [&](TimeKind kind) -> double& { return times[static_cast<size_t>(kind)]; };
  for (const device::OpProfile& entry : rank.profile) of(KindOf(entry)) += entry.seconds;
  const double alone = std::accumulate(times.begin(), times.end(), 0.0);
  of(TimeKind::kSlowed) = std::max(0.0, rank.time.busy - alone);
  of(TimeKind::kCommunication) += rank.time.moved;
  std::ranges::copy(rank.time.waits.by_cause, &of(TimeKind::kPull));
  return times;
}

std::string DrawRankTimes(std::span<const engine::RankReport> ranks) {
  std::vector<SvgStack> stacks;
  double sum = 0;
  for (const engine::RankReport& rank : ranks) {
    const TimeByKind times = TimesOf(rank);
    const double all = std::accumulate(times.begin(), times.end(), 0.0);
    stacks.push_back(
        {NameOf(stacks.size(), rank), {times.begin(), times.end()}, fmt::format("{:.3g} s", all)});
    sum += all;
  }
  return sum > 0 ? DrawStacks(stacks) : "";
}

std::string RankTimesLegend() {
  std::string legend = "of the compute stream; ";
  for (size_t kind = 0; kind < kNumTimeKinds; ++kind)
    legend += fmt::format("<i class=\"k{}\"></i>{} ", kind, kNames[kind]);
  return legend;
}

ExpertLoad ExpertLoadOf(std::span<const engine::RankReport> ranks) {
  ExpertLoad load;
  for (const engine::RankReport& rank : ranks) {
    load.by_mean.resize(std::max(load.by_mean.size(), rank.expert_rows.size()));
    for (size_t i = 0; i < rank.expert_rows.size(); ++i)
      load.by_mean[i] += static_cast<double>(rank.expert_rows[i]);
  }
  const double rows = std::accumulate(load.by_mean.begin(), load.by_mean.end(), 0.0);
  if (rows <= 0) return {};
  for (double& expert : load.by_mean) expert *= static_cast<double>(load.by_mean.size()) / rows;
  load.busiest = std::ranges::max(load.by_mean);
  return load;
}

std::string DrawLinkUse(std::span<const engine::RankReport> ranks) {
  uint64_t most = 0;
  std::string table = "<table class=\"pairs\"><tr><td></td>";
  for (size_t from = 0; from < ranks.size(); ++from) table += fmt::format("<td>{}</td>", from);
  table += "</tr>";
  for (size_t to = 0; to < ranks.size(); ++to) {
    table += fmt::format("<tr><td>{}</td>", to);
    for (size_t from = 0; from < ranks.size(); ++from) {
      const uint64_t bytes = ranks[to].bytes_from[from];
      most = std::max(most, bytes);
      table += bytes > 0 ? fmt::format("<td>{}B</td>", ShortNumber(static_cast<double>(bytes)))
                         : "<td></td>";
    }
    table += "</tr>";
  }
  return most > 0 ? table + "</table>" : "";
}

}  // namespace forebay::report
