#include "testing/test_data.h"

#include <cstdlib>

namespace forebay {

std::string TestData() {
  const char* const elsewhere = std::getenv("FOREBAY_TEST_DATA");
  return elsewhere != nullptr ? elsewhere : FOREBAY_TEST_DATA;
}

}  // namespace forebay
