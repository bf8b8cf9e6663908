#include "model/files/head_tie.h"

#include <gtest/gtest.h>

#include "weights/formats/testing/weight_files.h"
#include "weights/formats/weight_source.h"

namespace forebay::model {
namespace {

// Whether a tied model with these matrices is untied, or the error's code.
std::string Untied(const std::vector<float>& embedding, const std::vector<float>& head,
                   const char* head_shape = "[2, 2]", bool tied = true) {
  weights::SafetensorsFolder folder;
  if (!embedding.empty()) folder.F32(kEmbeddingTensor, "[2, 2]", embedding);
  if (!head.empty()) folder.F32(kHeadTensor, head_shape, head);
  const auto source = weights::WeightSource::Open(folder.Write());
  EXPECT_TRUE(source.ok()) << source.status().ToString();
  ModelConfig config;
  config.tie_word_embeddings = tied;
  const auto untied = UntieOtherHead(*source, &config);
  if (!untied.ok()) return untied.status().code().name;
  EXPECT_EQ(config.tie_word_embeddings, tied && !*untied);
  return *untied ? "untied" : "as it is";
}

TEST(HeadTie, AnotherHeadIsTheHead) {
  EXPECT_EQ(Untied({1, 2, 3, 4}, {1, 2, 3, 4}), "as it is");
  EXPECT_EQ(Untied({1, 2, 3, 4}, {1, 2, 3, 5}), "untied");
  EXPECT_EQ(Untied({1, 2, 3, 4}, {1, 2}, "[1, 2]"), "untied");
  EXPECT_EQ(Untied({1, 2, 3, 4}, {}), "as it is");
  EXPECT_EQ(Untied({}, {1, 2, 3, 4}), "as it is");
  EXPECT_EQ(Untied({1, 2, 3, 4}, {1, 2, 3, 5}, "[2, 2]", false), "as it is");
}

}  // namespace
}  // namespace forebay::model
