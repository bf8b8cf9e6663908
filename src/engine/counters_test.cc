#include "engine/counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "testing/test_data.h"

namespace forebay::engine {
namespace {

// The names in the first column of the page's rows, from the heading on to the next one.
std::vector<std::string> NamesOnThePage(std::string_view heading) {
  std::ifstream page(TestData() + "/../docs/formats/summary.md");
  std::vector<std::string> names;
  bool within = false;
  for (std::string row; std::getline(page, row);) {
    if (row.starts_with("#")) within = row == heading;
    if (!within || !row.starts_with("| `")) continue;
    const std::string column = row.substr(0, row.find(" | "));
    for (size_t begin = column.find('`'); begin != std::string::npos;) {
      const size_t end = column.find('`', begin + 1);
      names.push_back(column.substr(begin + 1, end - begin - 1));
      begin = column.find('`', end + 1);
    }
  }
  return names;
}

TEST(Counters, ThePageHasEachOnce) {
  const std::vector<std::string_view> names = CounterNames();
  EXPECT_THAT(NamesOnThePage("## Mode counters"),
              testing::UnorderedElementsAreArray(names.begin(), names.end()));
  EXPECT_EQ(std::set(names.begin(), names.end()).size(), names.size());
}

TEST(Counters, ThePageHasThoseOfTheEngineInTheirOrder) {
  std::vector<std::string> names;
  for (const EngineCounter& counter : kEngineCounters) {
    if (counter.in_summary) names.emplace_back(counter.name);
  }
  names.emplace_back("step_seconds");
  EXPECT_EQ(NamesOnThePage("## Engine counters"), names);
}

}  // namespace
}  // namespace forebay::engine
