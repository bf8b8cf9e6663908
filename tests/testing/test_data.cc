#include "testing/test_data.h"

namespace forebay {

std::string TestData() { return FOREBAY_TEST_DATA; }

}  // namespace forebay
