// Layers of streamed blocks pass through the window's slots: attention finds in them what went
// down, and no stream touches what another one reads.
#include "kv/tier/window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

#include "base/rng.h"
#include "base/testing/interleavings.h"
#include "base/units.h"
#include "device/hazard_checker.h"
#include "kv/testing/disk.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::kv {
namespace {

constexpr int32_t kBlocks = 4, kBelow = 10, kPlaces = 6;
constexpr int64_t kLayers = 5;

std::vector<KvGroup> OneGroup() {
  const kernels::KvLayout layout{tensor::DType::kBF16, 2, 16, 16};
  return PlanKvGroups(std::vector(kLayers, KvLayerPlan{{.token_bytes = 128}, layout}),
                      {0, kLayers});
}

struct Rank {
  Rank(runtime::Runtime& runtime, device::CpuDeviceOptions options, bool in_file = false)
      : device(Make(runtime, options)),
        region(device->arena().Allocate("kv", kBlocks * KvBlockBytes(OneGroup(), true)).value()),
        slots(device->arena().Allocate("kv window", kWindowSlots * kPlaces * Part()).value()),
        cache(*device, *region, OneGroup(), kBlocks, true),
        tier(Tier::Create(*device, cache,
                          in_file ? TierBlocks{.in_file = kBelow} : TierBlocks{.in_memory = kBelow},
                          {.path = "fake", .threads = 1, .streams = in_file, .open = OpenOn(disk)})
                 .value()),
        window(std::make_unique<Window>(*device, cache, *tier, *slots, kPlaces)) {}
  ~Rank() { device.reset(); }

  static std::unique_ptr<device::Device> Make(runtime::Runtime& runtime,
                                              device::CpuDeviceOptions options) {
    options.memory_bytes = 8 * base::kMiB;
    return device::CreateCpuDevice(runtime, options).value();
  }
  static uint64_t Part() { return static_cast<uint64_t>(OneGroup()[0].layout.LayerBytes()); }
  // Rows of a step in a layer of a block.
  std::byte* Resident(BlockId block, int64_t layer) const {
    return cache.view().layers[static_cast<size_t>(layer)].bases.Block(
        static_cast<uint32_t>(block), cache.view().groups[0].layout);
  }

  Disk disk;
  std::unique_ptr<device::Device> device;
  const device::Region *region, *slots;
  Cache cache;
  std::unique_ptr<Tier> tier;
  std::unique_ptr<Window> window;
};

struct TouchArgs {
  std::byte* data;
  uint64_t bytes;
  int value;
  std::atomic<int64_t>* wrong;  // null: the value is written
};
void Touch(const TouchArgs& args, const device::WorkerContext& context) {
  if (context.worker != 0) return;
  if (args.wrong == nullptr) {
    std::memset(args.data, args.value, args.bytes);
  } else {
    // All bytes are the first, and it is the value.
    *args.wrong += args.data[0] != static_cast<std::byte>(args.value) ||
                   std::memcmp(args.data, args.data + 1, args.bytes - 1) != 0;
  }
}

enum class Mistake { kNone, kConsumedEarly, kLoadedBeforeStored, kNextDownDoesNotWait };

struct Found {
  base::Status status;
  int64_t wrong = 0, layers_read = 0;
};

// Steps that stream blocks which come and go at random, while copies take their time.
Found RunSteps(uint64_t seed, Mistake mistake, bool in_file = false) {
  runtime::VirtualRuntime runtime(seed);
  device::HazardChecker checker;
  std::atomic<int64_t> wrong = 0;
  Found found;
  const base::Status status = runtime.Run([&] {
    Rank rank(runtime, {.checker = &checker, .max_virtual_delay = 40'000, .seed = seed}, in_file);
    const auto enqueue = [&](const char* label, std::byte* data, int value, bool reads) {
      device::Operation operation = device::MakeOperation<&Touch>(
          {.kind = cost::OpKind::kAttention, .label = label},
          TouchArgs{data, Rank::Part(), value, reads ? &wrong : nullptr});
      reads ? operation.Reads(data, Rank::Part()) : operation.Writes(data, Rank::Part());
      rank.device->compute().Enqueue(operation);
    };
    base::Rng rng(seed);
    std::map<int32_t, std::pair<BlockId, int>> places;  // by place: where below, and its content
    for (int step = 1; step <= 12; ++step) {
      TierMoves moves;
      for (auto it = places.begin(); it != places.end();)
        it = rng.Below(4) == 0 ? places.erase(it) : std::next(it);
      // The last step has written this one, which goes down; this step writes over it.
      const auto block = static_cast<BlockId>(step % kBlocks);
      const auto below = static_cast<BlockId>(rng.Below(kBelow));
      const auto place = static_cast<int32_t>(rng.Below(kPlaces));
      const bool streamed =
          std::ranges::any_of(places, [&](const auto& each) { return each.second.first == below; });
      if (step > 1 && !streamed && !places.contains(place)) {
        moves.down.push_back({0, block, below});
        places[place] = {below, step - 1};
      }
      std::vector<StreamedBlock> blocks;
      for (const auto& [at, what] : places) blocks.push_back({at, what.first, what.second});
      if (mistake == Mistake::kLoadedBeforeStored) rank.window->BeginStep(blocks);
      const bool waits = mistake != Mistake::kNextDownDoesNotWait && rank.window->Reads(moves.down);
      rank.tier->BeginStep(moves, waits);
      if (mistake != Mistake::kLoadedBeforeStored) rank.window->BeginStep(blocks);
      for (int64_t layer = 0; layer < kLayers; ++layer) {
        enqueue("rope_kv", rank.Resident(block, layer), 200, false);
        enqueue("rope_kv", rank.Resident((block + 1) % kBlocks, layer), step, false);
        const kernels::KvLayer bases = rank.window->Acquire(layer);
        if (mistake == Mistake::kConsumedEarly) rank.window->Release(layer);
        for (const auto& [at, what] : places) {
          enqueue("attention",
                  bases.Block(kernels::kWindowBit | static_cast<uint32_t>(at),
                              rank.cache.view().groups[0].layout),
                  what.second, true);
          ++found.layers_read;
        }
        if (mistake != Mistake::kConsumedEarly) rank.window->Release(layer);
      }
      FB_CHECK(rank.device->Synchronize(rank.device->compute()).ok(), "no faults here");
    }
    rank.tier->Quiesce();
  });
  FB_CHECK(status.ok(), "{}", status.ToString());
  found.status = checker.status();
  found.wrong = wrong;
  return found;
}

TEST(WindowTest, AttentionFindsWhatWentDown) {
  int64_t layers_read = 0;
  for (uint64_t seed = 0; seed < base::Interleavings(300); ++seed) {
    const Found found = RunSteps(seed, Mistake::kNone, /*in_file=*/seed % 3 == 2);
    EXPECT_TRUE(found.status.ok()) << seed << ": " << found.status.ToString();
    EXPECT_EQ(found.wrong, 0) << seed;
    layers_read += found.layers_read;
  }
  EXPECT_GT(layers_read, 10'000);
}

TEST(WindowTest, PlantedMistakesAreFoundAndReplayed) {
  for (const Mistake mistake :
       {Mistake::kConsumedEarly, Mistake::kLoadedBeforeStored, Mistake::kNextDownDoesNotWait}) {
    int found = 0;
    for (uint64_t seed = 0; seed < 300; ++seed) {
      const bool in_file = seed % 3 == 2;
      const Found once = RunSteps(seed, mistake, in_file);
      if (once.status.ok() && once.wrong == 0) continue;
      ++found;
      const Found again = RunSteps(seed, mistake, in_file);
      EXPECT_EQ(again.status.ToString(), once.status.ToString());
      EXPECT_EQ(again.wrong, once.wrong);
    }
    EXPECT_GT(found, mistake == Mistake::kNextDownDoesNotWait ? 0 : 30)
        << static_cast<int>(mistake);
  }
}

// What the watchdog says of a copy that does not end.
TEST(WindowTest, WhoCopiesIsNamedWithLayerAndSlot) {
  runtime::VirtualRuntime runtime(1);
  std::string seen;
  const base::Status status = runtime.Run([&] {
    Rank rank(runtime, {.max_virtual_delay = 1'000'000, .seed = 1});
    device::Stream& compute = rank.device->compute();
    const TierMove stored{0, 0, 3};
    rank.tier->BeginStep({.down = {stored}}, false);
    const StreamedBlock block{0, stored.below, 1};
    rank.window->BeginStep(std::span(&block, 1));
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      compute.SetLayer(layer);
      rank.window->Acquire(layer);
      rank.window->Release(layer);
    }
    const std::unique_ptr<device::DeviceEvent> done = rank.device->NewEvent();
    compute.Record(*done);
    const auto [up, down] = rank.tier->streams();
    while (!rank.device->WaitFor(*done, 10'000))
      seen += fmt::format("{}; {}; {}\n", compute.Place(), up->Place(), down->Place());
    rank.tier->Quiesce();
  });
  ASSERT_TRUE(status.ok()) << status.ToString();
  for (const char* place :
       {"rank 0 compute waits for 'rank 0 kv copy down'; rank 0 kv copy up waits for "
        "'rank 0 kv copy down'; rank 0 kv copy down runs '",
        "rank 0 compute in layer 1 waits for 'rank 0 kv copy up'; rank 0 kv copy up in layer 1 "
        "runs 'kv_stream, slot 1'",
        "rank 0 compute in layer 4 waits for 'rank 0 kv copy up'; rank 0 kv copy up in layer 4 "
        "runs 'kv_stream, slot 0'"})
    EXPECT_NE(seen.find(place), std::string::npos) << place << "\n" << seen;
}

}  // namespace
}  // namespace forebay::kv
