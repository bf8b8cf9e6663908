#include "job/request_feed.h"

#include <utility>

namespace forebay::job {
namespace {

// Comes behind the last request.
constexpr int64_t kNoMore = -1;

}  // namespace

RequestFeed::RequestFeed(runtime::Runtime& runtime, const JobFile& file, RequestBuilder& builder,
                         ResultWriter& writer, JobCounters& counters, RunControl& control,
                         std::vector<uint32_t> order)
    : file_(file),
      builder_(builder),
      writer_(writer),
      counters_(counters),
      control_(control),
      order_(std::move(order)),
      ids_(runtime, "the job's requests", kAhead) {
  for (size_t ordinal = 0; ordinal < file.size(); ++ordinal)
    remaining_ += writer.Done(ordinal) ? 0 : 1;
  task_ = runtime.Spawn({.name = "tokenizer"}, [this] { Read(); });
}

RequestFeed::~RequestFeed() { static_cast<void>(Stop()); }

bool RequestFeed::Ending() {
  if (control_.drain || control_.abort) stop_ = true;
  return stop_;
}

std::optional<Request> RequestFeed::Next(bool wait) {
  while (!exhausted_ && !Ending()) {
    const std::optional<int64_t> id = ids_.Receive(wait ? runtime::kGlance : 0);
    // A glance at a time: a signal that comes meanwhile has to be seen.
    if (!id && !wait) return std::nullopt;
    if (!id) continue;
    exhausted_ = *id == kNoMore;
    if (exhausted_) break;
    --remaining_;
    const std::lock_guard lock(mutex_);
    return std::move(ahead_.extract(*id).mapped());
  }
  return std::nullopt;
}

base::Status RequestFeed::Stop() {
  stop_ = true;
  if (task_) task_->Join();
  task_.reset();
  return status_;
}

void RequestFeed::Read() {
  const size_t lines = order_.empty() ? file_.size() : order_.size();
  for (size_t i = 0; i < lines && !Ending(); ++i) {
    const size_t ordinal = order_.empty() ? i : order_[i];
    if (!writer_.Done(ordinal) && !Take(ordinal)) break;
  }
  // A job that is broken has no use for what still runs.
  if (!status_.ok()) control_.abort = true;
  Send(kNoMore);
}

bool RequestFeed::Send(int64_t id) {
  while (!Ending()) {
    if (ids_.Send(id, runtime::kGlance)) return true;
  }
  return false;
}

bool RequestFeed::Take(size_t ordinal) {
  base::Result<BuiltLine> built = builder_.Build(ordinal);
  if (!built.ok()) {
    status_ = built.status();
    return false;
  }
  counters_.read_bytes += file_[ordinal].length;
  if (built->error) {
    --remaining_;
    status_ = writer_.WriteError(ordinal, built->line.custom_id, *built->error);
    return status_.ok();
  }
  for (const auto& prompt : built->request.prompts)
    counters_.read_prompt_tokens += static_cast<int64_t>(prompt.size());
  // Expected before it is sent: its result may come before this call is over.
  const int64_t id = built->request.id;
  writer_.Expect(ordinal, std::move(built->line), built->request);
  {
    const std::lock_guard lock(mutex_);
    ahead_.emplace(id, std::move(built->request));
  }
  return Send(id);
}

}  // namespace forebay::job
