#include "base/part.h"

#include <gtest/gtest.h>

namespace forebay::base {
namespace {

TEST(Part, PartsAreConsecutiveAndTheLargerOnesFirst) {
  EXPECT_EQ(EvenPart(8, 3, 0), (Part{0, 3}));
  EXPECT_EQ(EvenPart(8, 3, 1), (Part{3, 6}));
  EXPECT_EQ(EvenPart(8, 3, 2), (Part{6, 8}));
  EXPECT_EQ(EvenPart(2, 4, 3), (Part{2, 2}));
  for (int64_t total = 0; total < 30; ++total) {
    for (int64_t count = 1; count < 12; ++count) {
      int64_t end = 0;
      for (int64_t i = 0; i < count; ++i) {
        const Part part = EvenPart(total, count, i);
        EXPECT_EQ(part.begin, end);
        end = part.end;
        for (int64_t element = part.begin; element < part.end; ++element)
          EXPECT_EQ(PartOf(total, count, element), i);
      }
      EXPECT_EQ(end, total);
    }
  }
}

}  // namespace
}  // namespace forebay::base
