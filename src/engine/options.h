// What a user may set about the engine; validated once by CreateEngine, immutable after.
#pragma once

#include <cstdint>
#include <string>

#include "fabric/fault_fabric.h"
#include "model/pool_plan.h"
#include "model/ship_plan.h"
#include "tensor/dtype.h"

namespace forebay::kernels {
struct KernelSet;
}

namespace forebay::engine {

struct EngineOptions {
  std::string model;                  // a folder in Hugging Face's layout, or a GGUF file
  // [N x] cpu, or simulated ones: sim:[N x] and a device profile's name or file ("sim:8xh200").
  std::string devices = "cpu";
  std::string layout;                 // engine/layout.h; "": every device is a replica
  std::string dtype = "auto";         // auto | bfloat16 | float32
  std::string isa = "auto";           // auto | amx | avx512bf16 | avx512f | avx2 | ref
  const kernels::KernelSet* kernels = nullptr;  // instead of what `isa` names; outlives the engine. For tests
  std::string policy = "continuous";
  uint64_t memory_bytes = 0;          // weights + KV + workspace of all ranks; 0: what the machine has free, less a margin
  uint64_t memory_per_rank_bytes = 0; // the same of one rank; 0: an equal share of memory_bytes
  double memory_utilization = 0.9;    // simulated GPUs: this part of their memory, where memory_bytes is 0
  int threads = 0;                    // of all ranks; 0: all usable cores
  int64_t max_model_len = 0;          // 0: the model's, or what the KV cache holds
  int32_t max_num_seqs = 0;           // 0: 256; on GPUs of 70 GiB and more 1024
  int32_t max_num_batched_tokens = 0; // 0: 512 on cpu; on GPUs 8192, of 70 GiB and more 16384
  int32_t kv_blocks = 0;              // at most so many blocks of KV cache (0: what the memory holds)
  uint64_t touch_kv_bytes = 0;        // so much of each rank's KV cache is touched at start, the rest as it comes into use
  model::PoolOptions pool;            // how weights that the layout pools are pulled; the layout says which
  int64_t mean_context = 0;           // tokens that a running choice holds, for pool=auto; 0: max_model_len / 4, at most 2048
  int steps_in_flight = 0;            // of a replica, each with choices of its own; 0: one a pipeline stage
  std::string mode = "auto";          // auto | pull | ship | gather: how ranks reach weights that the layout pools
  double ship_threshold = 0;          // auto: rows a rank's step below which it ships; 0: from the device's profile
  int ship_patience = 64;             // auto: steps in a row below it
  int ship_flip_every = 0;            // a trial of the switch: so many steps ship, so many pull
  model::ShipOptions ship;
  fabric::FaultPlan fault;            // a trial
  device::HazardChecker* checker = nullptr;  // sees what all ranks' operations touch; outlives the engine. For tests: it is slow
  // auto | off | always: replicas without work take requests from others of their group, running ones where it pays; or
  // whether or not it pays (a trial).
  std::string steal = "auto";
  uint64_t seed = 0;
  bool prefix_caching = true;
  bool digest = false;                // add a digest of its numbers to every choice
  bool random_weights = false;        // run a bare config.json
  bool profile = false;
  double stall_seconds = 600;         // a step that takes longer is reported as a stall
  bool sim_full_detail = false;       // simulate every layer
  bool sim_uncalibrated = false;      // price by datasheets alone
};

}  // namespace forebay::engine
