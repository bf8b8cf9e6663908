// Every set of kernels against its oracle, for the tests of numerics classes.
#pragma once

#include <gmock/gmock.h>

#include <map>
#include <string>

#include "kernels/testing/tile_sets.h"
#include "testing/layout_fixture.h"

namespace forebay {

class SetsTest : public LayoutTest {
 protected:
  // On one rank each set gives the answers of its class's oracle; `named`: so is the class.
  void ExpectOraclesAnswers(const testing::Matcher<std::string>& named) {
    std::map<std::string, Answers> of_class;  // oracles are slow
    for (const auto& [set, oracle] : kernels::testing::SetsWithOracles()) {
      options_.machine.kernels = &set;
      const Answers answers = Run("cpu", "");
      if (!of_class.contains(numerics_class_)) {
        options_.machine.kernels = &oracle;
        of_class[numerics_class_] = Run("cpu", "");
      }
      EXPECT_EQ(answers, of_class[numerics_class_]) << set.name;
      EXPECT_THAT(numerics_class_, named);
    }
  }
};

}  // namespace forebay
