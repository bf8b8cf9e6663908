#include "job/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/units.h"
#include "forebay/counter_names.h"
#include "schedule/step_mode.h"

namespace forebay::job {
namespace {

constexpr double kWindowSeconds = 10;

// By so much of all tokens a price is drawn towards that of the other kind.
constexpr double kRidge = 1e-3;
// Part of the steps that a batch takes longer to run out than if its choices ended at once: while
// the last ones run, steps are shorter.
constexpr double kTail = 0.5;

// How answers' lengths differ, by what is done: 0 where all are alike, 1 as of an exponential law
// and beyond.
double SpreadOf(const JobCounters& counters) {
  const auto done = static_cast<double>(counters.done),
             tokens = static_cast<double>(counters.done_output_tokens);
  if (tokens <= 0) return 1;
  const double squares = static_cast<double>(counters.done_output_squares);
  return std::clamp(squares * done / (tokens * tokens) - 1, 0.0, 1.0);
}

// Tokens of an answer on average. Short answers finish first, so that the mean of those done is too
// low: what runs now will be at least as long as it is, and where lengths differ as much as an
// exponential law's, all tokens by all ends are the mean.
double MeanAnswer(const JobCounters& counters, const EngineStats& stats, double running) {
  const auto done = static_cast<double>(counters.done),
             output = static_cast<double>(stats.output_tokens);
  const double least =
      std::max(static_cast<double>(counters.done_output_tokens) / done, output / (done + running));
  return least + SpreadOf(counters) * std::max(0.0, output / done - least);
}

// Tokens that a batch's last choice has still to generate beyond their mean: as many as the mean
// where lengths are alike and begins are spread, and more of an exponential law.
double TailTokens(double answer, double spread, double running) {
  const double left = answer * (1 + spread) / 2;
  const double harmonic = running > 1 ? std::log(running) + 0.577 : 1;
  return std::max(0.0, left * (2 * (1 - spread) + harmonic * spread) - left);
}

std::string Lines(const ProgressView& view) {
  return fmt::format("{}/{} done, {} failed", view.done, view.lines, view.failed);
}
std::string Rates(const ProgressView& view) {
  return fmt::format("output {:.0f} tok/s, total {:.0f} tok/s", view.output_rate, view.total_rate);
}
std::string Load(const ProgressView& view) {
  const EngineStats& s = view.stats;
  const double kv = s.kv_blocks_total > 0 ? 100.0 * static_cast<double>(s.kv_blocks_used) /
                                                static_cast<double>(s.kv_blocks_total)
                                          : 0;
  return fmt::format("{} running, {} waiting, KV {:.0f}%, {} preemptions, {} prefix hits",
                     s.choices_running, s.choices_waiting, kv, s.preemptions, s.prefix_blocks_hit);
}
// For several replicas: the running choices of each, how level they are, and the modes.
std::string Replicas(const ProgressView& view) {
  constexpr size_t kMostListed = 16;
  const std::vector<ReplicaStats>& replicas = view.stats.replicas;
  std::string running, modes;
  for (size_t i = 0; i < replicas.size() && i < kMostListed; ++i)
    running += fmt::format("{}{}", i > 0 ? "|" : "", replicas[i].choices_running);
  if (replicas.size() > kMostListed) running += "|...";
  for (const StepMode& mode : schedule::AllModes()) {
    const auto count = std::ranges::count(
        replicas, mode.ffn, [](const ReplicaStats& replica) { return replica.mode.ffn; });
    if (count > 0)
      modes += fmt::format("{}{} {}", modes.empty() ? "" : ", ", count, schedule::Name(mode));
  }
  return fmt::format("running by replica {}, imbalance {:.2f}, mode {}", running,
                     TokenImbalance(view.stats), modes);
}
// Steps by mode, where modes differ in how they cut rows.
std::map<std::string, int64_t> StepsByMode(const EngineStats& stats) {
  constexpr std::string_view kSteps = "steps_";
  std::map<std::string, int64_t> steps;
  for (const auto& [name, count] : stats.mode_counters) {
    if (name.starts_with(counter_names::kStepsByDegrees)) steps[name.substr(kSteps.size())] = count;
  }
  return steps;
}
// A line a worker, of so many.
std::vector<std::string> Workers(const ProgressView& view) {
  constexpr size_t kMostListed = 16;
  std::vector<std::string> lines;
  for (const WorkerProgress& worker : view.workers) {
    if (lines.size() == kMostListed) break;
    lines.push_back(fmt::format("{}: {} done, {} held", worker.name, worker.done, worker.held));
  }
  if (view.workers.size() > kMostListed)
    lines.push_back(fmt::format("and {} workers more", view.workers.size() - kMostListed));
  return lines;
}
std::string Eta(const ProgressView& view) {
  return view.eta_seconds ? "ETA " + base::FormatDuration(*view.eta_seconds) : "ETA unknown";
}

void WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count <= 0) return;  // nobody looks
    text.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace

void ProgressEstimator::Fit::Add(const Sample& from, const Sample& to) {
  const auto prompt = static_cast<double>(to.prompt_rows - from.prompt_rows),
             output = static_cast<double>(to.output_tokens - from.output_tokens);
  const double seconds = to.seconds - from.seconds;
  pp += prompt * prompt, po += prompt * output, oo += output * output;
  ps += prompt * seconds, os += output * seconds;
  ++count;
}

ProgressView ProgressEstimator::View(double elapsed_seconds, const JobCounters& counters,
                                     const EngineStats& stats) {
  const Sample before = window_.back();
  window_.push_back({elapsed_seconds, stats.output_tokens,
                     stats.computed_tokens - stats.recomputed_tokens, stats.computed_tokens,
                     stats.prefill_rows, stats.steps, StepsByMode(stats)});
  fit_.Add(before, window_.back());
  while (window_.size() > 2 && window_[1].seconds < elapsed_seconds - kWindowSeconds)
    window_.pop_front();
  ProgressView view{.lines = size_.lines,
                    .done = size_.resumed + counters.done,
                    .failed = size_.resumed_failed + counters.failed,
                    .elapsed_seconds = elapsed_seconds,
                    .stats = stats};
  const Sample &first = window_.front(), &last = window_.back();
  if (const double seconds = last.seconds - first.seconds; seconds > 0) {
    view.output_rate = static_cast<double>(last.output_tokens - first.output_tokens) / seconds;
    view.total_rate = static_cast<double>(last.total_tokens - first.total_tokens) / seconds;
  }
  view.modes = ModesBetween(first, last);
  view.eta_seconds = SecondsLeft(counters, stats);
  // At the job's end few choices run, slower than the mean, and they are the long ones: they use of
  // what they may generate as much as the others did.
  if (view.eta_seconds && stats.output_allowed > 0 && view.output_rate > 0) {
    const double used = static_cast<double>(counters.done_output_tokens) /
                        static_cast<double>(stats.output_allowed);
    view.eta_seconds = std::max(*view.eta_seconds,
                                used * static_cast<double>(stats.output_room) / view.output_rate);
  }
  return view;
}

std::string ProgressEstimator::ModesBetween(const Sample& first, const Sample& last) {
  int64_t all = 0;
  std::map<std::string, int64_t> steps = last.steps;
  for (auto& [mode, count] : steps) {
    if (const auto before = first.steps.find(mode); before != first.steps.end())
      count -= before->second;
    all += count;
  }
  if (all == 0) return "";
  std::string text = fmt::format(
      "{:.1f} rows a step", static_cast<double>(last.rows - first.rows) / static_cast<double>(all));
  for (const auto& [mode, count] : steps) {
    if (count > 0)
      text +=
          fmt::format(", {} {}%", mode,
                      std::lround(100.0 * static_cast<double>(count) / static_cast<double>(all)));
  }
  return text;
}

// What tokens took, so that all of them together took the time that passed. None is below 0; where
// the mix has always been the same, both cost the same.
ProgressEstimator::TokenSeconds ProgressEstimator::Prices(const Sample& last) const {
  const auto prompt = static_cast<double>(last.prompt_rows),
             output = static_cast<double>(last.output_tokens);
  const double all = prompt + output, even = last.seconds / all,
               ridge = kRidge * all * all / static_cast<double>(fit_.count * fit_.count);
  const double pp = fit_.pp + ridge, oo = fit_.oo + ridge, ps = fit_.ps + ridge * even,
               os = fit_.os + ridge * even, determinant = pp * oo - fit_.po * fit_.po;
  TokenSeconds price{even, even};
  if (determinant > 0)
    price = {(ps * oo - os * fit_.po) / determinant, (os * pp - ps * fit_.po) / determinant};
  if (price.prompt < 0) price = {0, 1};
  if (price.output < 0) price = {1, 0};
  const double scale = last.seconds / (price.prompt * prompt + price.output * output);
  return std::isfinite(scale) ? TokenSeconds{price.prompt * scale, price.output * scale}
                              : TokenSeconds{even, even};
}

std::optional<double> ProgressEstimator::SecondsLeft(const JobCounters& counters,
                                                     const EngineStats& stats) const {
  const Sample& last = window_.back();
  const auto read_bytes = static_cast<double>(counters.read_bytes);
  if (counters.done == 0 || read_bytes == 0 || last.seconds <= 0 ||
      last.prompt_rows + last.output_tokens == 0)
    return std::nullopt;
  const auto done = static_cast<double>(counters.done),
             pending = static_cast<double>(size_.pending()),
             cached = static_cast<double>(stats.cached_prompt_tokens),
             computed = static_cast<double>(last.prompt_rows);
  const double prompts = static_cast<double>(counters.read_prompt_tokens) / read_bytes *
                         static_cast<double>(size_.pending_bytes),
               // The prefix index gives as much of the rest as of what was read.
      computed_part = computed + cached > 0 ? computed / (computed + cached) : 1;
  const double prompt_left = std::max(0.0, prompts * computed_part - computed);
  const double running = std::min(static_cast<double>(stats.choices_running), pending - done),
               answer = MeanAnswer(counters, stats, running),
               output_left =
                   std::max(0.0, answer * pending - static_cast<double>(last.output_tokens));
  const TokenSeconds price = Prices(last);
  double seconds = price.prompt * prompt_left + price.output * output_left;
  if (last.all_steps > 0) {
    const auto replicas = static_cast<double>(std::max<size_t>(1, stats.replicas.size()));
    const double step = last.seconds * replicas / static_cast<double>(last.all_steps);
    seconds += kTail * step * TailTokens(answer, SpreadOf(counters), running);
  }
  return seconds;
}

std::string ProgressLine(const ProgressView& view) {
  const std::string replicas = view.stats.replicas.empty() ? "" : Replicas(view) + ", ",
                    modes = view.modes.empty() ? "" : view.modes + ", ",
                    load = view.workers.empty() ? Load(view)
                                                : fmt::format("{} workers", view.workers.size());
  return fmt::format("{}, {}, {}, {}{}{}", Lines(view), Rates(view), load, replicas, modes,
                     Eta(view));
}

std::vector<std::string> ProgressBlock(const ProgressView& view, size_t width) {
  const double part =
      view.lines > 0 ? static_cast<double>(view.done) / static_cast<double>(view.lines) : 1;
  const std::string tail = fmt::format(" {:3.0f}%  {}, {}", 100 * part,
                                       base::FormatDuration(view.elapsed_seconds), Eta(view));
  std::string bar;
  if (width > tail.size() + 12) {
    const size_t cells = std::min<size_t>(40, width - tail.size() - 2);
    const auto full = static_cast<size_t>(part * static_cast<double>(cells));
    bar = "[" + std::string(full, '#') + std::string(cells - full, '.') + "]";
  }
  std::vector<std::string> block = {bar + tail, Lines(view) + "; " + Rates(view)};
  if (view.workers.empty()) block.push_back(Load(view));
  std::ranges::move(Workers(view), std::back_inserter(block));
  if (!view.stats.replicas.empty()) block.push_back(Replicas(view));
  if (!view.modes.empty()) block.push_back(view.modes);
  for (std::string& line : block) line.resize(std::min(line.size(), width));
  return block;
}

// A column short of the terminal's width, and a row short of its height, which the cursor takes.
std::string ProgressDisplay::Block(const ProgressView& view, size_t* rows) const {
  winsize size{};
  if (ioctl(fd_, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) size = {.ws_row = 24, .ws_col = 80};
  std::vector<std::string> block = ProgressBlock(view, size.ws_col - size_t{1});
  if (size.ws_row > 1) block.resize(std::min<size_t>(block.size(), size.ws_row - size_t{1}));
  *rows = block.size();
  // A terminal that has just become narrower cuts the lines, and does not wrap them: the block has
  // so many rows whatever its width is by then. What a block of another height left below goes.
  std::string text = "\r\x1b[?7l";
  for (const std::string& line : block) text += line + "\x1b[K\n";
  return text + "\x1b[?7h\x1b[J";
}

void ProgressDisplay::Draw(const ProgressView& view) {
  if (mode_ == ProgressMode::kLines) WriteAll(fd_, "forebay: " + ProgressLine(view) + "\n");
  if (mode_ != ProgressMode::kLive) return;
  // One write, old text overwritten in place: no flicker. The cursor goes back to the block's
  // begin.
  size_t rows = 0;
  const std::string text = Block(view, &rows);
  WriteAll(fd_, text + fmt::format("\x1b[{}A", rows));
}

void ProgressDisplay::Finish(const ProgressView& view) {
  if (mode_ != ProgressMode::kLive) return;
  size_t rows = 0;
  WriteAll(fd_, Block(view, &rows));
}

}  // namespace forebay::job
