#include "open/check_lines.h"

#include <gtest/gtest.h>

#include "job/job.h"
#include "job/testing/files.h"
#include "testing/golden_files.h"

namespace forebay::open {
namespace {

// Without an engine it is known, too, what the model makes of a text.
TEST(CheckLinesTest, AModelMakesVectorsAsItsFilesSay) {
  const base::TemporaryFolder folder;
  job::WriteFile(folder / "in", R"({"input":[5,6]})");
  const auto input = job::JobFile::Open(folder / "in");
  ASSERT_TRUE(input.ok()) << input.status().ToString();
  job::ModelOptions options;
  options.engine.model = golden::Path("models/qwen3-embed");
  options.text.skip_tokenizer = true;
  const base::Status good = CheckLines(*input, options, 64);
  EXPECT_TRUE(good.ok()) << good.ToString();
  EXPECT_EQ(CheckLines(*input, options, 1).code(), job::kBadLines);
  options.engine.pooling = "none";
  EXPECT_EQ(CheckLines(*input, options, 64).code(), job::kBadLines);
}

}  // namespace
}  // namespace forebay::open
