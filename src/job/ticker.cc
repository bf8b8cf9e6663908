#include "job/ticker.h"

#include <utility>

namespace forebay::job {
namespace {

constexpr double kNsPerSecond = 1e9;
constexpr runtime::TimeNs kTick = 100'000'000;
constexpr runtime::TimeNs kCommitInterval = 1'000'000'000;

}  // namespace

Ticker::Ticker(Parts parts) : parts_(std::move(parts)) {
  task_ = parts_.runtime.Spawn({.name = "job ticker"}, [this] { Run(); });
}

Ticker::~Ticker() { Stop(); }

void Ticker::Stop() {
  if (!task_) return;
  stop_ = true;
  parts_.wake.Set();
  task_->Join();
  task_.reset();
}

void Ticker::Run() {
  runtime::TimeNs committed = parts_.runtime.Now(), drawn = committed;
  const auto draw_interval =
      static_cast<runtime::TimeNs>(parts_.display.interval_seconds() * kNsPerSecond);
  while (!stop_) {
    const bool is_due = parts_.wake.Wait(kTick);
    parts_.wake.Reset();
    const runtime::TimeNs now = parts_.runtime.Now();
    // A tick early rather than a tick late: a result is promised to last after a second.
    if (is_due || now - committed >= kCommitInterval - kTick) {
      Commit();
      committed = now;
    }
    WatchDrain(now);
    if (now - drawn >= draw_interval) {
      parts_.display.Draw(parts_.view());
      drawn = now;
    }
  }
}

void Ticker::Commit() {
  if (!parts_.log.Commit().ok()) parts_.control.abort = true;
}

void Ticker::WatchDrain(runtime::TimeNs now) {
  if (!parts_.control.drain || grace_is_over_) return;
  if (drain_began_ < 0) drain_began_ = now;
  if (static_cast<double>(now - drain_began_) < parts_.grace_seconds * kNsPerSecond) return;
  // An abort that is there already is a second signal's.
  grace_is_over_ = !parts_.control.abort.exchange(true);
}

}  // namespace forebay::job
