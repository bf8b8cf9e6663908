#include "model/recorded_routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "base/json.h"
#include "weights/formats/testing/weight_files.h"

namespace forebay::model {
namespace {

using kernels::RoutingSource;
using testing::ElementsAre;

// 2 of 4 experts in layers 1 and 3 of 4.
ModelConfig Config() {
  ModelConfig config;
  config.vocab_size = 100;
  config.hidden_size = 64;
  config.num_layers = 4;
  config.moe.emplace();
  config.moe->num_experts = 4;
  config.moe->experts_per_token = 2;
  config.moe->has_experts = {0, 1, 0, 1};
  return config;
}

// What a log of these rows holds: (row, its experts in layer 1 and in layer 3).
struct Row {
  NamedRows name;
  std::vector<uint16_t> experts;
};
const std::vector<Row> kRows = {
    {{.line = 3, .choice = 1, .first_position = 0, .count = 2}, {0, 1, 2, 3, /**/ 1, 0, 2, 0}},
    {{.line = 8, .choice = 0, .first_position = 0, .count = 1}, {3, 2, 1, 0}},
    {{.line = 3, .choice = 1, .first_position = 2, .count = 1}, {2, 0, 3, 1}}};

std::string Log(const std::vector<Row>& rows) {
  base::TemporaryFolder folder;
  const std::string path = folder.path() + "/log.routing";
  {
    const auto log = RoutingLog::Create(path, Config());
    EXPECT_TRUE(log.ok()) << log.status().ToString();
    for (const Row& row : rows) (*log)->Append(row.name, row.experts);
    EXPECT_TRUE((*log)->Flush().ok());
  }
  return *base::ReadFile(path);
}

std::vector<int32_t> Counts(const RoutingSource& source, const RoutingSource::Draw& draw) {
  std::vector<int32_t> counts(4, -1);
  source.Count(draw, counts);
  return counts;
}

std::string Refusal(const std::string& text) {
  const auto parsed = ParseRecordedRouting(text, "file");
  if (parsed.ok()) return "";
  EXPECT_EQ(parsed.status().code(), kRoutingInvalid);
  return parsed.status().message();
}

TEST(RecordedRouting, RowsGoWhereTheyWent) {
  const auto routing = ParseRecordedRouting(Log(kRows), "file").value();
  EXPECT_TRUE(routing->Check(Config()).ok());
  // Rank 5 has three rows in step 9, rank 6 one; the steps' rows are cut as a new run likes.
  const NamedRows own[] = {{.line = 8, .choice = 0, .first_position = 0, .count = 1},
                           {.line = 3, .choice = 1, .first_position = 1, .count = 2}};
  const NamedRows other[] = {{.line = 3, .choice = 1, .first_position = 0, .count = 1}};
  EXPECT_TRUE(routing->Tell(5, 9, own).ok());
  EXPECT_TRUE(routing->Tell(6, 9, other).ok());
  RoutingSource::Draw draw{.rank = 5, .step = 9, .layer = 1, .rows = 3, .experts_per_token = 2};
  EXPECT_THAT(Counts(*routing, draw), ElementsAre(2, 1, 2, 1));
  draw.layer = 3;
  EXPECT_THAT(Counts(*routing, draw), ElementsAre(2, 2, 1, 1));
  draw.first_row = 1;
  draw.rows = 1;
  EXPECT_THAT(Counts(*routing, draw), ElementsAre(1, 0, 1, 0));
  draw = {.rank = 6, .step = 9, .layer = 1, .rows = 1, .experts_per_token = 2};
  EXPECT_THAT(Counts(*routing, draw), ElementsAre(1, 1, 0, 0));
}

TEST(RecordedRouting, WhatItDoesNotKnowIsRefused) {
  const auto routing = ParseRecordedRouting(Log(kRows), "file").value();
  const NamedRows beyond[] = {{.line = 3, .choice = 1, .first_position = 2, .count = 2}},
                  elsewhere[] = {{.line = 3, .choice = 0, .first_position = 0, .count = 1}};
  EXPECT_EQ(routing->Tell(0, 0, beyond).code(), kRoutingInvalid);
  EXPECT_THAT(routing->Tell(0, 0, beyond).message(),
              testing::HasSubstr("knows 3 positions of line 4, choice 1"));
  EXPECT_EQ(routing->Tell(0, 0, elsewhere).code(), kRoutingInvalid);
}

TEST(RecordedRouting, AnotherModelsIsRefused) {
  const auto routing = ParseRecordedRouting(Log(kRows), "file").value();
  const auto refused = [&](auto change) {
    ModelConfig config = Config();
    change(config);
    return routing->Check(config).code() == kRoutingInvalid;
  };
  EXPECT_TRUE(refused([](ModelConfig& c) { c.moe->num_experts = 8; }));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.moe->experts_per_token = 1; }));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.moe->has_experts = {0, 1, 1, 1}; }));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.hidden_size = 128; }));
  EXPECT_TRUE(refused([](ModelConfig& c) { c.vocab_size = 101; }));
}

TEST(RecordedRouting, FilesThatAreNoneAreRefused) {
  const std::string whole = Log(kRows);
  EXPECT_EQ(Refusal(whole), "");
  // The header and the first record, which ends with 8 experts.
  constexpr size_t kHeader = 8 + 6 * 4 + 2 * 4, kRecord = 8 + 4 + 4 + 8;
  for (size_t length = 0; length < whole.size(); ++length) {
    const bool border = length == kHeader || length == kHeader + kRecord + 16 ||
                        length == kHeader + 2 * kRecord + 24;
    EXPECT_EQ(Refusal(whole.substr(0, length)).empty(), border) << length;
  }
  EXPECT_THAT(Refusal("{\"custom_id\": 1}"), testing::HasSubstr("no recorded routing"));
  std::string broken = whole;
  broken[kHeader + kRecord + 4] = 4;
  EXPECT_THAT(Refusal(broken),
              testing::HasSubstr("line 4, choice 1, position 0, layer 3: expert 4"));
  broken[kHeader + kRecord + 4] = 3;
  EXPECT_THAT(Refusal(broken), testing::HasSubstr("twice"));
  // More experts of a token than there are.
  broken = whole;
  broken[12] = 5;
  EXPECT_THAT(Refusal(broken), testing::HasSubstr("no model has"));
}

TEST(RecordedRouting, RowsComeInOrderAndSayOneThing) {
  std::vector<Row> rows = kRows;
  rows.push_back(rows[1]);  // computed again
  EXPECT_EQ(Refusal(Log(rows)), "");
  std::swap(rows.back().experts[0], rows.back().experts[1]);
  EXPECT_THAT(Refusal(Log(rows)), testing::HasSubstr("stands there twice"));
  rows = {kRows[2]};
  EXPECT_THAT(Refusal(Log(rows)), testing::HasSubstr("expected 0 next"));
}

TEST(RecordedRouting, AFileThatCannotBeWrittenIsAnError) {
  EXPECT_EQ(RoutingLog::Create("/nowhere/at/all", Config()).status().code(), base::kIoError);
}

}  // namespace
}  // namespace forebay::model
