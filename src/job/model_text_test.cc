#include "job/model_text.h"

#include <gtest/gtest.h>

#include "testing/test_data.h"

namespace forebay::job {
namespace {

std::string Repeated(const std::string& word, int times) {
  std::string text = word;
  for (int i = 1; i < times; ++i) text += " " + word;
  return text;
}

// Words that are a token each; what is around them is the template's.
TEST(ModelTextTest, ATemplatesPairLosesTheEndOfItsLongerText) {
  const auto text = ModelText::Load(
      {.path = TestData() + "/golden/tokenizers/bert",
       .chat_template = "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}b"});
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  const auto ids = [&](int first, int second, int64_t most_tokens = 0) {
    const auto tokens = (*text)->TokenizePooled({.first = Repeated("the", first),
                                                 .second = Repeated("a", second),
                                                 .most_tokens = most_tokens});
    EXPECT_TRUE(tokens.ok()) << tokens.status().ToString();
    return tokens.ok() ? tokens->ids : std::vector<int32_t>();
  };
  const auto around = static_cast<int64_t>(ids(1, 1).size()) - 2;
  EXPECT_EQ(std::ssize(ids(30, 40)), around + 70);
  EXPECT_EQ(ids(30, 40, around + 70), ids(30, 40));
  EXPECT_EQ(ids(2, 40, around + 12), ids(2, 10));
  EXPECT_EQ(ids(40, 2, around + 12), ids(10, 2));
  EXPECT_EQ(ids(30, 40, around + 60), ids(30, 30));
  EXPECT_EQ(ids(30, 40, around + 20), ids(10, 10));
  EXPECT_GT(std::ssize(ids(30, 40, around - 1)), around - 1) << "the template stays";
}

}  // namespace
}  // namespace forebay::job
