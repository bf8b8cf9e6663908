// What copies take between a device of this machine and what lies below it (KV), and between ranks
// (weights), by direction, size, spans and with kernels beside them, and how well two forms, fitted
// to every second size, foretell those in between: a table in Markdown. Plans use the second
// (cost::HostCopies).
//   copies_bench [--file PATH of a file to make] [--rounds N]
// Times are medians of the rounds. Copies go through the streams that KV takes; beside them the
// compute stream reads memory. A file is asked past the page cache, in one request a span.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "cost/copy_forms.h"
#include "device/copy.h"
#include "device/device.h"
#include "kv/tier/block_file.h"
#include "runtime/real/real_runtime.h"

namespace forebay {
namespace {

constexpr uint64_t kSmallest = 16 * base::kKiB, kLargest = 64 * base::kMiB;

struct ReadArgs {
  const std::byte* data;
  uint64_t bytes;
  const std::atomic<bool>* over;
  std::atomic<uint64_t>* sum;
};
// Reads memory until it is told to end.
void ReadMemory(const ReadArgs& args, const device::WorkerContext& context) {
  if (context.worker > 0) return;
  uint64_t sum = 0;
  for (uint64_t at = 0; !*args.over; at = (at + 4096) % args.bytes) {
    for (uint64_t i = 0; i < 4096; i += 64) sum += static_cast<uint64_t>(args.data[at + i]);
  }
  *args.sum += sum;
}

struct Case {
  std::string name;
  uint64_t spans;
  // Copies so many bytes in spans.
  std::function<void(uint64_t bytes, uint64_t spans)> run;
};

double MedianSeconds(const runtime::Runtime& runtime, const Case& each, uint64_t bytes,
                     int rounds) {
  std::vector<double> seconds(static_cast<size_t>(rounds));
  each.run(bytes, each.spans);
  for (double& round : seconds) {
    const runtime::TimeNs begin = runtime.Now();
    each.run(bytes, each.spans);
    round = static_cast<double>(runtime.Now() - begin) * 1e-9;
  }
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

// The sums of the mean held-out errors of both forms, over all copies that were printed.
struct Totals {
  int copies = 0;
  double saturating = 0, linear = 0;
};

void Print(const runtime::Runtime& runtime, const Case& each, int rounds, Totals* totals) {
  std::vector<cost::CopyPoint> points;
  for (uint64_t bytes = std::max(kSmallest, each.spans * kv::kFileAlignment); bytes <= kLargest;
       bytes *= 2) {
    points.push_back({static_cast<double>(bytes), MedianSeconds(runtime, each, bytes, rounds)});
  }
  const auto rate = [](const cost::CopyPoint& point) { return point.bytes / point.seconds * 1e-9; };
  const cost::FormError saturating = cost::HeldOutError(
                            points, [](auto others) { return cost::SaturatingForm(others); }),
                        linear = cost::HeldOutError(points, cost::LinearForm);
  fmt::print("| {} | {} | {:.2f} | {:.2f} | {:.0f}, {:.0f} | {:.0f}, {:.0f} |\n", each.name,
             each.spans, rate(points.front()), rate(points.back()), 100 * saturating.mean,
             100 * saturating.most, 100 * linear.mean, 100 * linear.most);
  ++totals->copies;
  totals->saturating += saturating.mean;
  totals->linear += linear.mean;
}

// Copies from `from` to `to` on the stream.
Case Copies(const std::string& name, device::Device& device, device::CopyKind kind,
            const device::Region& from, const device::Region& to, uint64_t spans,
            device::CopyUse use = device::CopyUse::kSoon) {
  return {name, spans, [&device, kind, &from, &to, use](uint64_t bytes, uint64_t parts) {
            device::Stream& stream = device.copy(kind);
            const uint64_t part = bytes / parts;
            for (uint64_t i = 0; i < parts; ++i) {
              stream.Enqueue(
                  device::MakeCopy("copy", to.data + i * part, from.data + i * part, part, use));
            }
            (void)device.Synchronize(stream);
          }};
}

int Run(int rounds, const std::string& path) {
  const auto runtime = runtime::CreateRealRuntime();
  const auto device =
      device::CreateCpuDevice(*runtime, {.memory_bytes = 3 * kLargest, .num_workers = 1}).value();
  const auto below = device->NewHostArena(2 * kLargest);
  const device::Region& above = *device->arena().Allocate("kv", kLargest).value();
  const device::Region& kept = *below->Allocate("below", kLargest).value();
  std::memset(above.data, 1, kLargest);
  std::memset(kept.data, 2, kLargest);
  fmt::print(
      "| copy | spans | GB/s of the smallest | of 64 MiB | saturating: held-out error, mean, most, "
      "% "
      "| latency + bytes / rate |\n|---|---|---|---|---|---|\n");
  Totals totals;
  for (const bool beside : {false, true}) {
    std::atomic<bool> over{false};
    std::atomic<uint64_t> sum{0};
    if (beside) {
      device->compute().Enqueue(device::MakeOperation<&ReadMemory>(
          {.label = "read"}, ReadArgs{above.data, kLargest, &over, &sum}));
    }
    const std::string more = beside ? ", beside a kernel" : "";
    for (const uint64_t spans : {uint64_t{1}, uint64_t{32}}) {
      Print(*runtime, Copies("down" + more, *device, device::CopyKind::kKvDown, above, kept, spans),
            rounds, &totals);
      Print(*runtime, Copies("up" + more, *device, device::CopyKind::kKvUp, kept, above, spans),
            rounds, &totals);
    }
    for (const auto& [name, use] :
         {std::pair{"weights, through the caches", device::CopyUse::kSoon},
          {"weights, past the caches", device::CopyUse::kLater}}) {
      Print(*runtime, Copies(name + more, *device, device::CopyKind::kWeights, kept, above, 1, use),
            rounds, &totals);
    }
    over = true;
    (void)device->Synchronize(device->compute());
  }
  const auto print_totals = [&totals] {
    fmt::print("| mean of all {} | | | | {:.0f} | {:.0f} |\n", totals.copies,
               100 * totals.saturating / totals.copies, 100 * totals.linear / totals.copies);
    return 0;
  };
  if (path.empty()) return print_totals();
  auto file = kv::OpenBlockFile(path, kLargest, kv::FileLife::kJob);
  if (!file.ok()) {
    fmt::print(stderr, "{}\n", file.status().ToString());
    return 1;
  }
  for (const uint64_t spans : {uint64_t{1}, uint64_t{32}}) {
    for (const bool write : {true, false}) {
      Print(*runtime,
            {write ? "into a file" : "from a file", spans,
             [&](uint64_t bytes, uint64_t parts) {
               const uint64_t part = bytes / parts;
               for (uint64_t i = 0; i < parts; ++i) {
                 const std::span<std::byte> data(kept.data + i * part, part);
                 const base::Status moved =
                     write ? (*file)->Write(i * part, data) : (*file)->Read(i * part, data);
                 if (!moved.ok()) fmt::print(stderr, "{}\n", moved.ToString());
               }
             }},
            std::min(rounds, 5), &totals);
    }
  }
  return print_totals();
}

}  // namespace
}  // namespace forebay

int main(int argc, char** argv) {
  int rounds = 15;
  std::string path;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--rounds") rounds = std::max(1, std::atoi(argv[i + 1]));
    if (std::string(argv[i]) == "--file") path = argv[i + 1];
  }
  return forebay::Run(rounds, path);
}
