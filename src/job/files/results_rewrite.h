// Replacing a results file, atomically.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "job/files/log_io.h"

namespace forebay::job {

// Bytes [begin, end) of a file.
struct Piece {
  uint64_t begin = 0, end = 0;
};

// Writes a fresh file: its descriptor, and its name for messages.
using FillFile = std::function<base::Status(int fd, const std::string& name)>;

// Has `fill` write a fresh file beside `path`, locks and syncs it and renames it over `path`, where
// there need be nothing yet. Returns its descriptor, which the caller owns. The fresh file's name
// is `path` and a suffix that no file had: nothing that was there is followed or overwritten, but a
// link at `path` itself is replaced. `mode`: who may do what with it; nothing: what the process'
// mask leaves. On an error, of `fill`, kResultsIo or kResultsLocked, `path` stays as it was.
base::Result<int> ReplaceResults(const std::string& path, std::optional<mode_t> mode,
                                 const FillFile& fill, LogIo& io);

// Replaces `path` by `pieces` of `fd`, one after another, under the mode of `fd`, which stays open.
base::Result<int> RewriteResults(const std::string& path, int fd, std::span<const Piece> pieces,
                                 LogIo& io);

}  // namespace forebay::job
