// What a running job shows: a live block on a terminal, one plain line every few seconds elsewhere.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "forebay/engine.h"
#include "job/counters.h"

namespace forebay::job {

// One of the processes that share a job.
struct WorkerProgress {
  std::string name;
  int64_t done = 0, held = 0;  // lines
};

// One moment of a job.
struct ProgressView {
  int64_t lines = 0, done = 0, failed = 0;  // earlier runs' included
  double elapsed_seconds = 0;
  double output_rate = 0, total_rate = 0;  // tokens a second, lately
  std::optional<double> eta_seconds;       // nothing yet to judge from
  std::string modes;  // lately, with sp in the layout: "812.5 rows a step, sp1tp8 25%, sp8tp1 75%"
  EngineStats stats;
  std::vector<WorkerProgress> workers;  // where there are any, the engines are theirs
};

// Makes views: rates over the last seconds, and the time left from tokens, not lines: a prompt's
// token and a generated one have prices of their own, which follow from how long earlier mixes
// took.
class ProgressEstimator {
 public:
  explicit ProgressEstimator(JobSize size) : size_(size) {}
  ProgressView View(double elapsed_seconds, const JobCounters& counters, const EngineStats& stats);

 private:
  struct Sample {
    double seconds = 0;
    int64_t output_tokens = 0, total_tokens = 0;
    int64_t rows = 0;
    int64_t prompt_rows = 0;
    int64_t all_steps = 0;
    std::map<std::string, int64_t> steps = {};  // by mode, of ranks that cut rows
  };
  // Least squares of seconds over tokens of prompts and of answers.
  struct Fit {
    double pp = 0, po = 0, oo = 0, ps = 0, os = 0;
    int64_t count = 0;
    void Add(const Sample& from, const Sample& to);
  };
  struct TokenSeconds {
    double prompt = 0, output = 0;
  };
  static std::string ModesBetween(const Sample& first, const Sample& last);
  TokenSeconds Prices(const Sample& last) const;
  std::optional<double> SecondsLeft(const JobCounters& counters, const EngineStats& stats) const;

  const JobSize size_;
  Fit fit_;
  std::deque<Sample> window_ = {{}};  // the run's begin, then views
};

// "120/1000 done, 3 failed, output 812 tok/s, ..."
std::string ProgressLine(const ProgressView& view);
// The same in lines of at most `width` characters.
std::vector<std::string> ProgressBlock(const ProgressView& view, size_t width);

enum class ProgressMode : uint8_t { kQuiet, kLines, kLive };

// Draws on a file descriptor. For one thread.
class ProgressDisplay {
 public:
  ProgressDisplay(ProgressMode mode, int fd) : mode_(mode), fd_(fd) {}

  // How often Draw is worth its call.
  double interval_seconds() const { return mode_ == ProgressMode::kLive ? 0.25 : 5.0; }
  void Draw(const ProgressView& view);
  // The last view stays on the terminal, above what is printed next.
  void Finish(const ProgressView& view);

 private:
  // The block as it is drawn, and how many rows it has.
  std::string Block(const ProgressView& view, size_t* rows) const;

  const ProgressMode mode_;
  const int fd_;
};

}  // namespace forebay::job
