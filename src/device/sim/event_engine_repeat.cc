// Bodies that a stream repeats: run item by item, or, where streams that meet repeat theirs
// together, worked out at once (jump.h) or passed over once all is where it was a body ago.
#include <algorithm>
#include <utility>

#include "device/sim/event_engine.h"

namespace forebay::device {

// True: all bodies have ended. Another look before a run of theirs has ended changes nothing.
bool EventEngine::StartRepeat(Stream& stream, Item& item) {
  if (stream.running) return false;
  Bodies& bodies = stream.bodies[stream.bodies.begin()];
  if (!bodies.begun) {
    const cost::CopyLoad& load = nodes_[stream.node].copy_load;
    bodies.begun = true;
    bodies.disturbed = load.in + load.out > 0;
    bodies.begin = now_;
    bodies.busy = stream.busy;
    bodies.waited = stream.waited_for_peers();
    // The last of those that meet to begin finds all others begun, and works out all.
    if (bodies.copies && skip_.leader == nullptr) {
      skip_.leader = &stream;
      skip_.now.known = false;
    }
    TryJump(stream);
    if (stream.jump != nullptr) return false;
  }
  while (bodies.body < bodies.times && stream.fault.ok()) {
    if (bodies.step == bodies.steps.size()) {
      bodies.step = 0;
      ++bodies.body;
      skip_.begins |= &stream == skip_.leader;
      continue;
    }
    if (!StartStep(stream, item, bodies)) return false;
  }
  if (stream.under_way > 0) return false;
  if (&stream == skip_.leader) skip_.leader = nullptr;
  item.done = true;
  return true;
}

// False: the stream goes on with the next step later.
bool EventEngine::StartStep(Stream& stream, Item& item, Bodies& bodies) {
  const SimStep& step = bodies.steps[bodies.step];
  const bool copies = step.kind == SimStep::Kind::kTransfer;
  if (stream.under_way >= (copies ? step.window : 1)) return false;
  const uint64_t value = step.value + static_cast<uint64_t>(bodies.body) * step.growth;
  if (step.kind == SimStep::Kind::kAwait) {
    CounterState& counter = counters_[step.counter];
    if (!Pass(stream, counter.value, value, counter.fault, counter.first_waiter)) return false;
  }
  ++bodies.step;
  if (step.kind == SimStep::Kind::kPost) Raise(counters_[step.counter], value);
  if (copies) StartFlow(stream, step.from, step.to, step.bytes);
  if (step.kind != SimStep::Kind::kRun) return true;
  item.work = step.work;
  item.start = now_;
  BeginWork(stream, step.work);
  return false;
}

// What runs or copies and is in no repeated body is not where it was a body ago. So all that is to
// happen before `end` is the same again, up to the last body that all streams have.
void EventEngine::SkipBodies(TimePs end) {
  if (skip_.leader == nullptr || skip_.aborted) return;
  std::swap(skip_.now, skip_.before);
  Scene& now = skip_.now;
  const Scene& before = skip_.before;
  now.Begin(now_);
  int64_t count = kNever;
  const int64_t first = BegunBodies(*skip_.leader)->body;
  for (const std::unique_ptr<Stream>& each : streams_) {
    Stream& stream = *each;
    const Bodies* const bodies = BegunBodies(stream);
    const TimePs due = due_.time_of(stream.id);
    for (const uint64_t place : {stream.items.begin(), stream.started})
      now.places.push_back(static_cast<int64_t>(place));
    now.places.push_back(stream.under_way);
    now.places.push_back(due == kNever ? kNever : due - now_);
    if (bodies != nullptr) {
      now.places.push_back(bodies->body - first);
      now.places.push_back(static_cast<int64_t>(bodies->step));
      count = std::min(count, bodies->times - 1 - bodies->body);
    } else if (stream.waiting) {
      // It may wait for a value that comes in the midst of what would be passed over.
      const Item& item = stream.items[stream.items.begin()];
      if (item.kind == Kind::kAwait && counters_[item.from].poster >= 0 &&
          BegunBodies(*streams_[counters_[item.from].poster]) != nullptr)
        return;
    }
    // What has begun counts up to now: it may have begun otherwise a body ago.
    now.busy.push_back(stream.busy);
    now.waited.push_back(stream.waited_for_peers());
    now.moved.push_back(stream.moved);
    if (stream.running) {
      const double done = stream.speed * static_cast<double>(now_ - stream.since);
      now.runs.push_back(stream.remaining - done);
      now.runs.push_back(stream.speed);
      now.busy.back() += now_ - stream.items[stream.items.begin()].start;
    }
    if (stream.waiting) now.waited.back() += now_ - stream.waiting_since;
    if (stream.under_way > 0) now.moved.back() += now_ - stream.moving_since;
  }
  links_.Observe(now_, &now.flows, &now.carried);
  const TimePs period = now_ - before.time;
  if (!now.IsLike(before) || period == 0) return;
  count = std::min(count, (end - now_) / period);
  if (count <= 0) return;
  const TimePs time = count * period;
  const auto more = static_cast<uint64_t>(count);
  for (size_t id = 0; id < streams_.size(); ++id) {
    Stream& stream = *streams_[id];
    Bodies* const bodies = BegunBodies(stream);
    if (bodies == nullptr) continue;
    stream.busy += count * (now.busy[id] - before.busy[id]);
    stream.waited_for_peers() += count * (now.waited[id] - before.waited[id]);
    stream.moved += count * (now.moved[id] - before.moved[id]);
    stream.since += time;
    stream.waiting_since += time;
    stream.moving_since += time;
    stream.items[stream.items.begin()].start += time;
    if (stream.waiting) stream.awaited_position += more * bodies->steps[bodies->step].growth;
    bodies->body += count;
    for (const SimStep& step : bodies->steps) {
      if (step.kind == SimStep::Kind::kPost) counters_[step.counter].value += more;
      if (step.kind == SimStep::Kind::kTransfer && step.from != kHost && step.to != kHost)
        nodes_[step.to].moved_from[static_cast<size_t>(step.from)] += more * step.bytes;
    }
  }
  due_.Delay(time);
  links_.Skip(now_, time, count, before.carried);
  now_ += time;
  now.known = false;
}

// Those at the head that have begun; null: the head is nothing of the kind.
EventEngine::Bodies* EventEngine::BegunBodies(Stream& stream) {
  const uint64_t head = stream.items.begin();
  if (head == stream.items.end() || stream.items[head].kind != Kind::kRepeat) return nullptr;
  Bodies& bodies = stream.bodies[stream.bodies.begin()];
  return bodies.begun ? &bodies : nullptr;
}

// All streams that `stream` meets, and that those meet; false: one is not where it may jump.
bool EventEngine::FindPeers(Stream& stream) {
  peers_.assign(1, &stream);
  stream.mark = ++last_mark_;
  const int64_t times = stream.bodies[stream.bodies.begin()].times;
  for (size_t i = 0; i < peers_.size(); ++i) {
    Stream& peer = *peers_[i];
    const Bodies* bodies = BegunBodies(peer);
    if (bodies == nullptr || bodies->copies || bodies->disturbed || bodies->times != times ||
        !peer.fault.ok() || peer.jump != nullptr)
      return false;
    for (const SimStep& step : bodies->steps) {
      if (step.kind != SimStep::Kind::kAwait) continue;
      const int poster = counters_[step.counter].poster;
      if (poster < 0) return false;
      Stream& other = *streams_[poster];
      if (std::exchange(other.mark, last_mark_) != last_mark_) peers_.push_back(&other);
    }
  }
  return true;
}

void EventEngine::TryJump(Stream& stream) {
  if (!FindPeers(stream)) return;
  if (idle_jumps_.empty()) idle_jumps_.push_back(std::make_unique<Jump>());
  Jump& jump = *idle_jumps_.back();
  jump.Clear();
  for (Stream* const peer : peers_) {
    Bodies& bodies = *BegunBodies(*peer);
    Jump::Member& member = jump.Add();
    member.stream = peer->id;
    member.begin = bodies.begin;
    // Lent for the time of the jump: bodies may be long.
    std::swap(member.steps, bodies.steps);
  }
  const bool works = jump.Finish(stream.bodies[stream.bodies.begin()].times);
  if (works) return EnterJump(jump);
  for (Jump::Member& member : jump.members())
    std::swap(member.steps, BegunBodies(*streams_[member.stream])->steps);
}

// The one that was just worked out.
void EventEngine::EnterJump(Jump& jump) {
  for (const Jump::Member& member : jump.members()) {
    Stream& stream = *streams_[member.stream];
    if (std::exchange(stream.waiting, false)) {
      const SimStep& step = member.steps[BegunBodies(stream)->step];
      // It stood in front of an await while the last one was still to begin; the jump knows when
      // that passes.
      Stream** link = &counters_[step.counter].first_waiter;
      while (*link != &stream) link = &(*link)->next_waiter;
      *link = std::exchange(stream.next_waiter, nullptr);
    }
    stream.jump = &jump;
    stream.running = true;
    due_.Set(stream.id, member.time, static_cast<uint32_t>(ties_.Next()));
  }
  for (const Jump::Meeting& meeting : jump.meetings())
    counters_[meeting.counter].value = meeting.latest;
  jumps_.push_back(std::move(idle_jumps_.back()));
  idle_jumps_.pop_back();
}

void EventEngine::EndJump(Stream& stream) {
  Jump& jump = *stream.jump;
  Bodies& bodies = *BegunBodies(stream);
  const auto member = std::ranges::find(jump.members(), stream.id, &Jump::Member::stream);
  stream.busy = bodies.busy + member->ran;
  stream.waited_for_peers() = bodies.waited + member->stood;
  bodies.body = bodies.times;
  stream.jump = nullptr;
  RetireIfLeft(jump);
}

// The jump may serve again once no stream is in it.
void EventEngine::RetireIfLeft(Jump& jump) {
  const bool left = std::ranges::none_of(jump.members(), [&](const Jump::Member& member) {
    return streams_[member.stream]->jump == &jump;
  });
  if (!left) return;
  const auto own = std::ranges::find(jumps_, &jump, &std::unique_ptr<Jump>::get);
  idle_jumps_.push_back(std::move(*own));
  jumps_.erase(own);
}

// Puts its streams where they are now. Those that end now do so.
void EventEngine::LeaveJump(Jump& jump) {
  if (!jump.StopAt(now_)) return;
  for (const Jump::Meeting& meeting : jump.meetings())
    counters_[meeting.counter].value = meeting.latest;
  for (Jump::Member& member : jump.members()) {
    Stream& stream = *streams_[member.stream];
    if (stream.jump != &jump || member.body == jump.times()) continue;
    Bodies& bodies = *BegunBodies(stream);
    std::swap(member.steps, bodies.steps);
    bodies.body = member.body;
    bodies.step = member.step;
    // A jump takes bodies from their begin: in the midst of them none may take this stream in.
    bodies.disturbed = true;
    stream.jump = nullptr;
    stream.busy = bodies.busy + member.ran;
    stream.waited_for_peers() = bodies.waited + member.stood;
    const SimStep& step = bodies.steps[member.step];
    stream.running = step.kind == SimStep::Kind::kRun;
    if (stream.running) {
      Item& item = stream.items[stream.items.begin()];
      item.work = step.work;
      item.start = member.time;
      ++bodies.step;
      stream.remaining = static_cast<double>(step.work.alone);
      stream.since = member.time;
      stream.speed = 1;
      due_.Set(stream.id, member.time + step.work.alone, static_cast<uint32_t>(ties_.Next()));
    } else {
      due_.Set(stream.id, kNever, 0);
      StandAt(stream, member.time, step.value + static_cast<uint64_t>(bodies.body) * step.growth,
              counters_[step.counter].first_waiter);
    }
  }
  RetireIfLeft(jump);
}

// A copy comes beside what the node computes.
void EventEngine::Disturb(const Node& node) {
  if (node.compute == nullptr) return;
  if (node.compute->jump != nullptr) LeaveJump(*node.compute->jump);
  if (Bodies* const bodies = BegunBodies(*node.compute)) bodies->disturbed = true;
}

}  // namespace forebay::device
