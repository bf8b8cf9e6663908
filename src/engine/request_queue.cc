#include "engine/request_queue.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace forebay::engine {
namespace {

// Tokens of an output, while none has finished.
constexpr double kUnknownOutput = 256;

schedule::LengthView LengthOf(const Request& request) {
  schedule::LengthView length{.choices = request.n * static_cast<int64_t>(request.prompts.size()),
                              .most_output = request.sampling.most_tokens()};
  for (const auto& prompt : request.prompts)
    length.prompt_tokens += static_cast<int64_t>(prompt.size());
  return length;
}

// By service, then by deadline.
bool GoesBefore(const Request& a, const Request& b) {
  const auto key = [](const Request& of) {
    return std::pair(of.service == Service::kBatch, of.deadline_seconds);
  };
  return key(a) < key(b);
}

// Tokens of what another replica computes of it again, and goes on with.
int64_t TokensOf(const RequestState& state) {
  int64_t tokens = 0;
  for (const auto& sequence : state.sequences) {
    if (sequence->phase != Phase::kFinished) tokens += sequence->expected_tokens;
  }
  return tokens;
}

}  // namespace

HandOutLog LogHandOut(std::span<const StepRecord> steps, int replicas) {
  HandOutLog log{.replicas =
                     std::vector<std::vector<HandOutLog::Taking>>(static_cast<size_t>(replicas))};
  for (const StepRecord& step : steps) {
    for (const int64_t id : step.taken)
      log.replicas[static_cast<size_t>(step.replica)].push_back({step.step, id});
  }
  return log;
}

RequestQueue::RequestQueue(runtime::Runtime& runtime, int replicas, size_t most_ahead,
                           RequestSource& source, ResultSink& sink, const HandOutLog* replay,
                           std::atomic<int64_t>* choices_ahead)
    : source_(source),
      sink_(sink),
      most_ahead_(most_ahead),
      replay_(replay),
      choices_ahead_(choices_ahead),
      replayed_(replicas),
      free_(runtime.NewEvent("turn at the job's requests")),
      held_(replicas),
      held_tokens_(replicas),
      left_tokens_(replicas),
      held_interactive_(replicas),
      full_(replicas),
      full_of_people_(replicas),
      loads_(static_cast<size_t>(replicas)),
      replicas_(replicas) {}

double RequestQueue::MeanOutput() const {
  const int64_t choices = choices_;
  return choices > 0 ? static_cast<double>(output_tokens_) / static_cast<double>(choices)
                     : kUnknownOutput;
}

// Steps of several replicas may end at one time, and who asks first finds what the others told
// before theirs. It deals, and takes what was dealt to others, as if those had ended.
double RequestQueue::HeldTokens(int replica, bool after_its_steps) const {
  const auto held = static_cast<double>(held_tokens_[replica]);
  return after_its_steps && held >= 0 ? static_cast<double>(left_tokens_[replica]) : held;
}

double RequestQueue::LeastHeldByOthers(int replica) const {
  double least = std::numeric_limits<double>::infinity();
  for (int each = 0; each < std::ssize(held_tokens_); ++each) {
    const auto held = static_cast<double>(held_tokens_[each]);
    if (each != replica && held >= 0 && !full_[each]) least = std::min(least, held);
  }
  return least;
}

int64_t RequestQueue::FewestInteractiveOfOthers(int replica) const {
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (int each = 0; each < std::ssize(held_tokens_); ++each) {
    if (each != replica && held_tokens_[each] >= 0 && !full_of_people_[each])
      fewest = std::min<int64_t>(fewest, held_interactive_[each]);
  }
  return fewest;
}

const RequestState* RequestQueue::FirstReturned() {
  if (num_returned_ == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  const RequestState* first = nullptr;
  for (const auto& state : returned_) {
    if (first == nullptr || (by_service_ && GoesBefore(state->request, first->request)))
      first = state.get();
  }
  return first;
}

const RequestState* RequestQueue::ReturnedIfNext(double due_by) {
  const RequestState* const first = FirstReturned();
  if (first == nullptr) return nullptr;
  if (by_service_ && first->request.service == Service::kBatch) {
    ReadAhead(false);
    if (interactive_next() || first->request.deadline_seconds > due_by) return nullptr;
  }
  return first;
}

schedule::QueueView RequestQueue::View(int replica, const RequestState* returned) {
  const int64_t unread = source_.ended() ? 0 : source_.remaining();
  const int64_t ahead = static_cast<int64_t>(num_ahead()) + num_returned_;
  schedule::QueueView view{
      .replicas = replicas_,
      // A source that cannot say how much is left leaves the sum unknown.
      .remaining = unread < 0 ? -1 : unread + ahead,
      .held = held_[replica],
      .held_tokens = static_cast<double>(held_tokens_[replica]),
      .least_held_tokens = LeastHeldByOthers(replica),
      .held_interactive = held_interactive_[replica],
      .least_held_interactive = FewestInteractiveOfOthers(replica),
      .held_choices = loads_[replica].choices,
      .held_longest_output = static_cast<double>(loads_[replica].longest_output),
      .at_end = last_.has_value()};
  if (returned != nullptr) {
    view.next_tokens = static_cast<double>(TokensOf(*returned));
    view.next_service = returned->request.service;
  } else if (!ahead_.empty()) {
    view.next_tokens = ahead_.front().tokens;
    view.next_service = ahead_.front().request.service;
  }
  if (last_) {
    view.outputs = last_->outputs(replica);
    view.longest_output = last_->longest_output(replica);
  }
  view.remaining_tokens = tokens_ahead_ + static_cast<double>(returned_tokens_) + UnreadTokens();
  const bool of_others = last_ && !last_->has_own(replica);
  for (int each = 0; each < std::ssize(held_tokens_); ++each)
    view.held_tokens_by_all += std::max(0.0, HeldTokens(each, of_others && each != replica));
  return view;
}

double RequestQueue::UnreadTokens() const {
  const int64_t unread = source_.ended() ? 0 : source_.remaining();
  if (unread <= 0 || requests_read_ == 0) return 0;
  return tokens_read_ / static_cast<double>(requests_read_) * static_cast<double>(unread);
}

std::vector<schedule::DueWork> RequestQueue::Due() {
  std::vector<schedule::DueWork> work;
  // While somebody waits for a request none is ahead.
  if (replay_ || !TakeTurn(false)) return work;
  const double part = 1.0 / std::max<int>(1, replicas_);
  for (size_t i = 0; i < ahead_.size(); ++i) {
    const Ahead& ahead = ahead_[i];
    if (last_ && !last_->has(static_cast<int32_t>(i))) continue;
    if (ahead.request.service != Service::kBatch ||
        ahead.request.deadline_seconds == schedule::kNoDeadline)
      continue;
    work.push_back({.deadline = ahead.request.deadline_seconds,
                    .tokens = part * ahead.tokens,
                    .longest_output = ahead.length.most_output < 0
                                          ? MeanOutput()
                                          : static_cast<double>(ahead.length.most_output)});
  }
  if (!work.empty() && !source_.in_order()) {
    const double latest =
        std::ranges::max_element(work, {}, &schedule::DueWork::deadline)->deadline;
    work.push_back({.deadline = latest, .tokens = part * UnreadTokens()});
  }
  EndTurn();
  return work;
}

bool RequestQueue::TakeTurn(bool wait) {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (!taken_) {
        taken_ = true;
        blocked_ = wait;
        return true;
      }
      if (blocked_ && !wait) return false;  // nothing is there: somebody waits for it
      free_->Reset();
    }
    free_->Wait();
  }
}

void RequestQueue::EndTurn() {
  const std::lock_guard lock(mutex_);
  taken_ = blocked_ = false;
  free_->Set();
}

void RequestQueue::ReadAhead(bool wait) {
  // Neither service stands in line behind what is read ahead of the other.
  for (const Service service : {Service::kInteractive, Service::kBatch}) {
    while (by_service_ && !source_.ended() && HasRoom(service)) {
      std::optional<Request> request = source_.NextOf(service);
      if (!request) break;
      Insert(std::move(*request));
    }
  }
  // A source says that it has ended only to who asks for more.
  const auto room = [&] {
    if (source_.remaining() == 0) return true;
    const size_t people = by_service_ ? std::min(first_batch(), most_ahead_) : 0;
    return num_ahead() - std::min(people, num_ahead()) < most_ahead_ &&
           prompt_tokens_ahead_[0] + prompt_tokens_ahead_[1] < kMostPromptTokensAhead;
  };
  while (room() && ReadOne(wait && num_ahead() == 0)) {
  }
}

bool RequestQueue::HasRoom(Service service) const {
  const size_t people = first_batch(),
               ahead = service == Service::kInteractive ? people : ahead_.size() - people;
  // One prompt may be longer than what may be read ahead.
  return ahead == 0 || (ahead < most_ahead_ && prompt_tokens_ahead_[static_cast<size_t>(service)] <
                                                   kMostPromptTokensAhead);
}

size_t RequestQueue::first_batch() const {
  const auto found = std::ranges::find(ahead_, Service::kBatch,
                                       [](const Ahead& ahead) { return ahead.request.service; });
  return static_cast<size_t>(found - ahead_.begin());
}

bool RequestQueue::ReadOne(bool wait) {
  if (source_.ended()) return false;
  std::optional<Request> request = source_.Next(wait);
  if (!request) return false;
  Insert(std::move(*request));
  return true;
}

void RequestQueue::Insert(Request request) {
  const schedule::LengthView length = LengthOf(request);
  const double tokens = schedule::ExpectedTokens(length, MeanOutput());
  tokens_read_ += tokens;
  ++requests_read_;
  tokens_ahead_ += tokens;
  CountAhead(length.choices);
  prompt_tokens_ahead_[static_cast<size_t>(request.service)] += length.prompt_tokens;
  auto at = ahead_.end();
  while (by_service_ && at != ahead_.begin() && GoesBefore(request, std::prev(at)->request)) --at;
  ahead_.insert(at, {std::move(request), length, tokens});
}

TakenRequest RequestQueue::TakeAt(size_t index) {
  Ahead& ahead = ahead_[index];
  prompt_tokens_ahead_[static_cast<size_t>(ahead.request.service)] -= ahead.length.prompt_tokens;
  TakenRequest taken{std::move(ahead.request), static_cast<int64_t>(MeanOutput())};
  tokens_ahead_ -= ahead.tokens;
  CountAhead(-ahead.length.choices);
  // Dealt requests are known by their index: none may move any more.
  if (!last_) ahead_.erase(ahead_.begin() + static_cast<std::ptrdiff_t>(index));
  return taken;
}

std::optional<TakenRequest> RequestQueue::Replay(int replica, int64_t step) {
  const std::vector<HandOutLog::Taking>& log = replay_->replicas[replica];
  size_t& next = replayed_[replica];
  if (next == log.size() || log[next].step > step) return std::nullopt;
  const int64_t id = log[next++].id;
  // The source need not have the log's order: it is read on until the request is there.
  for (size_t index = 0; index < ahead_.size() || ReadOne(true); ++index) {
    if (ahead_[index].request.id == id) return TakeAt(index);
  }
  return std::nullopt;  // the log is another job's
}

void RequestQueue::Deal(int asks) {
  std::vector<schedule::LengthView> lengths;
  for (const Ahead& ahead : ahead_) lengths.push_back(ahead.length);
  std::vector<double> held;
  for (int replica = 0; replica < std::ssize(held_tokens_); ++replica)
    held.push_back(HeldTokens(replica, replica != asks));
  last_.emplace(lengths, MeanOutput(), std::move(held));
}

std::optional<TakenRequest> RequestQueue::Take(int replica, schedule::Taking taking) {
  if (taking == schedule::Taking::kNothing || num_ahead() == 0) return std::nullopt;
  return TakeAt(
      last_ ? static_cast<size_t>(last_->Take(replica, taking == schedule::Taking::kLongest)) : 0);
}

void RequestQueue::Return(int replica, std::vector<std::unique_ptr<RequestState>> requests) {
  const std::lock_guard lock(mutex_);
  if (replica >= 0) held_[replica] -= std::ssize(requests);
  for (auto& request : requests) {
    returned_tokens_ += TokensOf(*request);
    CountAhead(request->unfinished);
    ++num_returned_;
    returned_.push_back(std::move(request));
  }
}

std::vector<std::unique_ptr<RequestState>> RequestQueue::TakeReturned() {
  std::vector<std::unique_ptr<RequestState>> requests;
  while (const RequestState* const first = FirstReturned())
    requests.push_back(std::move(TakeReturned(first).returned));
  return requests;
}

TakenRequest RequestQueue::TakeReturned(const RequestState* which) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(returned_, which, &std::unique_ptr<RequestState>::get);
  TakenRequest taken{.returned = std::move(*found)};
  returned_.erase(found);
  --num_returned_;
  returned_tokens_ -= TokensOf(*taken.returned);
  CountAhead(-taken.returned->unfinished);
  return taken;
}

// The source may block, so no lock can be held around it; instead replicas take turns, and one that
// holds work goes on without a request while another's turn waits for the source. Near the end the
// order changes, but for requests that come over time: once the source has ended, what was read
// ahead is dealt, so that the longest requests do not all go to whoever asks first. `ended_` is set
// only when nothing is left ahead either, or a replica would leave while requests are still to be
// handed out.
std::optional<TakenRequest> RequestQueue::Next(int replica, int64_t step,
                                               const schedule::Policy& policy, bool wait,
                                               double due_by) {
  if (ended(replica) || !TakeTurn(wait)) return std::nullopt;
  by_service_ = !replay_ && policy.orders_services();
  std::optional<TakenRequest> taken;
  if (replay_) {
    taken = Replay(replica, step);
    if (taken) ++held_[replica];
  } else if (const RequestState* const returned = ReturnedIfNext(due_by)) {
    if (policy.HandOut(View(replica, returned)) != schedule::Taking::kNothing)
      taken = TakeReturned(returned);
    if (taken) ++held_[replica];
  } else if (!ended_) {
    ReadAhead(wait);
    // People go first to the end: what is dealt is the batch's.
    const bool people = by_service_ && interactive_next();
    if (!last_ && source_.ended() && !source_.in_order() && !people) Deal(replica);
    if (NextIsDue(due_by)) taken = Take(replica, policy.HandOut(View(replica, nullptr)));
    if (taken) ++held_[replica];
    if (num_ahead() == 0 && source_.ended()) ended_ = true;
  }
  EndTurn();
  return taken;
}

std::optional<TakenRequest> RequestQueue::NextBatch(int replica) {
  std::optional<TakenRequest> taken;
  if (replay_ || ended(replica) || !TakeTurn(false)) return taken;
  by_service_ = true;
  ReadAhead(false);
  const size_t index = first_batch();
  const RequestState* const returned = FirstReturned();
  if (!last_ && index > 0) {
    if (returned != nullptr && returned->request.service == Service::kBatch) {
      taken = TakeReturned(returned);
    } else if (index < ahead_.size()) {
      taken = TakeAt(index);
    }
  }
  if (taken) ++held_[replica];
  EndTurn();
  return taken;
}

std::vector<int64_t> RequestQueue::Withdraw(int replica,
                                            const std::function<bool(int64_t id)>& cancelled) {
  std::vector<int64_t> withdrawn;
  // Who waits for a request has none ahead. What it gets is looked at after its turn.
  if (replay_ || !TakeTurn(false)) return withdrawn;
  for (size_t index = ahead_.size(); index-- > 0;) {
    const auto dealt = static_cast<int32_t>(index);
    const int64_t id = ahead_[index].request.id;
    if ((last_ && !last_->has(dealt)) || !cancelled(id)) continue;
    if (last_) last_->Remove(dealt);
    TakeAt(index);
    ++held_[replica];
    withdrawn.push_back(id);
  }
  if (num_ahead() == 0 && source_.ended()) ended_ = true;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(returned_, [&](const std::unique_ptr<RequestState>& request) {
      if (!cancelled(request->request.id)) return false;
      --num_returned_;
      returned_tokens_ -= TokensOf(*request);
      CountAhead(-request->unfinished);
      ++held_[replica];
      withdrawn.push_back(request->request.id);
      return true;
    });
  }
  EndTurn();
  return withdrawn;
}

void RequestQueue::Leave(int replica) {
  // Leaving twice counts once.
  if (held_tokens_[replica].exchange(-1) >= 0) --replicas_;
}

void RequestQueue::Move(int from, int to) {
  --held_[from];
  ++held_[to];
}

void RequestQueue::Progress(ChoicePiece piece) {
  const std::lock_guard lock(sink_mutex_);
  if (!sink_failed_) sink_.Progress(std::move(piece));
}

bool RequestQueue::Finish(int replica, RequestResult result) {
  --held_[replica];
  for (const Choice& choice : result.choices)
    output_tokens_ += static_cast<int64_t>(choice.tokens.size());
  choices_ += static_cast<int64_t>(result.choices.size());
  const std::lock_guard lock(sink_mutex_);
  if (sink_failed_ || !sink_.Finish(std::move(result))) sink_failed_ = true;
  return !sink_failed_;
}

}  // namespace forebay::engine
