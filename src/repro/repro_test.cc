#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/json.h"
#include "engine/layout_plan.h"
#include "engine/open_model.h"
#include "engine/step_price.h"
#include "model/builtin_configs.h"
#include "model/derived.h"
#include "model/family.h"
#include "repro/grid.h"
#include "repro/row_format.h"
#include "repro/scenario.h"

namespace forebay::repro {
namespace {

using testing::HasSubstr;

TEST(Printed, DigitsAreComparedAsTheyArePrinted) {
  EXPECT_TRUE(AgreesAtPrintedDigits(65.5242, "65.52"));
  EXPECT_FALSE(AgreesAtPrintedDigits(65.5251, "65.52"));
  EXPECT_TRUE(AgreesAtPrintedDigits(0.125, "0.13"));  // a half may be rounded either way
  EXPECT_TRUE(AgreesAtPrintedDigits(0.125, "0.12"));
  EXPECT_TRUE(AgreesAtPrintedDigits(3.433e-15, "3.43e-15"));
  EXPECT_FALSE(AgreesAtPrintedDigits(3.436e-15, "3.43e-15"));
  EXPECT_TRUE(AgreesAtPrintedDigits(262144, "262144"));
  EXPECT_FALSE(AgreesAtPrintedDigits(262145, "262144"));
  EXPECT_EQ(FormatLike(65.5242, "65.5", 0), "65.5");
  EXPECT_EQ(FormatLike(65.5242, "65.5", 1), "65.52");
  EXPECT_EQ(FormatLike(3.433e-15, "3.43e-15", 0), "3.43e-15");
}

TEST(Verdicts, FollowTheKindOfClaim) {
  const Claim exact{.kind = Kind::kExact}, band{.kind = Kind::kBand, .band = 0.2}, order{.kind = Kind::kOrder};
  EXPECT_EQ(Judge(exact, {"", "9.1"}, 9.14), Verdict::kReproduced);
  EXPECT_EQ(Judge(exact, {"", "9.1"}, 9.16), Verdict::kNotReproduced);
  EXPECT_EQ(Judge(exact, {"", "9.1", "it cannot be"}, 9.16), Verdict::kContradiction);
  EXPECT_EQ(Judge(band, {"", "10.0"}, 10.01), Verdict::kReproduced);
  EXPECT_EQ(Judge(band, {"", "10.0"}, 11.9), Verdict::kWithinBand);
  EXPECT_EQ(Judge(band, {"", "10.0"}, 8.1), Verdict::kWithinBand);
  EXPECT_EQ(Judge(band, {"", "10.0"}, 12.1), Verdict::kNotReproduced);
  EXPECT_EQ(Judge(order, {"", "> 1.5"}, 1.6), Verdict::kReproduced);
  EXPECT_EQ(Judge(order, {"", "> 1.5"}, 1.5), Verdict::kNotReproduced);
  EXPECT_EQ(Judge(order, {"", "< 1"}, 0.9), Verdict::kReproduced);
}

TEST(Rows, EachHasAnIdAScenarioAndReadableValues) {
  std::set<std::string_view> ids;
  for (const Claim& claim : Claims()) {
    EXPECT_TRUE(ids.insert(claim.id).second) << claim.id;
    EXPECT_NE(FindScenario(claim.id), nullptr) << claim.id;
    EXPECT_EQ(claim.kind == Kind::kBand || claim.kind == Kind::kPoints, claim.band > 0) << claim.id;
    EXPECT_FALSE(claim.values.empty()) << claim.id;
    for (const ClaimedValue& value : claim.values) {
      EXPECT_NE(PrintedNumber(value.printed), 0) << claim.id << " " << value.label;
      EXPECT_EQ(value.printed.starts_with('>') || value.printed.starts_with('<'), claim.kind == Kind::kOrder) << claim.id;
    }
  }
}

TEST(Rows, AreSelectedByIdOrGroup) {
  const auto ids = [](std::vector<std::string> rows) {
    std::vector<std::string_view> ids;
    const auto selected = SelectClaims(rows);
    EXPECT_TRUE(selected.ok()) << selected.status().ToString();
    for (const Claim* claim : *selected) ids.push_back(claim->id);
    return ids;
  };
  EXPECT_EQ(ids({}).size(), Claims().size());
  EXPECT_THAT(ids({"DW3"}), testing::ElementsAre("DW3"));
  EXPECT_THAT(ids({"model"}), testing::SizeIs(7));
  EXPECT_THAT(ids({"sidp"}), testing::SizeIs(Claims().size() - 9));
  EXPECT_THAT(ids({"DW3", "model.Llama-3-8B"}), testing::ElementsAre("model.Llama-3-8B", "DW3"));
  const std::vector<std::string> wrong{"DW3", "DW99"};
  EXPECT_EQ(SelectClaims(wrong).status().code(), kRowUnknown);
  EXPECT_THAT(SelectClaims(wrong).status().message(), HasSubstr("row \"DW99\" is unknown; expected one of model, SI0, SI1,"));
}

// Every row runs, of those that are simulated the first and the last value. What is not reproduced says of what it is made.
TEST(Rows, ComeOutAsKnown) {
  // Not reproduced in full, as docs/simulator.md says.
  const std::set<std::string_view> known = {"SI4.TP8", "SI5.H20", "SI5.H200", "SI5.B200", "SI7", "SI8", "SI11.share", "SI12", "POOL.gains"};
  Lab lab(true);
  for (const Claim& claim : Claims()) {
    const Claim reduced = Reduced(claim);
    const auto row = RunRow(reduced, lab);
    ASSERT_TRUE(row.ok()) << row.status().ToString();
    if (claim.id.starts_with("model.") || claim.kind == Kind::kExact) {
      EXPECT_EQ(row->verdict == Verdict::kContradiction, claim.id == "model.DeepSeek-R1") << RowText(*row);
    }
    if (!known.contains(claim.id)) {
      EXPECT_LE(row->verdict, Verdict::kContradiction) << RowText(*row);
    }
    for (size_t i = 0; i < row->findings.size(); ++i) {
      EXPECT_TRUE(row->verdicts[i] != Verdict::kNotReproduced || !row->findings[i].account.empty()) << RowText(*row);
    }
  }
}

TEST(Grid, LabelsNameSettings) {
  const Setting setting = ReadLabel("Llama-3.1-70B TP2DP4 4K");
  EXPECT_EQ(setting.model, "Llama-3.1-70B");
  EXPECT_EQ(setting.tp, 2);
  EXPECT_EQ(setting.devices, 8);
  EXPECT_EQ(setting.context, 4096);
  EXPECT_EQ(ReadLabel("Qwen3-32B 4K over 1K").context, 4096);
  EXPECT_EQ(ReadLabel("B200 B = 256").device, "b200");
  EXPECT_EQ(NumberAfter("B200 B = 256", "B = "), 256);
  EXPECT_TRUE(HasWord("WaS, B = 1", "WaS"));
  EXPECT_FALSE(HasWord("WaS+CaS over WaS", "CaS"));
}

// What a steady state is made of, and that pooling as the paper has it is slower there than no pooling: physical links.
TEST(Lab, ASteadyState) {
  Lab lab;
  const Setting dp{.device = "h200", .batch = 8};
  const auto alone = lab.Decode(dp);
  ASSERT_TRUE(alone.ok()) << alone.status().ToString();
  EXPECT_EQ(alone->batch, 8);
  EXPECT_EQ(alone->fetch_ms, 0);
  EXPECT_EQ(alone->exposed_ms, 0);
  EXPECT_NEAR(alone->tokens_per_s, 8 * 8 / alone->step_ms * 1e3, 1e-6 * alone->tokens_per_s);
  Setting sidp = dp;
  sidp.weights = "striped";
  const auto pooled = lab.Decode(sidp);
  ASSERT_TRUE(pooled.ok()) << pooled.status().ToString();
  EXPECT_EQ(pooled->pool_layers, 64);
  EXPECT_GT(pooled->kv_tokens, alone->kv_tokens);
  // 7/8 of 64 FFNs of 786 MB at 360 GB/s; nothing else takes as long.
  EXPECT_NEAR(pooled->fetch_ms, 122.3, 0.5);
  EXPECT_NEAR(pooled->step_ms, pooled->fetch_ms, 0.08 * pooled->fetch_ms);
  EXPECT_NEAR(pooled->exposed_ms, pooled->step_ms - alone->step_ms, 0.15 * pooled->step_ms);
}

// A step's parts add up to it, and none is left to "other" that has a name.
TEST(Rows, BatchScalingAccountsForItsSteps) {
  Claim claim{.id = "SI4.DP8", .kind = Kind::kBand, .band = 0.2, .values = {{"B = 64", "100.0"}}};
  Lab lab;
  const auto row = RunRow(claim, lab);
  ASSERT_TRUE(row.ok()) << row.status().ToString();
  EXPECT_EQ(row->verdict, Verdict::kNotReproduced);
  std::map<std::string_view, double> terms;
  for (const Term& term : row->findings[0].account) terms[term.name] = term.value;
  EXPECT_EQ(terms["rows a device"], 8);
  EXPECT_NEAR(terms["context"], 512 + 256, 2);
  EXPECT_GT(terms["KV tokens a device"], 8 * 1024);
  EXPECT_GT(terms["linear ms"], 65.5 / 4800 * 1e3);  // the weights once, at the memory's full bandwidth
  EXPECT_GT(terms["attention ms"], 0);
  EXPECT_GT(terms["other ms"], 0);
  EXPECT_LT(terms["other ms"], 0.1 * terms["step ms"]);
  EXPECT_NEAR(terms["linear ms"] + terms["attention ms"] + terms["host ms"] + terms["other ms"], terms["step ms"], 1e-9);
  EXPECT_NEAR(row->findings[0].calibrated, 64 / terms["step ms"], 1e-9);
}

// What pool=auto expects of a step is what the simulated engine takes for it.
TEST(Lab, AStepTakesWhatItIsPricedAt) {
  Lab lab;
  for (const int tp : {1, 2}) {
    for (const int64_t pooled : {0, 16}) {
      Setting setting{.device = "h200", .tp = tp, .weights = pooled > 0 ? "striped" : "replicated", .pool = pooled, .context = 2048, .batch = 64};
      const auto decoding = lab.Decode(setting);
      ASSERT_TRUE(decoding.ok()) << decoding.status().ToString();
      const engine::EngineOptions options = OptionsOf(setting);
      const auto files = engine::OpenModel(options.model, true, 0);
      const auto plan = engine::PlanLayout(options, files->config);
      ASSERT_TRUE(plan.ok()) << plan.status().ToString();
      const engine::StepPricer pricer(files->config, plan->dtype, tp, plan->ranks[0].memory.capacity, plan->machine.profile,
                                      cost::Calibration::kCalibrated);
      const cost::Work step = pricer.Decode(64, 2036).all();
      const double rate = 1e-3 * decoding->fetch_ms / (1e-3 * decoding->step_ms) * cost::PullRate(plan->machine.profile);
      const double slowdown = cost::Slowdown(step, {.in = rate, .out = rate}, cost::ContentionOf(plan->machine.profile, 1));
      const double expected_ms = std::max(1e3 * step.seconds * slowdown, decoding->fetch_ms);
      EXPECT_NEAR(expected_ms, decoding->step_ms, (pooled > 0 ? 0.03 : 0.01) * decoding->step_ms) << tp << " " << pooled;
    }
  }
}

TEST(Rows, ContentionIsADistribution) {
  double sum = 0;
  const Claim claim{.id = "DW3", .values = {{"N=4 C=1", "1"}, {"N=4 C=2", "1"}, {"N=4 C=3", "1"}}};
  Lab lab;
  const auto findings = FindScenario("DW3")(claim, lab);
  for (const Finding& finding : *findings) sum += finding.calibrated;
  EXPECT_NEAR(sum, 100, 1e-9);
}

TEST(RowFormat, ShowsContradictionsAndAccounts) {
  Claim claim{.id = "X1", .source = "Paper, Table 1", .what = "A rate", .assumed = "a tail", .kind = Kind::kBand, .band = 0.1,
              .values = {{"B = 1", "2.0"}, {"B = 2", "4.0"}, {"B = 3", "6.0", "more than the link has"}}};
  RowResult row{.claim = &claim,
                .findings = {{.calibrated = 2.1}, {.calibrated = 6, .uncalibrated = 7, .account = {{"step, ms", 12.5}}}, {.calibrated = 9}},
                .verdicts = {Verdict::kWithinBand, Verdict::kNotReproduced, Verdict::kContradiction},
                .verdict = Verdict::kNotReproduced};
  const std::string text = RowText(row);
  EXPECT_THAT(text, HasSubstr("X1  A rate (Paper, Table 1; band 10 %): not reproduced\n"));
  EXPECT_THAT(text, HasSubstr("  account of B = 2: step, ms 12.5\n"));
  EXPECT_THAT(text, HasSubstr("  contradiction in B = 3: more than the link has\n"));
  EXPECT_THAT(text, HasSubstr("  assumed: a tail\n"));
  const RowResult rows[] = {row, row};
  EXPECT_EQ(TotalsText(rows), "2 rows: 2 not reproduced");
  const std::string json = RowsJson(rows);
  simdjson::dom::parser parser;
  const auto document = base::ParseJson(parser, json);
  ASSERT_TRUE(document.ok()) << json;
  const simdjson::dom::element value = (*document)["rows"].at(1)["values"].at(1);
  EXPECT_EQ(value["uncalibrated"].get_double().value(), 7);
  EXPECT_EQ(value["account"]["step, ms"].get_double().value(), 12.5);
  EXPECT_EQ(value["verdict"].get_string().value(), "not reproduced");
}

// The figures that follow from a configuration are those that the engine plans with.
TEST(DerivedFigures, AgreeWithTheEnginesMemoryPlan) {
  for (const model::BuiltinConfigText& text : model::BuiltinConfigTexts()) {
    const model::ModelConfig config = *model::LoadBuiltinConfig(text.name);
    if (!model::CheckRunnable(config, "").ok()) continue;
    const model::DerivedFigures figures = model::Derive(config);
    const engine::MemoryRequest request{.budget_bytes = 1ull << 40, .max_model_len = 32, .max_num_seqs = 8, .max_num_batched_tokens = 64};
    const auto plan = engine::PlanMemory(config, tensor::DType::kBF16, request);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const double weights = static_cast<double>(plan->weight_bytes) / (2.0 * static_cast<double>(figures.params));
    EXPECT_GE(weights, 1) << text.name;
    EXPECT_LT(weights, 1.001) << text.name;  // panels of 64 columns, tables of tiles, vectors in fp32
    EXPECT_EQ(model::KvBlockBytes(plan->kv_groups, false), figures.kv_values * 2 * kernels::kBlockTokens) << text.name;
  }
}

}  // namespace
}  // namespace forebay::repro
