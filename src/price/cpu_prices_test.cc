#include "price/cpu_prices.h"

#include <gtest/gtest.h>

#include "base/units.h"
#include "cost/profile.h"

namespace forebay::price {
namespace {

// Where ranks decide by prices, and nobody has named a profile.
TEST(CpuPrices, WhoWantsThem) {
  struct Case {
    const char *devices, *layout, *mode;
    bool wants;
  };
  constexpr Case kCases[] = {
      {"cpu", "dp=1", "auto", false},
      {"2xcpu", "dp=2", "auto", false},
      {"2xcpu", "dp=1,tp=2", "auto", false},
      {"2xcpu", "dp=2,weights=striped,pool=auto", "auto", true},
      {"2xcpu", "dp=2,weights=striped", "pull", true},
      {"2xcpu", "dp=2,weights=striped,pool=3", "auto", true},
      {"2xcpu", "dp=2,weights=striped,pool=3", "ship", false},
      {"2xcpu", "dp=2,weights=striped,pool=0", "auto", false},
      {"2xcpu", "dp=2,experts=by_expert", "auto", true},
      {"2xcpu", "dp=2,experts=by_expert", "routed", false},
      {"2xcpu", "dp=2,experts=by_expert,expert-size=auto", "pull", true},
      {"2xcpu", "sp=2", "auto", true},
      {"2xcpu", "sp=2", "pull", true},
      {"2xcpu", "sp=2,weights=striped", "auto", true},
      {"4xcpu", "dp=2,sp=2", "auto", true},
      {"2xcpu", "dp=1,pp=2", "auto", false},
      {"sim:2xzen5", "dp=2,weights=striped", "auto", false},
      {"sim:2xzen5", "sp=2", "auto", false},
  };
  for (const Case& c : kCases) {
    layout::EngineOptions options;
    options.machine.devices = *layout::ParseDevices(c.devices);
    options.layout = *layout::ParseLayout(c.layout);
    options.ship.mode = *schedule::ParseWantedMode(c.mode);
    EXPECT_EQ(WantsPrices(options), c.wants) << c.devices << " " << c.layout << " " << c.mode;
    options.machine.device_profile = "zen4";
    EXPECT_FALSE(WantsPrices(options));
  }
  layout::EngineOptions options;
  options.machine.devices = *layout::ParseDevices("2xcpu");
  options.layout = *layout::ParseLayout("dp=2,weights=striped,pool=3");
  options.ship.threshold = 6;
  EXPECT_FALSE(WantsPrices(options));
  options.layout.reset();
  options.layout_by_job = true;
  EXPECT_FALSE(WantsPrices(options));  // nothing is known of the job
  options.job = std::make_shared<std::vector<layout::ChoiceShape>>();
  EXPECT_TRUE(WantsPrices(options));
}

// Steps whose rows are cut take modes by price, unless something else says which.
TEST(CpuPrices, ShiftWantsThem) {
  const auto wants = [](const char* layout, const layout::ShiftOptions& shift,
                        int shift_every = 0) {
    layout::EngineOptions options;
    options.machine.devices = *layout::ParseDevices("2xcpu");
    options.layout = *layout::ParseLayout(layout);
    options.shift = shift;
    options.trial.shift_every = shift_every;
    return WantsPrices(options);
  };
  EXPECT_TRUE(wants("sp=2", {}));
  EXPECT_TRUE(wants("sp=2", {.among = layout::ModeChoice::kEnds}));
  EXPECT_FALSE(wants("sp=2", {.mode = model::Degrees{.sp = 2, .tp = 1}}));
  EXPECT_FALSE(wants("sp=2", {.threshold = 8}));
  EXPECT_FALSE(wants("sp=2", {}, 1));
  EXPECT_FALSE(wants("sp=2,weights=striped,pool=3", {.threshold = 8}));
  EXPECT_TRUE(wants("sp=2,weights=striped,pool=auto", {.threshold = 8}));
  layout::EngineOptions roles;
  roles.machine.devices = *layout::ParseDevices("4xcpu");
  roles.roles = layout::RoleLayouts{.context = *layout::ParseLayout("sp=2"),
                                    .generation = *layout::ParseLayout("dp=2")};
  EXPECT_TRUE(WantsPrices(roles));
  roles.shift.threshold = 8;
  EXPECT_FALSE(WantsPrices(roles));
}

// What lies below a device is parked, brought up and streamed by price, on one device too.
TEST(CpuPrices, KvBelowWantsThem) {
  struct Case {
    const char *devices, *layout;
    bool memory, file;
    layout::Preempting preempt;
    layout::Offloading offload;
    bool wants;
  };
  constexpr Case kCases[] = {
      {"cpu", "dp=1", false, false, layout::Preempting::kAuto, layout::Offloading::kAuto, false},
      {"cpu", "dp=1", true, false, layout::Preempting::kAuto, layout::Offloading::kAuto, true},
      {"2xcpu", "dp=2", true, false, layout::Preempting::kAuto, layout::Offloading::kOff, true},
      {"cpu", "dp=1", false, true, layout::Preempting::kAuto, layout::Offloading::kAuto, true},
      // Prefixes are priced, too.
      {"cpu", "dp=1", true, false, layout::Preempting::kRecompute, layout::Offloading::kOff, true},
      {"cpu", "dp=1", true, false, layout::Preempting::kPark, layout::Offloading::kOff, false},
      {"cpu", "dp=1", true, false, layout::Preempting::kPark, layout::Offloading::kAlways, false},
      {"cpu", "dp=1", true, false, layout::Preempting::kPark, layout::Offloading::kAuto, true},
      {"cpu", "dp=1", true, false, layout::Preempting::kPark, layout::Offloading::kUniform, true},
      {"cpu", "dp=1", false, true, layout::Preempting::kPark, layout::Offloading::kAuto, true},
      // Nothing is streamed by stages, nor beside experts that are shared.
      {"2xcpu", "pp=2", true, false, layout::Preempting::kPark, layout::Offloading::kAuto, false},
      {"2xcpu", "dp=2,weights=striped,pool=0", true, false, layout::Preempting::kPark,
       layout::Offloading::kAuto, true},
      {"sim:zen5", "dp=1", true, false, layout::Preempting::kAuto, layout::Offloading::kAuto,
       false},
  };
  for (const Case& c : kCases) {
    layout::EngineOptions options;
    options.machine.devices = *layout::ParseDevices(c.devices);
    options.layout = *layout::ParseLayout(c.layout);
    options.tier.host_bytes = c.memory ? base::kMiB : 0;
    options.tier.file = c.file ? "kv" : "";
    options.tier.preempt = c.preempt;
    options.tier.offload = c.offload;
    EXPECT_EQ(WantsPrices(options), c.wants)
        << c.devices << " " << c.layout << " " << (&c - kCases);
    options.machine.device_profile = "zen4";
    EXPECT_FALSE(WantsPrices(options));
  }
  layout::EngineOptions options;
  options.machine.devices = *layout::ParseDevices("cpu");
  options.tier = {.host_bytes = base::kMiB,
                  .preempt = layout::Preempting::kRecompute,
                  .offload = layout::Offloading::kOff};
  options.prefix_caching = false;
  EXPECT_FALSE(WantsPrices(options));
}

TEST(CpuPrices, TheBuiltInProfileOfACpu) {
  struct Case {
    const char *cpu, *isa;
    int workers;
    const char* profile;
  };
  constexpr Case kCases[] = {
      {"AMD EPYC (family 25, model 17)", "avx512bf16", 2, "zen4"},
      {"AMD EPYC 9754 128-Core Processor (family 25, model 160)", "avx512bf16", 2, "zen4"},
      {"AMD EPYC (family 25, model 17)", "avx512bf16", 1, ""},  // a rank of one core
      {"AMD EPYC (family 25, model 17)", "avx2", 2, ""},
      {"AMD EPYC (family 25, model 1)", "avx2", 2, ""},  // Zen 3
      {"AMD EPYC (family 26, model 2)", "avx512bf16", 2, "zen5"},
      {"INTEL(R) XEON(R) PLATINUM 8581C (family 6, model 207)", "amx", 2, "emerald-rapids-amx"},
      {"INTEL(R) XEON(R) PLATINUM 8481C (family 6, model 143)", "amx", 2, ""},
      {"something else", "avx2", 2, ""},
      {"(family x, model 1)", "avx2", 2, ""},
  };
  for (const Case& c : kCases) {
    const std::string profile = FittingProfile(c.cpu, c.isa, c.workers);
    EXPECT_EQ(profile, c.profile) << c.cpu << ", " << c.isa;
    if (profile.empty()) continue;
    EXPECT_EQ(cost::LoadProfile(profile)->cores, c.workers);
  }
}

}  // namespace
}  // namespace forebay::price
