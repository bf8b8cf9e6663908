// In which order the engine is given a job's lines. Prompts that begin alike share KV cache as long
// as it is there: one after another they find it, far apart it has gone.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "job/job_file.h"

namespace forebay::job {

// How a line's prompt begins: hashes of its first 256 and its first 2,048 bytes of text (about 64
// and 512 tokens: a system prompt, and a document behind it).
struct PromptStart {
  uint32_t near = 0, far = 0;

  bool operator==(const PromptStart&) const = default;
};
// That of a request's line; of one that is no request {}.
PromptStart StartOf(std::string_view line);

// The lines' indices: those of one start one after another, within those whose starts are near;
// such groups where the first of them is, each in the order of the lines.
std::vector<uint32_t> GroupByStart(std::span<const PromptStart> starts);

// The ordinals of the file in that order; reads all of it, and takes 24 bytes a
// line meanwhile. Errors: JobFile::Read's.
base::Result<std::vector<uint32_t>> OrderByStart(const JobFile& file);

}  // namespace forebay::job
