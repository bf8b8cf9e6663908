#include "device/sim/event_engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "device/lone_worker.h"

namespace forebay::device {
namespace {

constexpr TimePs kPsPerNs = 1000;
// The part of a node's memory that others take at most: copies alone may want more than there is.
constexpr double kMostTaken = 0.99;

TimePs RoundUpToNs(TimePs time) { return (time + kPsPerNs - 1) / kPsPerNs * kPsPerNs; }

// Each part of the work by its own slowdown: the speed of the mixture.
double SpeedBeside(const cost::CopyLoad& load, const SimWork& work,
                   const cost::Contention& contention, double others = 0) {
  const cost::Work alone{static_cast<double>(work.alone), static_cast<double>(work.compute),
                         work.memory};
  return 1 / cost::Slowdown(alone, load, contention, others);
}

}  // namespace

SimWork WorkOf(const SimPrice& price) {
  FB_CHECK(price.seconds >= 0 && price.seconds < 1e6, "an operation takes {} s", price.seconds);
  const auto alone = static_cast<TimePs>(std::llround(price.seconds * kPsPerSecond));
  if (price.compute_bound) return {.alone = alone, .compute = alone};
  return {.alone = alone, .memory = price.memory_share * static_cast<double>(alone)};
}

EventEngine::EventEngine(runtime::VirtualRuntime& runtime, uint64_t seed, LinkSharing sharing,
                         double host_bytes_per_s)
    : runtime_(runtime),
      ties_(seed),
      links_(sharing),
      host_out_(links_.Add(host_bytes_per_s)),
      host_in_(links_.Add(host_bytes_per_s)),
      node_of_link_(2, kHost),
      now_(runtime.Now() * kPsPerNs) {
  runtime_.SetTimedWork(this);
}

EventEngine::~EventEngine() { runtime_.SetTimedWork(nullptr); }

int EventEngine::AddNode(const SimNodeOptions& options) {
  const int id = static_cast<int>(nodes_.size());
  Node& node = nodes_.emplace_back();
  node.options = options;
  node.egress = links_.Add(options.egress_bytes_per_s);
  node.ingress = links_.Add(options.ingress_bytes_per_s);
  node.from_host = options.one_link ? node.ingress : links_.Add(options.from_host_bytes_per_s);
  node.to_host = options.one_link ? node.egress : links_.Add(options.to_host_bytes_per_s);
  node_of_link_.resize(static_cast<size_t>(std::max(node.ingress, node.to_host)) + 1, id);
  return id;
}

int EventEngine::AddStream(std::string name, int node, bool computes, WaitCause cause) {
  Stream& stream = *streams_.emplace_back(std::make_unique<Stream>());
  stream.name = std::move(name);
  stream.id = static_cast<int>(streams_.size()) - 1;
  stream.node = node;
  stream.computes = computes;
  stream.cause = cause;
  FB_CHECK(!computes || nodes_[node].compute == nullptr, "a second compute stream on node {}",
           node);
  if (computes) nodes_[node].compute = &stream;
  due_.Resize(static_cast<int>(streams_.size()));
  ready_.reserve(streams_.size());
  return stream.id;
}

void EventEngine::Run(int stream, const SimWork& work, const Operation* operation, int account) {
  Push(stream, {.kind = Kind::kRun, .account = account, .work = work}, operation);
}

void EventEngine::Run(int stream, BeginPricer& pricer, const Operation& operation, int account) {
  Push(stream, {.kind = Kind::kRun, .account = account, .pricer = &pricer}, &operation);
}

void EventEngine::Transfer(int stream, int from, int to, uint64_t bytes, int window,
                           const Operation* operation) {
  FB_CHECK(from != to && window > 0, "a transfer from node {} to node {}, {} at once", from, to,
           window);
  Push(stream, {.kind = Kind::kTransfer, .from = from, .to = to, .window = window, .amount = bytes},
       operation);
}

void EventEngine::Wait(int stream, int awaited, uint64_t position) {
  FB_CHECK(position <= pushed(awaited), "'{}' waits for a point of '{}' that was never recorded",
           streams_[stream]->name, streams_[awaited]->name);
  // What has been reached needs no item, unless its stream failed: then the wait has to pass the
  // fault on.
  if (stream == awaited || (Reached(awaited, position) && streams_[awaited]->fault.ok())) return;
  const WaitCause cause = streams_[awaited]->cause;
  Push(stream, {.kind = Kind::kWait, .from = awaited, .cause = cause, .amount = position}, nullptr);
}

void EventEngine::Repeat(int stream, std::span<const SimStep> body, int64_t times) {
  Stream& target = *streams_[stream];
  target.bodies.Push({.times = times});
  Bodies& bodies = target.bodies[target.bodies.end() - 1];
  bodies.steps.assign(body.begin(), body.end());
  for (const SimStep& step : bodies.steps) {
    bodies.copies |= step.kind == SimStep::Kind::kTransfer;
    if (step.kind == SimStep::Kind::kPost) counters_[step.counter].poster = stream;
    if (step.meets()) ++counters_[step.counter].in_body;
  }
  // How often a body names a counter is by how much its values grow from body to body.
  for (SimStep& step : bodies.steps) {
    if (step.meets()) step.growth = counters_[step.counter].in_body;
  }
  for (const SimStep& step : bodies.steps) {
    if (step.meets()) counters_[step.counter].in_body = 0;
  }
  Push(stream, {.kind = Kind::kRepeat}, nullptr);
}

int EventEngine::AddCounter() {
  counters_.emplace_back();
  return static_cast<int>(counters_.size()) - 1;
}

void EventEngine::Post(int stream, int counter, uint64_t value) {
  Push(stream, {.kind = Kind::kPost, .from = counter, .amount = value}, nullptr);
}

void EventEngine::Await(int stream, int counter, uint64_t value, WaitCause cause) {
  Push(stream, {.kind = Kind::kAwait, .from = counter, .cause = cause, .amount = value}, nullptr);
}

void EventEngine::Abort(int counter, const base::Status& why) {
  CounterState& state = counters_[counter];
  // A jump has reckoned with all posts to its end: its streams go on step by step from now.
  skip_.aborted = true;
  if (state.poster >= 0 && streams_[state.poster]->jump != nullptr)
    LeaveJump(*streams_[state.poster]->jump);
  if (state.fault.ok()) state.fault = why;
  Raise(state, UINT64_MAX);
}

void EventEngine::Raise(CounterState& counter, uint64_t value) {
  counter.value = std::max(counter.value, value);
  WakeStreams(counter.first_waiter, counter.value);
}

void EventEngine::Push(int stream, Item item, const Operation* operation) {
  Stream& target = *streams_[stream];
  item.kept = operation != nullptr &&
              (checker_ != nullptr || operation->control || operation->complete != nullptr);
  if (item.kept) target.operations.Push(*operation);
  target.items.Push(item);
  // Else items before it have yet to start, and the stream comes to it by itself.
  if (target.started + 1 == target.items.end()) MakeReady(target);
}

bool EventEngine::WaitFor(int stream, uint64_t position, runtime::TimeNs timeout) {
  if (Reached(stream, position)) return true;
  Stream& awaited = *streams_[stream];
  std::unique_ptr<runtime::Event> event;
  if (awaited.idle_events.empty()) {
    event = runtime_.NewEvent("progress of " + awaited.name);
  } else {
    event = std::move(awaited.idle_events.back());
    awaited.idle_events.pop_back();
  }
  Waiter waiter{position, event.get()};
  awaited.control_waiters.push_back(&waiter);
  event->Wait(timeout);
  std::erase(awaited.control_waiters, &waiter);
  event->Reset();
  awaited.idle_events.push_back(std::move(event));
  return Reached(stream, position);
}

void EventEngine::AddMemory(const void* data, uint64_t bytes, int node) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const auto after = std::ranges::upper_bound(memory_, begin, {}, &Memory::begin);
  memory_.insert(after, {begin, begin + bytes, node});
}

void EventEngine::RemoveMemory(int node) {
  std::erase_if(memory_, [node](const Memory& memory) { return memory.node == node; });
}

int EventEngine::NodeOf(const void* data) const {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const auto after = std::ranges::upper_bound(memory_, address, {}, &Memory::begin);
  return after != memory_.begin() && address < (after - 1)->end ? (after - 1)->node : kHost;
}

runtime::TimeNs EventEngine::RunUntil(runtime::TimeNs limit) {
  TimePs end = limit == runtime::kForever ? kNever : limit * kPsPerNs;
  FB_CHECK(end >= now_, "the device plane is at {} ps, its runtime wants {}", now_, end);
  woke_task_ = false;
  for (;;) {
    AdvanceReady();
    // Time may not run past a task that has something to do: it is the runtime's turn then.
    if (woke_task_) end = std::min(end, RoundUpToNs(now_));
    // Rates are worked out once for all that happens at one time.
    if (std::min(due_.top_time(), links_.next()) != now_) {
      Settle();
      if (std::exchange(skip_.begins, false)) SkipBodies(end);
      const TimePs next = std::min(due_.top_time(), links_.next());
      if (next > end || next == kNever) break;
      FB_CHECK(next >= now_, "an event at {} ps is due at {}", next, now_);
      now_ = next;
    }
    if (due_.top_time() == now_) EndRun(*streams_[due_.Pop()]);
    if (links_.next() == now_) PopFlow();
  }
  if (end == kNever) return runtime::kForever;
  now_ = end;
  return end / kPsPerNs;
}

void EventEngine::EndRun(Stream& stream) {
  Item& item = stream.items[stream.items.begin()];
  stream.running = false;
  memory_use_changed_ |= stream.computes && nodes_[stream.node].shares_memory();
  if (stream.jump != nullptr) {
    EndJump(stream);
  } else {
    stream.busy += now_ - item.start;
    if (item.account >= 0) {
      const auto account = static_cast<size_t>(item.account);
      if (stream.spent.size() <= account) stream.spent.resize(account + 1);
      stream.spent[account] += now_ - item.start;
    }
    if (item.kind != Kind::kRepeat) End(stream, item);
  }
  MakeReady(stream);
}

void EventEngine::PopFlow() {
  ++num_events_;
  uint64_t tag = 0;
  if (!links_.Pop(now_, &tag)) return;
  Stream& stream = *streams_[tag >> 32];
  // The tag has the low half of the item's number; it is less than 2^32 behind the first that is
  // there.
  const uint64_t first = stream.items.begin();
  if (--stream.under_way == 0) stream.moved += now_ - stream.moving_since;
  Item& item = stream.items[first + static_cast<uint32_t>(tag - first)];
  if (item.kind == Kind::kTransfer) End(stream, item);
  MakeReady(stream);
}

void EventEngine::MakeReady(Stream& stream) {
  if (stream.queued) return;
  stream.queued = true;
  ready_.push_back(&stream);
}

void EventEngine::AdvanceReady() {
  while (!ready_.empty()) {
    // Nothing orders what happens at one time, so the seed does: no result may hang on the order of
    // a list.
    if (ready_.size() > 1) std::swap(ready_[ties_.Below(ready_.size())], ready_.back());
    Stream& stream = *ready_.back();
    ready_.pop_back();
    stream.queued = false;
    Advance(stream);
  }
}

void EventEngine::Advance(Stream& stream) {
  do {
    while (stream.items.begin() < stream.started && stream.items[stream.items.begin()].done)
      Retire(stream);
  } while (StartNext(stream));
}

// Starts the next item if it may; returns whether another look is worthwhile.
bool EventEngine::StartNext(Stream& stream) {
  if (stream.started == stream.items.end()) return false;
  Item& item = stream.items[stream.started];
  const bool alone = stream.started == stream.items.begin();
  if (item.kind == Kind::kTransfer) {
    // A transfer may start beside transfers of its stream, and behind nothing else that is under
    // way.
    if (!alone && stream.items[stream.started - 1].kind != Kind::kTransfer) return false;
    if (stream.under_way >= item.window) return false;
    StartTransfer(stream, item);
  } else {
    if (!alone) return false;
    const bool waits = item.kind == Kind::kWait || item.kind == Kind::kAwait;
    if (waits && !StartWait(stream, item)) return false;
    if (item.kind == Kind::kPost) {
      if (stream.fault.ok()) Raise(counters_[item.from], item.amount);
      item.done = true;
    }
    if (item.kind == Kind::kRun) StartRun(stream, item);
    if (item.kind == Kind::kRepeat && !StartRepeat(stream, item)) return false;
  }
  ++stream.started;
  // Behind a run nothing starts until it ends.
  return item.kind != Kind::kRun || item.done;
}

void EventEngine::StartRun(Stream& stream, Item& item) {
  if (!stream.fault.ok()) return Skip(stream, item);
  BeginChecked(stream, item);
  if (item.pricer != nullptr)
    item.work = item.pricer->PriceAtBegin(stream.operations[stream.started_operations - 1]);
  BeginWork(stream, item.work);
}

void EventEngine::BeginWork(Stream& stream, const SimWork& work) {
  stream.running = true;
  stream.remaining = static_cast<double>(work.alone);
  stream.since = now_;
  const Node& node = nodes_[stream.node];
  stream.speed = stream.computes ? SpeedBeside(node.copy_load, work, node.options.contention) : 1;
  memory_use_changed_ |= stream.computes && node.shares_memory();
  due_.Set(stream.id, now_ + WholePs(stream.remaining / stream.speed),
           static_cast<uint32_t>(ties_.Next()));
}

void EventEngine::StartTransfer(Stream& stream, Item& item) {
  if (!stream.fault.ok()) return Skip(stream, item);
  BeginChecked(stream, item);
  const Operation* const operation =
      item.kept ? &stream.operations[stream.started_operations - 1] : nullptr;
  if (operation != nullptr && operation->complete != nullptr) {
    item.amount = static_cast<uint64_t>(operation->CompleteDesc().read_bytes);
    // Nothing to move: not even a request is sent.
    if (item.amount == 0) return End(stream, item);
  }
  StartFlow(stream, item.from, item.to, item.amount);
}

// Moves the bytes of the stream's item that starts, or goes on.
void EventEngine::StartFlow(Stream& stream, int from, int to, uint64_t bytes) {
  if (stream.under_way++ == 0) stream.moving_since = now_;
  Node& node = nodes_[to == kHost ? from : to];
  if (from != kHost && to != kHost) {
    node.moved_from.resize(nodes_.size());
    node.moved_from[static_cast<size_t>(from)] += bytes;
  }
  const int source = from == kHost ? host_out_ : to == kHost ? node.to_host : nodes_[from].egress;
  const int target = to == kHost ? host_in_ : from == kHost ? node.from_host : node.ingress;
  const auto latency =
      static_cast<TimePs>(std::llround(node.options.request_latency_s * kPsPerSecond));
  links_.Start(now_, now_ + latency, source, target, bytes,
               static_cast<uint64_t>(stream.id) << 32 | static_cast<uint32_t>(stream.started));
}

// True if there is nothing to wait for any more.
bool EventEngine::StartWait(Stream& stream, Item& item) {
  if (item.kind == Kind::kAwait) {
    CounterState& counter = counters_[item.from];
    item.done = Pass(stream, counter.value, item.amount, counter.fault, counter.first_waiter);
  } else {
    Stream& awaited = *streams_[item.from];
    item.done =
        Pass(stream, awaited.items.begin(), item.amount, awaited.fault, awaited.first_waiter);
  }
  return item.done;
}

// The same of what has been reached; `fault` is its.
bool EventEngine::Pass(Stream& stream, uint64_t reached, uint64_t wanted, const base::Status& fault,
                       Stream*& waiters) {
  if (reached >= wanted || !stream.fault.ok()) {
    if (stream.fault.ok()) stream.fault = fault;
    return true;
  }
  // It may have been looked at before, and stands in the list already.
  if (!stream.waiting) StandAt(stream, now_, wanted, waiters);
  return false;
}

void EventEngine::StandAt(Stream& stream, TimePs since, uint64_t wanted, Stream*& waiters) {
  stream.waiting = true;
  stream.waiting_since = since;
  stream.awaited_position = wanted;
  stream.next_waiter = std::exchange(waiters, &stream);
}

void EventEngine::Skip(Stream& stream, Item& item) {
  if (item.kept) ++stream.started_operations;
  item.done = true;
}

void EventEngine::BeginChecked(Stream& stream, Item& item) {
  item.start = now_;
  if (!item.kept) return;
  const Operation& operation = stream.operations[stream.started_operations++];
  if (checker_ != nullptr) item.token = checker_->Begin(stream.name, operation);
}

void EventEngine::End(Stream& stream, Item& item) {
  FB_CHECK(!item.done && item.start <= now_, "an item of '{}' ends before it starts", stream.name);
  item.done = true;
  if (item.token >= 0) checker_->End(item.token);
}

void EventEngine::Retire(Stream& stream) {
  Item& item = stream.items[stream.items.begin()];
  if (item.kept) {
    const Operation& operation = stream.operations[stream.operations.begin()];
    // A stream that failed must not tell anybody what did not happen.
    if (operation.control && stream.fault.ok()) operation.run(operation.args.data(), LoneWorker());
    stream.operations.Pop();
  }
  trace_hash_ = base::Combine64(
      trace_hash_, static_cast<uint64_t>(now_) << 8 ^ static_cast<uint64_t>(stream.id));
  ++num_events_;
  if (item.kind == Kind::kRepeat) stream.bodies.Pop();
  stream.items.Pop();
  if (stream.first_waiter != nullptr || !stream.control_waiters.empty()) WakeWaiters(stream);
}

void EventEngine::WakeStreams(Stream*& first_waiter, uint64_t reached) {
  Stream** link = &first_waiter;
  while (*link != nullptr) {
    Stream& waiter = **link;
    // Who waits for more stays in the list.
    if (waiter.awaited_position > reached) {
      link = &waiter.next_waiter;
      continue;
    }
    *link = std::exchange(waiter.next_waiter, nullptr);
    waiter.waiting = false;
    const WaitCause cause = waiter.items[waiter.items.begin()].cause;
    waiter.waited[static_cast<size_t>(cause)] += now_ - waiter.waiting_since;
    MakeReady(waiter);
  }
}

void EventEngine::WakeWaiters(Stream& stream) {
  const uint64_t retired = stream.items.begin();
  WakeStreams(stream.first_waiter, retired);
  for (Waiter* waiter : stream.control_waiters) {
    if (waiter->position > retired) continue;
    waiter->event->Set();
    woke_task_ = true;
  }
}

// New rates, and what they mean for the kernels beside the copies.
void EventEngine::Settle() {
  for (const int link : links_.Settle(now_)) {
    if (node_of_link_[link] == kHost) continue;
    Node& node = nodes_[node_of_link_[link]];
    node.copy_load = {.in = links_.load(node.ingress), .out = links_.load(node.egress)};
    if (!node.options.one_link) {
      node.copy_load.in += links_.load(node.from_host);
      node.copy_load.out += links_.load(node.to_host);
    }
    Disturb(node);
    if (node.shares_memory()) {
      memory_use_changed_ = true;
    } else {
      SetSpeed(node, 0);
    }
  }
  if (std::exchange(memory_use_changed_, false)) ShareMemory();
}

// A kernel gets what the others leave: those that read less than an equal part keep it, all others
// have an equal part of the rest.
void EventEngine::ShareMemory() {
  memory_uses_.clear();
  double machine = 0;
  for (const Node& node : nodes_) {
    if (!node.shares_memory()) continue;
    if (memory_uses_.empty()) machine = node.options.contention.machine_bytes_per_s;
    machine -= node.copy_load.in + node.copy_load.out;
    double read = 0;
    if (node.compute != nullptr && node.compute->running) {
      const SimWork& work = node.compute->items[node.compute->items.begin()].work;
      if (work.alone > 0)
        read = work.memory / static_cast<double>(work.alone) *
               node.options.contention.memory_bytes_per_s;
    }
    memory_uses_.push_back({&node, read});
  }
  std::ranges::sort(memory_uses_, {}, &MemoryUse::bytes_per_s);
  for (const MemoryUse& use : memory_uses_) {
    double left = machine;
    auto users = static_cast<double>(memory_uses_.size());
    for (const MemoryUse& other : memory_uses_) {
      if (&other == &use) continue;
      if (other.bytes_per_s > left / users) break;
      left -= other.bytes_per_s;
      --users;
    }
    const double alone = use.node->options.contention.memory_bytes_per_s;
    SetSpeed(*use.node, std::clamp(1 - left / users / alone, 0.0, kMostTaken));
  }
}

// Sets the speed of the kernel that runs on the node.
void EventEngine::SetSpeed(const Node& node, double others) {
  if (node.compute == nullptr || !node.compute->running) return;
  Stream& stream = *node.compute;
  const double speed = SpeedBeside(node.copy_load, stream.items[stream.items.begin()].work,
                                   node.options.contention, others);
  // Unchanged, its end stays as it is: to reckon it again would only round again.
  if (speed == stream.speed) return;
  stream.remaining =
      std::max(0.0, stream.remaining - stream.speed * static_cast<double>(now_ - stream.since));
  stream.since = now_;
  stream.speed = speed;
  due_.Set(stream.id, now_ + WholePs(stream.remaining / speed),
           static_cast<uint32_t>(ties_.Next()));
}

}  // namespace forebay::device
