// Where committed test data lies, independent of the working directory.
#pragma once

#include <string>

namespace forebay {

// The path of the repository's tests/ folder, without a slash at its end, or what the variable
// FOREBAY_TEST_DATA says.
std::string TestData();

}  // namespace forebay
