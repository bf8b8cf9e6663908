#include "device/cpu/stream.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "device/cpu/counter.h"

namespace forebay::device {
namespace {

// The control task must not take a core from the workers that it waits for.
constexpr runtime::TimeNs kControlSpin = 0;

runtime::TimeNs ProcessorTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

const char* NameOf(const Command& command) {
  switch (command.kind) {
    case Command::Kind::kRun: return command.operation.desc.label;
    case Command::Kind::kWait: return command.awaited->name();
    default: return command.counter->name();
  }
}

}  // namespace

CpuStream::CpuStream(runtime::Runtime& runtime, CpuStreamOptions options)
    : runtime_(runtime),
      options_(std::move(options)),
      delays_(options_.seed),
      progress_(runtime, options_.team.name),
      bell_(runtime, fmt::format("commands for {}", options_.team.name)) {
  task_ = runtime.Spawn({.name = options_.team.name,
                         .core = options_.team.cores.empty() ? -1 : options_.team.cores[0],
                         .flush_denormals = true},
                        [this] { Serve(); });
}

CpuStream::~CpuStream() {
  queue_.Back().kind = Command::Kind::kStop;
  Push();
  task_.reset();
}

void CpuStream::Enqueue(const Operation& operation) {
  FB_CHECK(operation.run != nullptr, "operation '{}' has no code", operation.desc.label);
  Command& command = queue_.Back();
  command.kind = Command::Kind::kRun;
  command.operation = operation;
  Push();
}

void CpuStream::Record(DeviceEvent& event) {
  auto& cpu_event = static_cast<CpuEvent&>(event);
  cpu_event.stream = &progress_;
  cpu_event.position = queue_.pushed();
  cpu_event.cause = options_.cause;
}

void CpuStream::Wait(const DeviceEvent& event) {
  const auto& point = static_cast<const CpuEvent&>(event);
  // An event that was never recorded holds nobody; one of this stream comes in order anyway.
  if (point.stream == nullptr || point.stream == &progress_) return;
  if (point.stream->Reached(point.position) && !point.stream->failed()) return;
  Command& command = queue_.Back();
  command.kind = Command::Kind::kWait;
  command.awaited = point.stream;
  command.position = point.position;
  command.cause = point.cause;
  Push();
}

void CpuStream::Post(Counter& counter, uint64_t value) {
  PushCounter(Command::Kind::kPost, counter, value);
}

void CpuStream::Await(Counter& counter, uint64_t value) {
  PushCounter(Command::Kind::kAwait, counter, value);
}

void CpuStream::PushCounter(Command::Kind kind, Counter& counter, uint64_t value) {
  Command& command = queue_.Back();
  command.kind = kind;
  command.counter = static_cast<CpuCounter*>(&counter);
  command.position = value;
  command.cause = counter.cause();
  Push();
}

void CpuStream::Push() {
  queue_.Back().layer = layer_;
  queue_.Push();
  bell_.Ring();
}

base::Status CpuStream::Synchronize() {
  progress_.WaitFor(queue_.pushed(), kControlSpin);
  const std::lock_guard lock(mutex_);
  // An operation's fault is told once and the stream goes on; a dead stream stays so.
  return dead_ ? fault_ : std::exchange(fault_, base::Status::Ok());
}

base::Status CpuStream::fault() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

void CpuStream::Fail(base::Status fault) {
  const std::lock_guard lock(mutex_);
  if (fault_.ok()) fault_ = std::move(fault);
}

void CpuStream::Serve() {
  Team team(runtime_, options_.team);
  for (;;) {
    bell_.WaitUntil(options_.team.spin, [this] { return !queue_.empty(); });
    const Command& command = queue_.Front();
    if (command.kind == Command::Kind::kStop) return;
    RunCommand(team, command);
    // Popped before it counts as done: who waits for the position may push at once.
    queue_.Pop();
    progress_.Advance();
  }
}

void CpuStream::RunCommand(Team& team, const Command& command) {
  // What it would read may never have come. Commands still count as done, so that nobody waits for
  // them.
  if (dead_) return;
  standing_.layer.store(command.layer, std::memory_order_relaxed);
  if (command.kind == Command::Kind::kPost) return command.counter->Post(command.position);
  const bool runs = command.kind == Command::Kind::kRun;
  standing_.waits.store(!runs, std::memory_order_relaxed);
  standing_.name.store(NameOf(command), std::memory_order_release);
  if (runs) {
    Run(team, command.operation);
  } else {
    RunWait(command);
  }
  standing_.name.store(nullptr, std::memory_order_relaxed);
}

void CpuStream::RunWait(const Command& command) {
  const runtime::TimeNs start = runtime_.Now();
  if (command.kind == Command::Kind::kWait) {
    command.awaited->WaitFor(command.position, options_.team.spin);
    if (command.awaited->failed()) Die(command.awaited->fault());
  } else {
    RunAwait(*command.counter, command.position);
  }
  waited_[static_cast<size_t>(command.cause)].fetch_add(runtime_.Now() - start,
                                                        std::memory_order_relaxed);
}

void CpuStream::RunAwait(CpuCounter& counter, uint64_t value) {
  const base::Status fault = counter.WaitFor(value, options_.team.spin);
  if (!fault.ok()) Die(standing_.layer < 0 ? fault : fault.WithContext(InLayer()));
}

void CpuStream::Die(const base::Status& fault) {
  progress_.Fail(fault);
  const std::lock_guard lock(mutex_);
  fault_ = fault;
  dead_ = true;
}

void CpuStream::Run(Team& team, const Operation& operation) {
  const int64_t token =
      options_.checker != nullptr ? options_.checker->Begin(options_.team.name, operation) : 0;
  if (options_.interleave) Interleave();
  const cost::OpDesc desc = options_.profile ? operation.CompleteDesc() : operation.desc;
  // Copies are also timed by what they take of a core, which is less than their time where cores
  // are shared.
  const bool copies = desc.kind == cost::OpKind::kCopy;
  const runtime::TimeNs core_start = copies ? ProcessorTime() : 0;
  const runtime::TimeNs start = runtime_.Now();
  team.Run(operation);
  const runtime::TimeNs duration = runtime_.Now() - start;
  busy_.fetch_add(duration, std::memory_order_relaxed);
  if (copies) core_.fetch_add(ProcessorTime() - core_start, std::memory_order_relaxed);
  if (options_.profile) CountCall(desc, duration);
  if (options_.interleave) Interleave();
  if (options_.checker != nullptr) options_.checker->End(token);
}

void CpuStream::Interleave() {
  runtime_.Sleep(static_cast<runtime::TimeNs>(delays_.Below(options_.max_virtual_delay + 1)));
}

void CpuStream::CountCall(const cost::OpDesc& desc, runtime::TimeNs duration) {
  const std::lock_guard lock(mutex_);
  AddCalls({.label = desc.label,
            .kind = desc.kind,
            .calls = 1,
            .seconds = runtime::SecondsOf(duration),
            .flops = desc.flops,
            .read_bytes = desc.read_bytes},
           &profile_);
}

StreamTime CpuStream::time() const {
  const auto seconds = [](const std::atomic<runtime::TimeNs>& time) {
    return runtime::SecondsOf(time.load(std::memory_order_relaxed));
  };
  StreamTime time{.busy = seconds(busy_), .core = seconds(core_)};
  std::ranges::transform(waited_, time.waits.by_cause.begin(), seconds);
  return time;
}

std::string CpuStream::InLayer() const {
  const int32_t layer = standing_.layer.load(std::memory_order_relaxed);
  return options_.team.name + (layer < 0 ? "" : fmt::format(" in layer {}", layer));
}

std::string CpuStream::Place() const {
  const char* const name = standing_.name.load(std::memory_order_acquire);
  if (name == nullptr) return {};
  const bool waits = standing_.waits.load(std::memory_order_relaxed);
  return fmt::format("{} {} '{}'", InLayer(), waits ? "waits for" : "runs", name);
}

void CpuStream::AddProfileTo(std::vector<OpProfile>& profile) const {
  const std::lock_guard lock(mutex_);
  for (const OpProfile& entry : profile_) AddCalls(entry, &profile);
}

}  // namespace forebay::device
