#include "job/session.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/choices/cancellations.h"
#include "engine/group_control.h"

namespace forebay::job {
namespace {

RequestResult ClosedResult(int64_t id) {
  return {.id = id,
          .http_status = 499,
          .error_type = kSessionClosed.name,
          .error_message = "the engine was closed before the request's end",
          .error_code = kSessionClosed.name};
}

RequestResult FailedResult(int64_t id) {
  return {.id = id,
          .http_status = 500,
          .error_type = "server_error",
          .error_message =
              "all replicas of the engine have failed before the request's end, and the "
              "log says why; expected one at least; open the model again",
          .error_code = engine::kGroupFailed.name};
}

}  // namespace

bool EndedBySession(const std::string& error_code) {
  return error_code == kSessionClosed.name || error_code == engine::kGroupFailed.name;
}

Inbox::~Inbox() {
  if (descriptor_ >= 0) close(descriptor_);
}

int Inbox::descriptor() {
  const std::lock_guard lock(mutex_);
  if (descriptor_ < 0)
    descriptor_ = eventfd(deliveries_.empty() ? 0 : 1, EFD_CLOEXEC | EFD_NONBLOCK);
  return descriptor_;
}

void Inbox::Put(Delivery delivery) {
  const std::lock_guard lock(mutex_);
  deliveries_.push_back(std::move(delivery));
  if (deliveries_.size() == wanted_) some_->Set();
  if (deliveries_.size() == 1 && descriptor_ >= 0) eventfd_write(descriptor_, 1);
}

bool Inbox::Wait(runtime::TimeNs timeout, size_t least) {
  {
    const std::lock_guard lock(mutex_);
    wanted_ = least;
    deliveries_.size() < least ? some_->Reset() : some_->Set();
  }
  some_->Wait(timeout);
  const std::lock_guard lock(mutex_);
  return deliveries_.size() >= least;
}

std::vector<Delivery> Inbox::Take(runtime::TimeNs timeout, size_t least) {
  if (timeout > 0) Wait(timeout, least);
  const std::lock_guard lock(mutex_);
  wanted_ = 1;
  some_->Reset();
  eventfd_t count;
  if (descriptor_ >= 0) eventfd_read(descriptor_, &count);
  return std::exchange(deliveries_, {});
}

Session::Session(runtime::Runtime& runtime, Engine& engine)
    : runtime_(runtime),
      engine_(engine),
      some_(runtime.NewEvent("requests of a session")),
      metrics_(engine.facts().max_model_len) {
  task_ = runtime.Spawn({.name = "session"}, [this] { Run(); });
}

Session::~Session() { Close(); }

void Session::Run() {
  failed_ = engine_.Run(*this, *this, control_) == RunEnd::kStalled;
  closed_ = true;
  EndAll();
}

void Session::EndAll() {
  std::unordered_map<int64_t, Entry> entries;
  {
    const std::lock_guard lock(mutex_);
    entries.swap(entries_);
    for (std::deque<Request>& waiting : waiting_) waiting.clear();
  }
  for (auto& [id, entry] : entries) {
    entry.inbox->Put({.tag = entry.tag, .result = failed_ ? FailedResult(id) : ClosedResult(id)});
  }
}

std::vector<int64_t> Session::Submit(std::vector<Submitted> requests,
                                     const std::shared_ptr<Inbox>& inbox) {
  std::vector<int64_t> ids;
  ids.reserve(requests.size());
  const runtime::TimeNs now = runtime_.Now();
  {
    const std::lock_guard lock(mutex_);
    for (Submitted& submitted : requests) {
      const int64_t id = next_id_++;
      ids.push_back(id);
      const Request& request = submitted.request;
      entries_.emplace(
          id, Entry{inbox, submitted.tag, {now, request.n, request.sampling.most_tokens()}});
      submitted.request.id = id;
      waiting_[static_cast<size_t>(request.service)].push_back(std::move(submitted.request));
    }
    some_->Set();
  }
  // It may have closed between: then nobody else would answer these.
  if (closed_) EndAll();
  return ids;
}

void Session::Cancel(int64_t id) {
  std::optional<Entry> dropped;
  RequestResult result;
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    const auto drop = [id](std::deque<Request>& waiting) {
      const auto found = std::ranges::lower_bound(waiting, id, {}, &Request::id);
      const bool waits = found != waiting.end() && found->id == id;
      if (waits) waiting.erase(found);
      return waits;
    };
    if (std::ranges::none_of(waiting_, drop)) {
      // Finish takes the lock: it has not returned.
      engine_.Cancel(id);
      return;
    }
    dropped = std::move(found->second);
    entries_.erase(found);
    result = engine::CancelledResult(id);
    metrics_.Add(dropped->asked, result, runtime_.Now());
  }
  dropped->inbox->Put({.tag = dropped->tag, .result = std::move(result)});
}

int64_t Session::num_waiting() const {
  const std::lock_guard lock(mutex_);
  int64_t choices = 0;
  for (const std::deque<Request>& waiting : waiting_) {
    for (const Request& request : waiting) choices += request.n * std::ssize(request.prompts);
  }
  return choices;
}

RequestMetrics Session::metrics() const {
  const std::lock_guard lock(mutex_);
  return metrics_;
}

void Session::Close() {
  closed_ = true;
  control_.abort = true;
  some_->Set();
  std::unique_ptr<runtime::Task> task;
  {
    const std::lock_guard lock(mutex_);
    task = std::move(task_);
  }
  if (task) task->Join();
}

std::optional<Request> Session::Next(bool wait) {
  if (wait) some_->Wait(runtime::kGlance);
  const std::lock_guard lock(mutex_);
  // As they were submitted.
  const auto first = std::ranges::min_element(waiting_, {}, [](const std::deque<Request>& waiting) {
    return waiting.empty() ? std::numeric_limits<int64_t>::max() : waiting.front().id;
  });
  std::optional<Request> request = TakeFirst(&*first);
  if (!request && !closed_) some_->Reset();
  return request;
}

std::optional<Request> Session::NextOf(Service service) {
  const std::lock_guard lock(mutex_);
  return TakeFirst(&waiting_[static_cast<size_t>(service)]);
}

std::optional<Request> Session::TakeFirst(std::deque<Request>* waiting) {
  if (waiting->empty()) return std::nullopt;
  Request request = std::move(waiting->front());
  waiting->pop_front();
  return request;
}

bool Session::Finish(RequestResult result) {
  std::optional<Entry> entry;
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.extract(result.id);
    // Who gave it up has its answer already.
    if (found.empty()) return true;
    entry = std::move(found.mapped());
    metrics_.Add(entry->asked, result, runtime_.Now());
  }
  std::ranges::sort(result.choices, {}, &Choice::index);
  entry->inbox->Put({.tag = entry->tag, .result = std::move(result)});
  return true;
}

void Session::Progress(ChoicePiece piece) {
  std::optional<Entry> entry;
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(piece.id);
    if (found == entries_.end()) return;
    entry = found->second;
  }
  entry->inbox->Put({.tag = entry->tag, .piece = std::move(piece)});
}

}  // namespace forebay::job
