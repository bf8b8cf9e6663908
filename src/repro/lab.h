// What rows measure on the simulated engine: a group of devices that decodes as many choices as its
// KV cache holds, and whole jobs. Each setting is run once, whichever rows need it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "layout/layout.h"
#include "layout/options.h"
#include "repro/substitutes.h"
#include "trace/simulation.h"

namespace forebay::repro {

// A value of GroupSetting::pool.
inline constexpr int64_t kAllLayers = -1, kAutoLayers = -2;

// Devices, their layout and what they do.
struct GroupSetting {
  std::string device = "h20", model = "Qwen3-32B";
  int devices = 8, tp = 1;
  weights::ChosenPlacement weights;
  int64_t look_ahead = 0;     // layers of it; 0: as the engine chooses
  int64_t pool = kAllLayers;  // pooled layers; counts where weights are not replicated
  double utilization = 0.9;   // the part of the devices' memory
  schedule::WantedMode mode = StepMode{.ffn = FfnMode::kPull};
  bool as_used = false;                // pulls in the order of the layers: no peak shifting
  bool one_stream = false;             // for all owners; else one an owner
  bool by_matrix = false;              // slots of a matrix each, not of a layer
  bool fuse = true, skip_idle = true;  // options of mode ship
  bool uncalibrated = false;
  int64_t context = 1024;  // tokens that a choice comes to
  int64_t batch = 0;       // choices of a replica; 0: as many as the KV cache holds

  int dp() const { return layout::ReplicasOn(devices, tp, 1); }
  auto operator<=>(const GroupSetting&) const = default;
};

// The model of SiDP's and Shift's most tables.
inline constexpr char kLlama[] = "Llama-3.1-70B";

// Placements of a setting.
inline constexpr weights::ChosenPlacement kReplicated{}, kByLayer{&weights::kByLayer},
    kStriped{&weights::kStriped};

// Modes of a setting; no mode is "auto".
inline constexpr StepMode kPull{.ffn = FfnMode::kPull}, kShip{.ffn = FfnMode::kShip},
    kGather{.ffn = FfnMode::kGather};
inline constexpr schedule::WantedMode kAuto = std::nullopt;

// Steps in which every replica decodes its whole batch.
struct Decoding {
  int64_t kv_tokens = 0;  // a replica's
  int64_t pool_layers = 0;
  double batch = 0;  // a replica's; 0: the model does not fit, or not one choice
  double step_ms = 0;
  double fetch_ms = 0;  // what a rank pulls in a step, at the rate of an undisturbed link
  // The part of a step in which a rank's compute stream waits for pulls or for other ranks.
  double exposed_ms = 0;
  double tokens_per_s = 0;  // all replicas together
  double threshold = 0;     // B_th; 0: no step may ship
};

// A job that begins with all requests there.
struct JobSetting {
  GroupSetting setting;
  int64_t requests = 0;
  int64_t output = 0;  // on average, of the setting's context; 0: an eighth of it
  // As many choices run as the cache holds at the mean length of finished ones; else as many as
  // fit.
  bool adaptive = false;
  auto operator<=>(const JobSetting&) const = default;
};
struct JobFigures {
  double seconds = 0, tokens_per_s = 0;  // output tokens
  double steps = 0, steps_ship = 0, preemptions = 0, recomputed_tokens = 0, kv_tokens = 0;
  double batch = 0, step_ms = 0;        // on average over steps
  double fetch_ms = 0, exposed_ms = 0;  // as in Decoding, on average over all steps
  double threshold = 0;                 // B_th; 0: no step may ship
  bool shortened = false;               // by a quick lab
};

// What a job of choices that have half of their tokens from prompts is foreseen to give, in output
// tokens a second.
struct LayoutsCompared {
  double own = 0;   // in the setting's layout and mode; 0: it does not fit
  double best = 0;  // in the best of all layouts of its devices, in the modes that are best
  std::string best_layout;

  double part() const { return own / best; }
};

class Lab {
 public:
  // `quick`: jobs are an eighth as long.
  explicit Lab(bool quick = false, Substitutes substitutes = {})
      : quick_(quick), substitutes_(std::move(substitutes)) {}
  bool quick() const { return quick_; }
  bool substitutes() const { return substitutes_.any(); }

  // Puts the lab's substitutes in the place of what a scenario asks for; twice is as once. The
  // lab's own runs do so. A scenario that uses the setting beside them substitutes it first.
  void Substitute(std::string* model, std::string* device);
  GroupSetting Substituted(GroupSetting setting) {
    Substitute(&setting.model, &setting.device);
    return setting;
  }
  // Whether anything was substituted since it was last asked.
  bool TakeSubstituted() { return std::exchange(substituted_, false); }

  base::Result<Decoding> Decode(const GroupSetting& setting);
  base::Result<JobFigures> RunJob(const JobSetting& setting);
  // Errors: those of the search, as where no layout fits.
  base::Result<LayoutsCompared> CompareLayouts(const GroupSetting& setting);
  // Any other simulation, run where its name is new.
  base::Result<const trace::SimulationResult*> Simulate(
      const std::string& name, const std::function<base::Result<trace::SimulationResult>()>& run);

 private:
  const bool quick_;
  const Substitutes substitutes_;
  bool substituted_ = false;
  std::map<GroupSetting, Decoding> decodings_;
  std::map<JobSetting, JobFigures> jobs_;
  std::map<GroupSetting, LayoutsCompared> compared_;  // without `own`, by what is common to layouts
  std::map<std::string, trace::SimulationResult> simulations_;
};

layout::EngineOptions OptionsOf(const GroupSetting& setting);
// The lengths of a job that rows run: prompts all alike, outputs lognormal with a long tail and on
// average as long as the job says.
trace::LengthTrace JobTrace(const JobSetting& job);

}  // namespace forebay::repro
