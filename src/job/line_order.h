// In which order the engine is given a job's lines. Prompts that begin alike share KV cache as long
// as it is there: one after another they find it, far apart it has gone. And a long answer that
// begins when all others are done keeps the whole job.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "job/files/job_file.h"
#include "layout/options.h"

namespace forebay::job {

enum class LineOrder : uint8_t {
  kOfTheFile,
  kByStart,   // GroupByStart
  kMakespan,  // GroupByStart, then LongOnesInTime
};

struct LineOrdering {
  LineOrder order = LineOrder::kOfTheFile;
  // For kMakespan: tokens of KV that all replicas have room for, and the requests, and tokens of
  // their prompts, that the engine reads ahead at most.
  double kv_tokens = 0;
  int64_t requests_ahead = 0, prompt_tokens_ahead = INT64_MAX;
};

// The order of the options' policy on this engine; `otherwise` where it has none of its own.
LineOrdering OrderOf(const layout::EngineOptions& options, const engine::LocalEngine& engine,
                     LineOrder otherwise = LineOrder::kOfTheFile);

// How a line's prompt begins: hashes of its first 256 and its first 2,048 bytes of text (about 64
// and 512 tokens: a system prompt, and a document behind it).
struct PromptStart {
  uint32_t near = 0, far = 0;

  bool operator==(const PromptStart&) const = default;
};

// What an order is made of.
struct LineSketch {
  PromptStart start;
  uint32_t ordinal = 0;      // in the file
  uint32_t prompt = 0;       // tokens, about
  uint32_t output : 24 = 0;  // tokens of a choice, as the request bounds them; 0: it does not
  uint32_t choices : 8 = 1;
};
// That of a request's line; of one that is no request that of ordinal 0, without a start.
LineSketch SketchOf(std::string_view line);

// Sorts lines that have the order of their ordinals: those of one start one after another, within
// those whose starts are near; such groups where the first of them is, each in the order of the
// file.
void GroupByStart(std::vector<LineSketch>* lines);

// The ordinals of these lines in an order in which long answers begin early enough to end with the
// job. A line moves forward, out of its group if it must, only where it would begin with less of
// the job to come than its answer takes steps, and this would be too late when all that is left of
// the job has been read ahead: from then on the engine chooses (schedule::LastRequests). And only
// as far as all that were moved and have not ended fit half of the cache, since answers that begin
// together also grow together. The job's steps are reckoned from the tokens that its lines hold
// while they run. By octaves of lengths, so that lines of a group which are about as long stay
// together.
std::vector<uint32_t> LongOnesInTime(std::span<const LineSketch> lines,
                                     const LineOrdering& ordering);

// The ordinals of the file's lines in that order, empty where it is the file's own. Reads all of
// it but those of which `done` is true, which the order leaves out; takes 32 bytes a line
// meanwhile. Errors: JobFile::Read's.
base::Result<std::vector<uint32_t>> OrderLines(const JobFile& file, const LineOrdering& ordering,
                                               const std::function<bool(size_t)>& done = {});

}  // namespace forebay::job
