#include "engine/counters.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string_view>
#include <variant>

#include "forebay/counter_names.h"
#include "schedule/step_mode.h"

namespace forebay::engine {
namespace {

using kernels::RoutingCounters;
using kernels::ServedCounters;
using model::ExchangeCounters;
using share::ShipCounters;

struct JobSource {
  const CounterSources& job;
  const EngineStats& sum;  // over replicas
};
struct ReplicaSource {
  const Replica& replica;
  const Replica::Published& published;
};
struct RankSource {
  const Rank& rank;
  const EngineStats& replica;
};

// Nothing: the source has no such counter, and where no source has it, nor has the job.
using Count = std::optional<int64_t>;
// Whose counter it is, and how it is read; the job's is the sum over all of them.
using Reader = std::variant<Count (*)(const JobSource&), Count (*)(const ReplicaSource&),
                            Count (*)(const RankSource&)>;
struct Row {
  std::string_view name;
  Reader read;
};

// Counters whose names hold what the layout or the machine says.
using Add = std::function<void(std::string_view name, int64_t count)>;
struct Family {
  std::string_view name;
  std::variant<void (*)(const JobSource&, const Add&), void (*)(const RankSource&, const Add&)>
      read;
};

int64_t Micros(double seconds) { return std::llround(seconds * 1e6); }
Count If(bool has, int64_t count) { return has ? Count(count) : std::nullopt; }
Count IfAny(int64_t count) { return If(count > 0, count); }

// ---- of the job

template <int64_t EngineStats::*kMember>
Count OfJob(const JobSource& of) {
  return of.sum.*kMember;
}

template <int64_t EngineStats::*kMember>
Count OfSeveralReplicas(const JobSource& of) {
  return If(of.job.replicas.size() > 1, of.sum.*kMember);
}

template <int64_t EngineStats::*kMember>
Count OfRoles(const JobSource& of) {
  return If(of.job.replicas[0]->role() != GroupRole::kAll, of.sum.*kMember);
}

// Percent of the time that was foreseen.
template <double cost::PriceOrigins::*kMember>
Count Priced(const JobSource& of) {
  const cost::PriceOrigins& origins = of.job.expected.origins;
  if (origins.all() <= 0) return std::nullopt;
  return std::llround(100 * origins.*kMember / origins.all());
}

Count PoolLayers(const JobSource& of) {
  return If(of.job.replicas[0]->ranks()[0]->pool() != nullptr, of.job.pool_layers);
}

Count BlocksStreamed(const JobSource& of) {
  int64_t streams = of.job.forced_offload, blocks = 0;
  for (const Replica* replica : of.job.replicas) {
    const Replica::Published published = replica->published();
    streams += published.streaming.places;
    blocks += published.tier.block_steps;
  }
  return If(streams > 0, blocks);
}

Count OffloadUnused(const JobSource& of) {
  return If(of.job.forced_offload, BlocksStreamed(of) == 0);
}

void StepsByKernels(const JobSource& of, const Add& add) {
  add("steps." + of.job.isa, of.sum.steps);
}

// ---- of a replica: what went below the device and came back

template <int64_t ParkCounters::*kMember>
Count Parked(const ReplicaSource& of) {
  return If(of.replica.ranks()[0]->tier() != nullptr, of.published.park.*kMember);
}

template <int64_t kv::TierBookStats::*kMember>
Count BookedBelow(const ReplicaSource& of) {
  return If(of.replica.ranks()[0]->tier() != nullptr, of.published.park.tier.*kMember);
}

template <uint64_t RankSet::TierTraffic::*kMember>
Count Moved(const ReplicaSource& of) {
  return If(of.replica.ranks()[0]->tier() != nullptr,
            static_cast<int64_t>(of.published.tier.*kMember));
}

template <Count (*kCount)(const ReplicaSource&)>
Count InFile(const ReplicaSource& of) {
  return of.published.tier.in_file ? kCount(of) : std::nullopt;
}

template <Count (*kCount)(const ReplicaSource&)>
Count InBoth(const ReplicaSource& of) {
  return of.published.tier.in_both ? kCount(of) : std::nullopt;
}

template <auto kMember>
Count Streamed(const ReplicaSource& of) {
  return If(of.published.streaming.places > 0, of.published.streaming.*kMember);
}

template <Count (*kCount)(const ReplicaSource&)>
Count WhereStreamed(const ReplicaSource& of) {
  return of.published.streaming.places > 0 ? kCount(of) : std::nullopt;
}

Count KvCopyCore(const ReplicaSource& of) {
  return If(of.replica.ranks()[0]->tier() != nullptr, Micros(of.published.tier.core_seconds));
}

// ---- of a rank that meets others of its replica in a step

template <std::atomic<int64_t> ExchangeCounters::*kMember>
Count Exchanged(const RankSource& of) {
  Count sum;
  for (const ModeDecoders::Mode& mode : of.rank.modes().all()) {
    if (mode.exchanged->meetings > 0) sum = sum.value_or(0) + (*mode.exchanged).*kMember;
  }
  return sum;
}

Count ExchangedExpertRows(const RankSource& of) {
  return IfAny(Exchanged<&ExchangeCounters::bytes_expert_rows>(of).value_or(0));
}

Count ExchangedAllToAll(const RankSource& of) {
  return of.rank.cut().sp > 1 ? Exchanged<&ExchangeCounters::bytes_all_to_all>(of) : std::nullopt;
}

// Where ranks cut rows, one of them tells of the replica's steps.
bool TellsOfSteps(const Rank& rank) {
  return rank.cut().sp > 1 && rank.cut().first_stage() && rank.cut().block() == 0;
}

Count PadRows(const RankSource& of) {
  int64_t rows = 0;
  for (const ModeDecoders::Mode& mode : of.rank.modes().all()) rows += mode.exchanged->pad_rows;
  return If(TellsOfSteps(of.rank), rows);
}

Count ShiftSwitches(const RankSource& of) {
  return If(TellsOfSteps(of.rank), of.rank.modes().switches());
}

void StepsByDegrees(const RankSource& of, const Add& add) {
  if (!TellsOfSteps(of.rank)) return;
  for (const ModeDecoders::Mode& mode : of.rank.modes().all())
    add(schedule::DegreesCounter(mode.degrees), mode.exchanged->steps);
}

// ---- of a rank on a GPU

template <int64_t device::LaunchCounts::*kMember>
Count Launched(const RankSource& of) {
  const std::optional<device::LaunchCounts> launches = of.rank.launches();
  return launches ? Count((*launches).*kMember) : std::nullopt;
}

// ---- of a rank with experts

template <std::atomic<int64_t> RoutingCounters::*kMember>
Count Routed(const RankSource& of) {
  const RoutingCounters* const routed = of.rank.routed();
  return routed ? Count(routed->*kMember) : std::nullopt;
}

// ---- of a rank: what held its compute stream, where others could

bool Waits(const Rank& rank) {
  return rank.pool() != nullptr || rank.window() != nullptr ||
         rank.compute_time().waits.total() != 0;
}

Count Waited(const RankSource& of) {
  return If(Waits(of.rank), Micros(of.rank.compute_time().waits.total()));
}

void WaitedByCause(const RankSource& of, const Add& add) {
  if (!Waits(of.rank)) return;
  const WaitSeconds waits = of.rank.compute_time().waits;
  for (int i = 0; i < kNumWaitCauses; ++i) {
    const auto cause = static_cast<WaitCause>(i);
    add(fmt::format("waited_{}_us", Name(cause)), Micros(waits[cause]));
  }
}

// ---- of a rank that shares weights

template <auto kMember>
Count OfPool(const RankSource& of) {
  const share::WeightPool* const pool = of.rank.pool();
  return pool ? Count(static_cast<int64_t>((pool->*kMember)())) : std::nullopt;
}

template <auto kMember>
Count OfPoolIfAny(const RankSource& of) {
  return IfAny(OfPool<kMember>(of).value_or(0));
}

Count BytesPulled(const RankSource& of) {
  const share::WeightPool* const pool = of.rank.pool();
  if (pool == nullptr) return std::nullopt;
  return static_cast<int64_t>(of.rank.bytes_pulled()) + pool->bytes_wanted();
}

Count BytesMerged(const RankSource& of) {
  const share::WeightPool* const pool = of.rank.pool();
  return pool && pool->pools_experts() ? OfPool<&share::WeightPool::bytes_merged>(of)
                                       : std::nullopt;
}

Count CopyCore(const RankSource& of) {
  return If(of.rank.pool() != nullptr, Micros(of.rank.copy_time().core));
}

void StepsByMode(const RankSource& of, const Add& add) {
  const share::WeightPool* const pool = of.rank.pool();
  if (pool == nullptr) return;
  for (const StepMode& mode : schedule::AllModes()) {
    const bool pulls = mode.ffn == FfnMode::kPull;
    // A step that gathers brings all that a rank lacks, too.
    const int64_t steps = pulls ? pool->steps() : of.rank.modes().steps(mode.ffn);
    if (steps > 0 || pulls || (of.rank.ship() && of.rank.ship()->mode().ffn == mode.ffn))
      add(schedule::StepsCounter(mode), steps);
  }
}

const ShipCounters* ShippedBy(const Rank& rank) {
  return rank.pool() && rank.ship() ? &rank.ship()->counters() : nullptr;
}

template <std::atomic<int64_t> ShipCounters::*kMember>
Count Shipped(const RankSource& of) {
  const ShipCounters* const shipped = ShippedBy(of.rank);
  return shipped ? Count(shipped->*kMember) : std::nullopt;
}

Count BytesShipped(const RankSource& of) {
  const ShipCounters* const shipped = ShippedBy(of.rank);
  return shipped ? Count(shipped->bytes + shipped->experts.bytes) : std::nullopt;
}

template <std::atomic<int64_t> ServedCounters::*kMember>
Count Served(const RankSource& of) {
  const ShipCounters* const shipped = ShippedBy(of.rank);
  if (shipped == nullptr) return std::nullopt;
  // The rank that gathers rows counts them, and so does the rank that gets them back.
  const ServedCounters& experts = shipped->experts;
  return If(experts.rows_sent > 0 || experts.rows_returned > 0, experts.*kMember);
}

// ---- of a rank of a pipeline's stage. Idle: it had no rows, or waited for other ranks.

void AddStageTime(const RankSource& of, std::string_view what, double seconds, const Add& add) {
  if (of.rank.cut().pp > 1)
    add(fmt::format("stage{}_{}_ms", of.rank.cut().stage, what), std::lround(1e3 * seconds));
}

void StageBusy(const RankSource& of, const Add& add) {
  AddStageTime(of, "busy", of.rank.compute_time().busy, add);
}

void StageIdle(const RankSource& of, const Add& add) {
  const double idle = of.replica.step_seconds - of.rank.compute_time().busy;
  AddStageTime(of, "idle", std::max(0.0, idle), add);
}

using Book = kv::TierBookStats;
using Park = ParkCounters;
using Pool = share::WeightPool;
using Traffic = RankSet::TierTraffic;

const Row kRows[] = {
    {"rows_decode", OfJob<&EngineStats::decode_rows>},
    {"rows_prefill", OfJob<&EngineStats::prefill_rows>},
    {"rows_interactive", [](const JobSource& of) { return IfAny(of.sum.interactive_rows); }},
    {"requests_stolen", OfSeveralReplicas<&EngineStats::requests_stolen>},
    {"kv_bytes_stolen", OfSeveralReplicas<&EngineStats::kv_bytes_stolen>},
    {"requests_handed_over", OfRoles<&EngineStats::requests_handed_over>},
    {"kv_bytes_handed_over", OfRoles<&EngineStats::kv_bytes_handed_over>},
    {"requests_returned", [](const JobSource& of) { return IfAny(of.sum.requests_returned); }},
    {"pool_layers", PoolLayers},
    {counter_names::kExpectedMs, [](const JobSource& of) { return IfAny(of.job.expected.ms); }},
    {counter_names::kPricedMeasured, Priced<&cost::PriceOrigins::measured>},
    {counter_names::kPricedDerived, Priced<&cost::PriceOrigins::derived>},
    {counter_names::kPricedDatasheet, Priced<&cost::PriceOrigins::datasheet>},
    {counter_names::kLeastSteps, [](const JobSource& of) { return IfAny(of.job.least_steps); }},

    {"kernels_launched", Launched<&device::LaunchCounts::kernels>},
    {"kernels_in_graphs", Launched<&device::LaunchCounts::in_graphs>},

    {"meetings", Exchanged<&ExchangeCounters::meetings>},
    {counter_names::kBytesAllReduce, Exchanged<&ExchangeCounters::bytes_all_reduce>},
    {counter_names::kBytesAllToAll, ExchangedAllToAll},
    {"bytes_head", Exchanged<&ExchangeCounters::bytes_head>},
    {"bytes_expert_rows", ExchangedExpertRows},
    {"shift_switches", ShiftSwitches},
    {"sp_pad_rows", PadRows},

    {counter_names::kRowsRouted, Routed<&RoutingCounters::rows>},
    {counter_names::kExpertsTouched, Routed<&RoutingCounters::experts>},
    {counter_names::kExpertGroups, Routed<&RoutingCounters::groups>},
    {counter_names::kExpertsInGroups, Routed<&RoutingCounters::experts_in_groups>},
    {counter_names::kExpertBusiestRows, Routed<&RoutingCounters::busiest_rows>},

    {"bytes_pulled", BytesPulled},
    {"bytes_pulled_ahead", OfPool<&Pool::bytes_ahead>},
    {"bytes_routed", OfPoolIfAny<&Pool::bytes_wanted>},
    {"pulled_unused_bytes", OfPoolIfAny<&Pool::bytes_unused>},
    {"merge_bytes", BytesMerged},
    {"copy_core_us", CopyCore},
    {"rows_shipped", Shipped<&ShipCounters::rows>},
    {"rows_skipped", Shipped<&ShipCounters::rows_skipped>},
    {"bytes_shipped", BytesShipped},
    {"ship_meetings", Shipped<&ShipCounters::meetings>},
    {"expert_rows_sent", Served<&ServedCounters::rows_sent>},
    {"expert_rows_returned", Served<&ServedCounters::rows_returned>},
    {"compute_waited_us", Waited},

    {"kv_parks", Parked<&Park::parks>},
    {"kv_returns", Parked<&Park::returns>},
    {"kv_parked_gifts", Parked<&Park::gifts>},
    {"kv_parks_refused", Parked<&Park::refused>},
    {"kv_parks_not_worth_it", Parked<&Park::recomputed>},
    {"kv_blocks_stored", BookedBelow<&Book::stored>},
    {"kv_blocks_found_below", BookedBelow<&Book::found>},
    {"kv_blocks_up", Parked<&Park::blocks_up>},
    {"kv_blocks_evicted_down", Parked<&Park::evicted>},
    {"prefix_blocks_hit_below", Parked<&Park::prefix_blocks_hit>},
    {"kv_blocks_lost", BookedBelow<&Book::evicted>},
    {"kv_bytes_down", Moved<&Traffic::down>},
    {"kv_bytes_up", Moved<&Traffic::up>},
    {"kv_copy_core_us", KvCopyCore},
    {"kv_blocks_failed", InFile<Parked<&Park::failed>>},
    {"kv_blocks_kept", InFile<Parked<&Park::kept>>},
    {"kv_file_bytes_written", InFile<Moved<&Traffic::written>>},
    {"kv_file_bytes_read", InFile<Moved<&Traffic::read>>},
    {"kv_blocks_to_file", InBoth<BookedBelow<&Book::demoted>>},
    {"kv_blocks_up_from_file", InBoth<Parked<&Park::blocks_up_far>>},
    {counter_names::kKvBlocksStreamed, BlocksStreamed},
    {"kv_bytes_streamed", WhereStreamed<Moved<&Traffic::streamed>>},
    {"kv_blocks_brought_back", WhereStreamed<Parked<&Park::brought_back>>},
    {"kv_stream_places", Streamed<&StreamCounters::places>},
    {"kv_stream_limit", Streamed<&StreamCounters::limit>},
    {"kv_stream_limit_least", Streamed<&StreamCounters::least>},
    {"kv_stream_shrinks", Streamed<&StreamCounters::shrinks>},
    {counter_names::kOffloadUnused, OffloadUnused},
};

const Family kFamilies[] = {
    {"steps.<kernels>", StepsByKernels},  {"steps_<mode>", StepsByMode},
    {"steps_sp<n>tp<n>", StepsByDegrees}, {"waited_<cause>_us", WaitedByCause},
    {"stage<n>_busy_ms", StageBusy},      {"stage<n>_idle_ms", StageIdle},
};

// Adds the counters that `source` has by itself.
template <typename Source>
void AddCounters(const Source& source, std::map<std::string, int64_t>* counters) {
  for (const Row& row : kRows) {
    const auto* const read = std::get_if<Count (*)(const Source&)>(&row.read);
    if (read == nullptr) continue;
    if (const Count count = (*read)(source)) (*counters)[std::string(row.name)] += *count;
  }
  if constexpr (!std::is_same_v<Source, ReplicaSource>) {
    const Add add = [&](std::string_view name, int64_t count) {
      (*counters)[std::string(name)] += count;
    };
    for (const Family& family : kFamilies) {
      const auto* const read = std::get_if<void (*)(const Source&, const Add&)>(&family.read);
      if (read != nullptr) (*read)(source, add);
    }
  }
}

ReplicaStats StatsOf(const Replica& replica, const Replica::Published& published) {
  const EngineStats& stats = published.stats;
  return {.role = replica.role(),
          .steps = stats.steps,
          .tokens = stats.computed_tokens,
          .choices_running = stats.choices_running,
          .choices_waiting = stats.choices_waiting,
          .busy_seconds = stats.step_seconds,
          .mode = published.mode};
}

}  // namespace

EngineStats ReadStats(const CounterSources& sources) {
  EngineStats sum;
  for (const Replica* replica : sources.replicas) {
    const Replica::Published published = replica->published();
    for (const EngineCounter& counter : kEngineCounters)
      sum.*counter.member += published.stats.*counter.member;
    sum.step_seconds = std::max(sum.step_seconds, published.stats.step_seconds);
    if (sources.replicas.size() > 1) sum.replicas.push_back(StatsOf(*replica, published));
    AddCounters(ReplicaSource{*replica, published}, &sum.mode_counters);
    for (const auto& rank : replica->ranks())
      AddCounters(RankSource{*rank, published.stats}, &sum.mode_counters);
  }
  AddCounters(JobSource{sources, sum}, &sum.mode_counters);
  return sum;
}

std::vector<std::string_view> CounterNames() {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) names.push_back(row.name);
  for (const Family& family : kFamilies) names.push_back(family.name);
  return names;
}

}  // namespace forebay::engine
