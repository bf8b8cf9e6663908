// --strict where other processes have the engines.
#pragma once

#include <cstdint>

#include "job/files/job_file.h"
#include "job/model_options.h"

namespace forebay::open {

// Checks every line by the model's files without their weights, as job::CheckAllLines does with an
// engine, and with its errors. `max_model_len`: the engines'.
base::Status CheckLines(const job::JobFile& input, const job::ModelOptions& options,
                        int64_t max_model_len);

}  // namespace forebay::open
