// The clock of a job whose chat template asks for it: results carry it in their system_fingerprint,
// so that the same command goes on with the clock that the job began with.
#pragma once

#include <optional>
#include <string>

namespace forebay::job {

// What follows the numerics class in the system_fingerprint: "-now2026-03-07T14:05:09".
inline constexpr char kClockMark[] = "-now";

// The clock in the first result of the file that carries one, "2026-03-07T14:05:09"; nothing if
// none does, or if there is no such file.
std::optional<std::string> FindJobClock(const std::string& results_path);

}  // namespace forebay::job
