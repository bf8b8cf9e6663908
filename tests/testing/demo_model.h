// The demo model, where it was fetched (`make test` does): tests that need it are skipped, and
// counted, without it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "testing/test_data.h"

namespace forebay::testing_support {

inline constexpr char kNoDemoModel[] =
    "models/SmolLM2-135M-Instruct.Q4_1.gguf is not there; tools/fetch_demo_model.sh gets it";

// $FOREBAY_DEMO_MODEL, or the file that tools/fetch_demo_model.sh leaves in the checkout; "" if
// there is none.
inline std::string DemoModel() {
  const char* set = std::getenv("FOREBAY_DEMO_MODEL");
  const std::string path = set ? set : TestData() + "/../models/SmolLM2-135M-Instruct.Q4_1.gguf";
  std::error_code error;
  return std::filesystem::exists(path, error) ? path : std::string();
}

}  // namespace forebay::testing_support
