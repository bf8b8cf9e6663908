// The configurations of the golden models.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "model/files/config_reader.h"
#include "testing/test_data.h"

namespace forebay::model {

inline std::string GoldenText(const std::string& model) {
  return *base::ReadFile(TestData() + "/golden/models/" + model + "/config.json");
}

inline ModelConfig GoldenConfig(const std::string& model) {
  auto config = ParseHfConfig(GoldenText(model), model);
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return *config;
}

}  // namespace forebay::model
