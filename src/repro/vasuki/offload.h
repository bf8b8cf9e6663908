// Vasuki's offload as closed forms: what a job of equal requests takes on one device whose steps
// are priced, in a steady state. Nothing is simulated; see docs/offload.md for what each form says.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace forebay::repro {

// Requests of a job, all of the mean lengths.
struct MeanLengths {
  double prompt = 0, output = 0;
};

struct OffloadCase {
  const char* device = "a10";
  double room_gb = 7.1;  // for KV
  int64_t chunk = 512;
  bool uncalibrated = false;
};

struct SteadyState {
  double batch = 0, step_ms = 0, request_seconds = 0;
  double streamed_gb = 0;  // KV that a step reads over the host's link
  int64_t clamps = 0;      // listings that returned no number of layers
};

// kOff: a choice holds its prompt and what it has generated.
// kPrinted: growth is free of the device's memory, and copies of time, as the paper's result needs.
// kPrintedOnLink: the same, but each step takes its copies, both ways, of the layers that the
// second listing sends away.
// The others stream what does not fit through two slots; the batch is the one with which a request
// takes least:
//   kAlg1: all of some layers, the others none (kv::PlanKeepSome), hidden behind the step;
//   kAlg2: all of all layers (kv::PlanStreamAll), hidden;
//   kUniform: the same part of each layer, hidden; kPhysical (auto): hidden or not;
//   kAlways: as kPhysical, but the largest batch for which there is room.
enum class OffloadForm : uint8_t {
  kOff,
  kPrinted,
  kPrintedOnLink,
  kAlg1,
  kAlg2,
  kUniform,
  kPhysical,
  kAlways
};

base::Result<SteadyState> Steady(OffloadForm form, const MeanLengths& lengths,
                                 const OffloadCase& where);

// Layers that a step of `batch` choices of `context` tokens sends away: by the second listing as
// printed, and by the first one's idea where a layer's copy has its own step's time to hide in.
struct OffloadedLayers {
  int64_t printed = 0, physical = 0;
  int64_t returned = 0;  // by the listing, also where that is no number of layers
  int64_t clamps = 0;    // whether it is none
  double step_ms = 0, layer_copy_ms = 0;
};
base::Result<OffloadedLayers> LayersOf(int64_t batch, int64_t context, const OffloadCase& where);

// KV of Llama-3-8B in bytes: a token's in all layers, and their number.
inline constexpr double kTokenBytes = 131072;
inline constexpr int64_t kLayers = 32;

}  // namespace forebay::repro
