// Replacing a results file by pieces of itself, atomically.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "job/log_io.h"

namespace forebay::job {

// Bytes [begin, end) of a file.
struct Piece {
  uint64_t begin = 0, end = 0;
};

// Writes `pieces` of `fd` one after another into a fresh file beside `path`, locks and syncs it and
// renames it over `path`. Returns its descriptor, which the caller owns; `fd` stays open. The fresh
// file's name is `path` and a suffix that no file had: nothing that was there is followed or
// overwritten. On an error, kResultsIo or kResultsLocked, `path` stays as it was.
base::Result<int> RewriteResults(const std::string& path, int fd, std::span<const Piece> pieces,
                                 LogIo& io);

}  // namespace forebay::job
