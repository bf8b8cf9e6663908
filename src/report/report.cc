#include "report/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/units.h"
#include "forebay/counter_names.h"
#include "report/rank_charts.h"
#include "report/svg_chart.h"
#include "schedule/step_mode.h"

namespace forebay::report {
namespace {

// More replicas than this have no lane of their own.
constexpr size_t kMostLanes = 24;

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<style>
:root{color-scheme:light dark;--ink:#1d2430;--dim:#66707f;--rule:#e2e6ec;--page:#fff;--a:#2f6fb3;--b:#e08a3c;--c:#8fb4da}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--dim:#98a2b3;--rule:#2c3340;--page:#12161d;--a:#6aa7e8;--b:#eda763;--c:#34526f}}
body{margin:0 auto;padding:1rem;max-width:80rem;background:var(--page);color:var(--ink);font:15px/1.4 system-ui,sans-serif}
h1{font-size:1.3rem;margin:0}h2{font-size:1rem;margin:0}p{margin:.1rem 0 .4rem;color:var(--dim)}
main{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1.4rem;margin-top:1rem}
svg{width:100%;height:auto;display:block}svg text{font:10.5px system-ui,sans-serif;fill:var(--dim)}
.rule{stroke:var(--rule);fill:none}.line{fill:none;stroke-width:1.5;stroke-linejoin:round}.line.a{stroke:var(--a)}
path.a:not(.line),rect.a{fill:var(--a)}path.b{fill:var(--b)}path.c{fill:var(--c)}
i{display:inline-block;width:.8em;height:.8em;margin-right:.3em}i.a{background:var(--a)}i.b{background:var(--b)}i.c{background:var(--c)}
.k0{--k:#2f6fb3}.k1{--k:#59a14f}.k2{--k:#8fb4da}.k3{--k:#9aa3ad}.k4{--k:#b07aa1}.k5{--k:#d7b5a6}.k6{--k:#e08a3c}.k7{--k:#d1495b}.k8{--k:#edc948}.k9{--k:#7d5a50}
rect[class^=k],path[class^=k]{fill:var(--k)}i[class^=k]{background:var(--k)}table.pairs td{text-align:right;font-variant-numeric:tabular-nums}
table{border-collapse:collapse;width:100%}td{padding:.15rem .3rem;border-bottom:1px solid var(--rule)}td:last-child{text-align:right;font-variant-numeric:tabular-nums}
</style>)";

using Values = std::vector<double>;
using ValueOf = std::function<double(const TimelineBucket&)>;

// One of several areas that stand on top of each other.
struct Band {
  std::string_view name;
  std::string css_class;
  Values values;
};

double Ratio(double a, double b) { return b > 0 ? a / b : 0; }

class Page {
 public:
  Page(const trace::CountedRun& run, const Timeline& timeline)
      : run_(run), timeline_(timeline), size_(timeline.size()) {
    for (const Timeline::Lane& lane : timeline.lanes()) {
      for (const TimelineBucket& bucket : lane) total_.Add(bucket, 1);
    }
  }

  std::string Draw() {
    const job::JobSummary& summary = run_.summary;
    const std::string title = EscapeHtml(Title());
    out_ = fmt::format(
        "{}<title>{}</title></head><body><h1>{}</h1><p>{} of {} requests, {} failed; {} in steps "
        "of {} "
        "replicas; {}</p><main>",
        kHead, title, title, summary.resumed + summary.done, summary.lines, summary.total_failed,
        base::FormatDuration(summary.elapsed_seconds), timeline_.lanes().size(),
        EscapeHtml(summary.end));
    if (size_ > 0) DrawCharts();
    DrawProfile();
    DrawRanks();
    if (run_.summary.stats.replicas.size() > 1) DrawReplicaTable();
    DrawSummary();
    return std::move(out_) + "</main></body></html>\n";
  }

 private:
  // "Qwen3-32B on sim:8xh200, simulated; layout dp=8; prices of h200: 62 % measured, ..."
  std::string Title() const {
    const job::JobSummary& summary = run_.summary;
    std::string title = fmt::format("{} on {}", summary.model.name, summary.isa);
    const bool simulated = summary.isa.starts_with("sim:");
    if (simulated) title += ", simulated";
    if (!run_.layout.empty()) title += "; layout " + run_.layout;
    const std::string priced = job::PricedText(summary.stats);
    if (simulated && !priced.empty())
      title += fmt::format("; prices of {}: {}", summary.model.device_profile, priced);
    return title;
  }

  void DrawCharts() {
    const double width = timeline_.bucket_seconds();
    const double replicas = static_cast<double>(timeline_.lanes().size());
    DrawSpread("Running choices", "a replica", [&](const auto& b) { return b.running / width; });
    DrawStack(
        "Tokens a second", "generated, all replicas", "prefilled",
        [&](const auto& b) { return b.decode_rows / width; },
        [&](const auto& b) { return b.prefill_rows / width; });
    DrawSpread("Step time, ms", "",
               [](const auto& b) { return 1e3 * Ratio(b.busy_seconds, b.steps); });
    DrawRowsOfAStep();
    if (total_.interactive_rows > 0) {
      DrawStack(
          "Rows a second by service", "interactive", "batch",
          [&](const auto& b) { return b.interactive_rows / width; },
          [&](const auto& b) {
            return (b.decode_rows + b.prefill_rows - b.interactive_rows) / width;
          });
    }
    if (total_.sp_seconds > 1.001 * total_.busy_seconds)
      DrawSpread("Mode, sp of a step", "ranks over which its rows are cut",
                 [](const auto& b) { return Ratio(b.sp_seconds, b.busy_seconds); });
    const double blocks = static_cast<double>(run_.summary.stats.kv_blocks_total) / replicas;
    if (blocks > 0)
      DrawSpread("KV cache in use, %", "a replica",
                 [&](const auto& b) { return 100 * b.kv_blocks / width / blocks; });
    if (total_.bytes_pulled > 0)
      DrawSpread("Pulled over links, GB/s", "a replica",
                 [&](const auto& b) { return 1e-9 * b.bytes_pulled / width; });
    if (total_.waits.total() > 0)
      DrawSpread("Compute that waits, % of time", "a replica",
                 [&](const auto& b) { return 100 * b.waits.total() / width; });
    DrawDistributions();
    DrawModes();
    if (timeline_.lanes().size() > 1) DrawReplicas();
    DrawArrivals();
  }

  // Draws what part of all steps has at most so much.
  void DrawDistributions() {
    Section("Running choices, part of steps", "with at most so many",
            DrawShares(timeline_.running()));
    Section("Step time, part of steps", "in at most so many ms", DrawShares(timeline_.step_ms()));
    if (timeline_.streamed_blocks().Points().back().value == 0) return;
    Section("KV below the device, part of steps", "that read at most so many blocks from there",
            DrawShares(timeline_.streamed_blocks()));
    Section("Waits for KV, part of steps", "of at most so many ms",
            DrawShares(timeline_.kv_wait_ms()));
  }

  void Section(std::string_view title, std::string_view legend, std::string_view drawing) {
    out_ += fmt::format("<section><h2>{}</h2><p>{}</p>{}</section>", title, legend, drawing);
  }

  // Mean over replicas, and the band between the least and the greatest.
  void DrawSpread(std::string_view title, std::string_view of, const ValueOf& value) {
    const size_t replicas = timeline_.lanes().size();
    Values mean(size_), low(size_, 1e300), high(size_);
    for (const Timeline::Lane& lane : timeline_.lanes()) {
      for (size_t i = 0; i < size_; ++i) {
        const double v = value(lane[i]);
        mean[i] += v / static_cast<double>(replicas);
        low[i] = std::min(low[i], v);
        high[i] = std::max(high[i], v);
      }
    }
    SvgChart chart(timeline_.end_seconds(), *std::ranges::max_element(high));
    if (replicas > 1) chart.Band(low, high, "c");
    chart.Line(mean, "a");
    const std::string legend =
        replicas > 1
            ? fmt::format("<i class=\"a\"></i>{} <i class=\"c\"></i>least to most of {} replicas",
                          of.empty() ? "mean" : fmt::format("{}, mean", of), replicas)
            : std::string(of);
    Section(title, legend, chart.Finish());
  }

  // The sum over replicas.
  Values Summed(const ValueOf& value) const {
    Values sum(size_);
    for (const Timeline::Lane& lane : timeline_.lanes()) {
      for (size_t i = 0; i < size_; ++i) sum[i] += value(lane[i]);
    }
    return sum;
  }

  void DrawStack(std::string_view title, std::string_view lower, std::string_view upper,
                 const ValueOf& a, const ValueOf& b) {
    DrawBands(title, {{lower, "a", Summed(a)}, {upper, "b", Summed(b)}});
  }

  void DrawBands(std::string_view title, const std::vector<Band>& bands) {
    std::vector<Values> tops = {Values(size_)};
    std::string legend;
    for (const Band& band : bands) {
      tops.push_back(tops.back());
      for (size_t i = 0; i < size_; ++i) tops.back()[i] += band.values[i];
      legend += fmt::format("{}<i class=\"{}\"></i>{}", legend.empty() ? "" : " ", band.css_class,
                            band.name);
    }
    SvgChart chart(timeline_.end_seconds(), *std::ranges::max_element(tops.back()));
    for (size_t i = 0; i < bands.size(); ++i) chart.Band(tops[i], tops[i + 1], bands[i].css_class);
    Section(title, legend, chart.Finish());
  }

  void DrawRowsOfAStep() {
    const Values steps = Summed([](const auto& b) { return b.steps; });
    Values decode = Summed([](const auto&b) { return b.decode_rows; }),
           prefill = Summed([](const auto&b) { return b.prefill_rows; });
    for (size_t i = 0; i < size_; ++i) {
      decode[i] = Ratio(decode[i], steps[i]);
      prefill[i] = Ratio(prefill[i], steps[i]);
    }
    DrawBands("Rows a step", {{"decode", "a", decode}, {"prefill", "b", prefill}});
  }

  // Draws a band for each mode that steps were taken in; nothing where no rank lacks weights.
  void DrawModes() {
    const double width = timeline_.bucket_seconds();
    std::vector<Band> choices, replicas;
    bool shared = false;
    for (const StepMode& mode : schedule::AllModes()) {
      const auto ffn = static_cast<size_t>(mode.ffn);
      if (total_.mode_seconds[ffn] == 0) continue;
      shared |= mode.ffn != FfnMode::kLocal;
      const std::string colour = fmt::format("k{}", ffn);
      choices.push_back({schedule::Name(mode), colour,
                         Summed([&](const auto& b) { return b.mode_running[ffn] / width; })});
      replicas.push_back({schedule::Name(mode), colour,
                          Summed([&](const auto& b) { return b.mode_seconds[ffn] / width; })});
    }
    if (!shared) return;
    DrawBands("Batch by mode, choices", choices);
    DrawBands("Mode, replicas", replicas);
  }

  void DrawReplicas() {
    const size_t count = std::min(timeline_.lanes().size(), kMostLanes);
    double most = 0;
    const auto running = [&](const TimelineBucket& b) {
      return b.running / timeline_.bucket_seconds();
    };
    for (const Timeline::Lane& lane : timeline_.lanes()) {
      for (size_t i = 0; i < size_; ++i) most = std::max(most, running(lane[i]));
    }
    std::vector<SvgLane> lanes(count);
    for (size_t r = 0; r < count; ++r) {
      lanes[r].name = fmt::format("{}", r);
      for (size_t i = 0; i < size_; ++i) {
        const TimelineBucket& bucket = timeline_.lanes()[r][i];
        const double height = Ratio(running(bucket), most),
                     prefill = Ratio(bucket.prefill_rows, bucket.prefill_rows + bucket.decode_rows);
        lanes[r].lower.push_back(height * (1 - prefill));
        lanes[r].upper.push_back(height * prefill);
      }
    }
    std::string legend = fmt::format(
        "height: running choices, full at {}; <i class=\"a\"></i>decode rows <i "
        "class=\"b\"></i>prefill rows",
        ShortNumber(most));
    if (count < timeline_.lanes().size())
      legend += fmt::format("; the first {} of {}", count, timeline_.lanes().size());
    Section("Replicas", legend, DrawLanes(timeline_.end_seconds(), lanes));
  }

  // Draws requests that came over time, by when they came.
  void DrawArrivals() {
    const std::vector<job::RequestTimes>& requests = run_.latencies.requests;
    if (!std::ranges::any_of(requests, [](const auto& times) { return times.arrival > 0; })) return;
    const auto bucket = [&](const job::RequestTimes& times) {
      return std::min(size_ - 1, static_cast<size_t>(times.arrival / timeline_.bucket_seconds()));
    };
    Values arrivals(size_);
    for (const job::RequestTimes& times : requests)
      arrivals[bucket(times)] += 1 / timeline_.bucket_seconds();
    SvgChart chart(timeline_.end_seconds(), *std::ranges::max_element(arrivals));
    chart.Line(arrivals, "a");
    Section("Arrivals a second", "requests that have a result", chart.Finish());
    const auto draw = [&](std::string_view title, auto&& seconds) {
      std::vector<Values> of_bucket(size_);
      for (const job::RequestTimes& times : requests) {
        if (seconds(times) >= 0) of_bucket[bucket(times)].push_back(1e3 * seconds(times));
      }
      // Where nobody came the lines go on as they were.
      Values median(size_), most(size_);
      for (size_t i = 0; i < size_; ++i) {
        if (i > 0) median[i] = median[i - 1], most[i] = most[i - 1];
        if (of_bucket[i].empty()) continue;
        const job::Percentiles percentiles = job::PercentilesOf(of_bucket[i]);
        median[i] = percentiles.p50;
        most[i] = percentiles.max;
      }
      SvgChart times(timeline_.end_seconds(), *std::ranges::max_element(most));
      times.Band(median, most, "c");
      times.Line(median, "a");
      Section(title, "<i class=\"a\"></i>median <i class=\"c\"></i>to most, by arrival",
              times.Finish());
    };
    draw("Time to first token, ms", [](const auto& times) {
      return times.first_token < 0 ? -1 : times.first_token - times.arrival;
    });
    draw("Time per output token, ms", [](const auto& times) { return times.token(); });
  }

  void DrawProfile() {
    std::vector<device::OpProfile> profile = run_.profile;
    double sum = 0;
    for (const device::OpProfile& op : profile) sum += op.seconds;
    if (sum <= 0) return;
    std::ranges::sort(profile, std::greater(), &device::OpProfile::seconds);
    std::vector<SvgBar> bars;
    for (const device::OpProfile& op : profile) {
      bars.push_back({op.label, op.seconds,
                      fmt::format("{:.1f} %, {:.3g} s", 100 * op.seconds / sum, op.seconds)});
    }
    Section("Where time went", "by operation, all replicas", DrawBars(bars));
  }

  void DrawRanks() {
    const std::span<const engine::RankReport> ranks(run_.ranks.data(),
                                                    std::min(run_.ranks.size(), kMostLanes));
    const std::string first =
        ranks.size() < run_.ranks.size()
            ? fmt::format("; the first {} of {} ranks", ranks.size(), run_.ranks.size())
            : "";
    if (const std::string times = DrawRankTimes(ranks); !times.empty())
      Section("Time by rank", RankTimesLegend() + first, times);
    // Experts that are all alike need no bar each.
    constexpr double kAlike = 1.005;
    if (const ExpertLoad load = ExpertLoadOf(run_.ranks); load.busiest > kAlike) {
      Section("Expert load",
              fmt::format(
                  "rows of each expert, all layers and ranks, by the mean; the busiest has {:.3f}",
                  load.busiest),
              DrawColumns(load.by_mean));
    }
    if (const std::string links = DrawLinkUse(ranks); !links.empty())
      Section("Bytes between ranks", "from the rank of the column to that of the row" + first,
              links);
  }

  void Row(std::string_view name, const std::string& value) {
    out_ += fmt::format("<tr><td>{}</td><td>{}</td></tr>", name, EscapeHtml(value));
  }

  void DrawSummary() {
    const job::JobSummary& s = run_.summary;
    const auto rate = [&](int64_t count) {
      return fmt::format("{:.1f}", Ratio(static_cast<double>(count), s.elapsed_seconds));
    };
    out_ += "<section><h2>Summary</h2><table>";
    Row("time", fmt::format("{:.3f} s", s.elapsed_seconds));
    Row("prompt tokens", fmt::format("{}", s.prompt_tokens));
    Row("output tokens", fmt::format("{}", s.output_tokens));
    Row("output tokens a second", rate(s.output_tokens));
    Row("all tokens a second", rate(s.prompt_tokens + s.output_tokens));
    Row("requests a second", rate(s.done));
    Row("steps", fmt::format("{}", s.stats.steps));
    Row("preemptions", fmt::format("{}", s.stats.preemptions));
    if (s.stats.requests_handed_over > 0) {
      Row("requests handed over to generation",
          fmt::format("{}, with {} of KV cache", s.stats.requests_handed_over,
                      base::FormatBytes(static_cast<uint64_t>(s.stats.kv_bytes_handed_over))));
    }
    Row("requests stolen at the end",
        fmt::format("{}, with {} of KV cache", s.stats.requests_stolen,
                    base::FormatBytes(static_cast<uint64_t>(s.stats.kv_bytes_stolen))));
    Row("tokens computed again", fmt::format("{}", s.stats.recomputed_tokens));
    Row("prompt tokens from the prefix index", fmt::format("{}", s.stats.cached_prompt_tokens));
    Row("last 5 % of the lines", base::FormatDuration(s.tail_seconds));
    Row("KV cache, tokens", fmt::format("{}", s.model.kv_capacity_tokens));
    Row("most of it in use",
        fmt::format("{:.1f} %", 100 * Ratio(static_cast<double>(s.stats.kv_blocks_used_peak),
                                            static_cast<double>(s.stats.kv_blocks_total))));
    Row("weights", base::FormatBytes(s.model.weight_bytes));
    for (const auto& [form, bytes] : s.model.weight_forms)
      Row("weights in " + form, base::FormatBytes(bytes));
    Row("longest context", fmt::format("{}", s.model.max_model_len));
    Row("numerics", s.model.numerics_class + (s.model.random_weights ? ", random weights" : ""));
    for (const auto& [name, count] : s.stats.mode_counters) {
      if (name.starts_with(counter_names::kStepsByDegrees)) Row(name, fmt::format("{}", count));
    }
    if (run_.latencies.completion.max > 0) DrawLatencies();
    out_ += "</table></section>";
  }

  // ", pull 20.0 %, ship 80.0 %" of the time in steps.
  static std::string ModeParts(const TimelineBucket& sum) {
    std::string parts;
    for (const StepMode& mode : schedule::AllModes()) {
      const double seconds = sum.mode_seconds[static_cast<size_t>(mode.ffn)];
      if (mode.ffn == FfnMode::kLocal || seconds == 0) continue;
      parts += fmt::format(", {} {:.1f} %", schedule::Name(mode),
                           100 * Ratio(seconds, sum.busy_seconds));
    }
    return parts;
  }

  void DrawReplicaTable() {
    const EngineStats& stats = run_.summary.stats;
    out_ += fmt::format(
        "<section><h2>By replica</h2><p>busiest to mean: {:.3f} in time, {:.3f} in "
        "tokens</p><table>",
        BusyImbalance(stats), TokenImbalance(stats));
    const size_t count = std::min(stats.replicas.size(), kMostLanes);
    for (size_t i = 0; i < count; ++i) {
      const ReplicaStats& replica = stats.replicas[i];
      TimelineBucket sum;
      if (i < timeline_.lanes().size()) {
        for (const TimelineBucket& bucket : timeline_.lanes()[i]) sum.Add(bucket, 1);
      }
      Row(replica.role == GroupRole::kAll ? fmt::format("{}", i)
                                          : fmt::format("{}, {}", i, Name(replica.role)),
          fmt::format("{} steps, {} tokens, busy {:.1f} %{}, pulled {}", replica.steps,
                      replica.tokens,
                      100 * Ratio(replica.busy_seconds, run_.summary.elapsed_seconds),
                      ModeParts(sum), base::FormatBytes(static_cast<uint64_t>(sum.bytes_pulled))));
    }
    out_ += "</table></section>";
  }

  void DrawLatencies() {
    const auto row = [&](std::string_view name, const job::Percentiles& p) {
      Row(name, fmt::format("{:.1f}, {:.1f}, {:.1f} ms", 1e3 * p.p50, 1e3 * p.p90, 1e3 * p.p99));
    };
    if (run_.interactive) {
      row("interactive time to first token: median, p90, p99",
          run_.interactive->latencies.first_token);
      if (run_.interactive->latencies.tokens.any)
        row("interactive time between tokens", run_.interactive->latencies.tokens.between);
      const job::StreamTokens& batch = run_.batch->tokens;
      Row("batch output tokens a second", fmt::format("{:.1f}", batch.PerSecond(batch.output)));
    }
    row("time to first token: median, p90, p99", run_.latencies.first_token);
    row("time per output token", run_.latencies.token);
    const job::TokenTimes& tokens = run_.latencies.tokens;
    if (tokens.any) row("time between tokens", tokens.between);
    row("completion time", run_.latencies.completion);
    if (tokens.any) {
      Row("most output tokens a second, over 1 s and 10 s",
          fmt::format("{:.1f}, {:.1f}", tokens.peak_1s, tokens.peak_10s));
    }
    if (run_.latencies.with_deadline > 0) {
      Row("late, of requests with a deadline",
          fmt::format("{} of {}, by at most {:.1f} s", run_.latencies.late,
                      run_.latencies.with_deadline, run_.latencies.most_late));
    }
    if (run_.latencies.unfinished > 0)
      Row("requests that came and have no result", fmt::format("{}", run_.latencies.unfinished));
  }

  const trace::CountedRun& run_;
  const Timeline& timeline_;
  const size_t size_;
  TimelineBucket total_;
  std::string out_;
};

}  // namespace

std::string ReportHtml(const trace::CountedRun& run, const Timeline& timeline) {
  return Page(run, timeline).Draw();
}

}  // namespace forebay::report
