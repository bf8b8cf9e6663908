#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/json.h"
#include "choose/decide.h"
#include "engine/open_model.h"
#include "model/builtin_configs.h"
#include "model/derived.h"
#include "model/family.h"
#include "price/step_price.h"
#include "repro/dwdp/context_steps.h"
#include "repro/dwdp/roofline.h"
#include "repro/dwdp/rows.h"
#include "repro/dwdp/serving.h"
#include "repro/row_format.h"
#include "repro/scenario.h"

namespace forebay::repro {
namespace {

using testing::HasSubstr;

std::vector<const Claim*> AllClaims() { return *SelectClaims({}); }

const Claim& ClaimOf(const std::string& id) { return *SelectClaims(std::vector{id})->at(0); }

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
  const Claim exact{.kind = Kind::kExact}, band{.kind = Kind::kBand, .band = 0.2},
      order{.kind = Kind::kOrder};
  EXPECT_EQ(Judge(exact, {"", "9.1"}, 9.14), Verdict::kReproduced);
  EXPECT_EQ(Judge(exact, {"", "9.1"}, 9.16), Verdict::kNotReproduced);
  EXPECT_EQ(Judge(exact, {"", "9.1", {"it cannot be", "9.2"}}, 9.16), Verdict::kContradiction);
  EXPECT_EQ(Judge(exact, {"", "9.1", {"it cannot be", "9.2"}}, 9.3), Verdict::kNotReproduced);
  EXPECT_EQ(Judge(exact, {"", "9.1", {"it cannot be", "9.2"}}, 9.1), Verdict::kReproduced);
  EXPECT_EQ(Judge(band, {"", "10.0"}, 10.01), Verdict::kReproduced);
  EXPECT_EQ(Judge(band, {"", "10.0"}, 11.9), Verdict::kWithinBand);
  EXPECT_EQ(Judge(band, {"", "10.0"}, 8.1), Verdict::kWithinBand);
  EXPECT_EQ(Judge(band, {"", "10.0"}, 12.1), Verdict::kNotReproduced);
  EXPECT_EQ(Judge(band, {"", "10.0", {"too fast", "20"}}, 23.9), Verdict::kContradiction);
  EXPECT_EQ(Judge(band, {"", "10.0", {"too fast", "20"}}, 24.1), Verdict::kNotReproduced);
  EXPECT_EQ(Judge(band, {"", "10.0", {"too fast", "20"}}, 11.9), Verdict::kNotReproduced);
  EXPECT_EQ(Judge(order, {"", "> 1", {"too fast", "0.8"}}, 0.65), Verdict::kContradiction);
  EXPECT_EQ(Judge(order, {"", "> 1", {"too fast", "0.8"}}, 0.6), Verdict::kNotReproduced);
  EXPECT_EQ(Judge(order, {"", "> 1.5"}, 1.6), Verdict::kReproduced);
  EXPECT_EQ(Judge(order, {"", "> 1.5"}, 1.5), Verdict::kNotReproduced);
  EXPECT_EQ(Judge(order, {"", "< 1"}, 0.9), Verdict::kReproduced);
}

TEST(Rows, EachHasAnIdAScenarioAndReadableValues) {
  std::set<std::string_view> ids;
  for (const Claim* each : AllClaims()) {
    const Claim& claim = *each;
    EXPECT_TRUE(ids.insert(claim.id).second) << claim.id;
    EXPECT_EQ(claim.kind == Kind::kBand || claim.kind == Kind::kPoints, claim.band > 0) << claim.id;
    EXPECT_FALSE(claim.values.empty()) << claim.id;
    for (const ClaimedValue& value : claim.values) {
      EXPECT_TRUE(PrintedNumber(value.printed) != 0 || value.printed.starts_with('0'))
          << claim.id << " " << value.label;
      EXPECT_TRUE(value.measure != nullptr) << claim.id << " " << value.label;
      EXPECT_EQ(value.contradiction.why.empty(), value.contradiction.corrected.empty()) << claim.id;
      EXPECT_EQ(value.printed.starts_with('>') || value.printed.starts_with('<'),
                claim.kind == Kind::kOrder)
          << claim.id;
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
  EXPECT_THAT(ids({"DW3"}), testing::ElementsAre("DW3"));
  EXPECT_THAT(ids({"model"}), testing::SizeIs(7));
  EXPECT_THAT(ids({"sidp"}), testing::SizeIs(28));
  EXPECT_THAT(
      ids({"vasuki", "dwdp"}),
      testing::ElementsAre(
          "DW3", "DW0", "DW1.DEP4", "DW1.DWDP4", "DW1.gain", "DW1.copy", "DW4.ttft", "DW4.tokens",
          "DW5.ttft", "DW5.tokens", "DW6.ttft", "DW6.tokens", "DW6.rises", "DW7.ttft",
          "DW10.output", "DW10.user", "DW10.ttft", "DW10.groups", "DW7", "DW8", "DW9", "DW9.queues",
          "DW2.hidden", "DW2.peak", "DW2.speedup", "DW11.memory", "DW11.slower", "DW11.frequency",
          "DWB", "VA1", "VA2", "VA2.physical", "VA2.link", "VA3.bytes", "VA3", "VA4", "VA5", "VA6",
          "VA8", "VA9", "VA8.jobs", "VA9.jobs", "VA10", "VA11", "VA11.jobs", "VA11.packed", "VA12",
          "VA4.jobs", "VA1.jobs", "VA2.jobs", "VA2.chats", "VA3.jobs", "VA4.printed", "VA8.printed",
          "VA7", "VA7.vllm"));
  EXPECT_THAT(ids({"DW3", "model.Llama-3-8B"}), testing::ElementsAre("model.Llama-3-8B", "DW3"));
  const std::vector<std::string> wrong{"DW3", "DW99"};
  EXPECT_EQ(SelectClaims(wrong).status().code(), kRowUnknown);
  EXPECT_THAT(SelectClaims(wrong).status().message(),
              HasSubstr("row \"DW99\" is unknown; expected one of model, SI0, SI1,"));
}

// Values that are printed off a mistake agree with what is corrected, to the digit.
TEST(Rows, ALayersPrefetchTakesMilliseconds) {
  Lab lab;
  EXPECT_EQ(RunRow(ClaimOf("DWB"), lab)->verdict, Verdict::kContradiction);
  EXPECT_EQ(RunRow(ClaimOf("DW2.hidden"), lab)->verdict, Verdict::kWithinBand);
  EXPECT_EQ(RunRow(ClaimOf("DW2.speedup"), lab)->verdict, Verdict::kReproduced);
  EXPECT_EQ(RunRow(ClaimOf("DW2.peak"), lab)->verdict, Verdict::kWithinBand);
}

// A value that a quick run shortens has no verdict; a row that lacks values is judged only where
// one of them is not reproduced.
TEST(Rows, AQuickRunGivesNoVerdictThatTheFullRunDoesNot) {
  const auto value = [](const char* label, double ours, bool shortened) {
    return ClaimedValue{label, "> 1", {}, [=](Lab&) -> FindingOr {
                          return Finding{.calibrated = ours, .shortened = shortened};
                        }};
  };
  Claim claim{
      .id = "X1", .kind = Kind::kOrder, .values = {value("a", 2, false), value("b", 0.5, false)}};
  Lab full, quick(true);
  EXPECT_EQ(RunRow(claim, full)->verdict, Verdict::kNotReproduced);
  auto row = RunRow(claim, quick);
  EXPECT_EQ(row->verdict, Verdict::kNotJudged);
  EXPECT_EQ(row->shortened, "1 of 2 values");
  EXPECT_EQ(row->verdicts[0], Verdict::kReproduced);
  claim.values[0] = value("a", 0.5, false);
  EXPECT_EQ(RunRow(claim, quick)->verdict, Verdict::kNotReproduced);
  claim.values = {value("a", 0.5, true)};
  row = RunRow(claim, quick);
  EXPECT_EQ(row->verdict, Verdict::kNotJudged);
  EXPECT_EQ(row->verdicts[0], Verdict::kNotJudged);
  EXPECT_EQ(row->shortened, "parts of each");
  claim.values = {value("a", 2, false)};
  row = RunRow(claim, quick);
  EXPECT_EQ(row->verdict, Verdict::kReproduced);
  EXPECT_EQ(row->shortened, "");
}

// A scenario that does not come to what a claim is about has no figure, and says what it comes to.
TEST(Rows, WhatIsNotReachedHasNoFigure) {
  const auto value = [](const char* label, double ours, const char* not_reached) {
    return ClaimedValue{label, "> 1", {}, [=](Lab&) -> FindingOr {
                          return Finding{.calibrated = ours, .not_reached = not_reached};
                        }};
  };
  Claim claim{
      .id = "X1", .kind = Kind::kOrder, .values = {value("a", 2, ""), value("b", 2, "60 at most")}};
  Lab lab;
  const auto row = RunRow(claim, lab);
  EXPECT_EQ(row->verdict, Verdict::kNotReached);
  const std::string text = RowText(*row);
  EXPECT_THAT(text, HasSubstr("): not reached\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\n  b +> 1 +- +-  not reached\n"));
  EXPECT_THAT(text, HasSubstr("\n  not reached in b: 60 at most\n"));
  EXPECT_EQ(TotalsText({&*row, 1}), "1 rows: 1 not reached");
  simdjson::dom::parser parser;
  const std::string json = RowsJson({&*row, 1});
  const auto document = base::ParseJson(parser, json);
  ASSERT_TRUE(document.ok()) << json;
  const simdjson::dom::element reached = (*document)["rows"].at(0)["values"].at(0),
                               not_reached = (*document)["rows"].at(0)["values"].at(1);
  EXPECT_EQ(reached["calibrated"].get_double().value(), 2);
  EXPECT_TRUE(not_reached["calibrated"].is_null());
  EXPECT_EQ(not_reached["not_reached"].get_string().value(), "60 at most");
  claim.values.push_back(value("c", 0.5, ""));
  EXPECT_EQ(RunRow(claim, lab)->verdict, Verdict::kNotReproduced);
}

// No batch of ours gives a user what the first of DW10's ranges asks for.
TEST(Dwdp, ARangeThatNoBatchReachesIsRefused) {
  Lab lab;
  for (const char* id : {"DW10.output", "DW10.ttft"}) {
    Claim claim = ClaimOf(id);
    claim.values.resize(1);
    const auto row = RunRow(claim, lab);
    ASSERT_TRUE(row.ok()) << row.status().ToString();
    EXPECT_EQ(row->verdict, Verdict::kNotReached);
    EXPECT_THAT(RowText(*row), HasSubstr("not reached in 170-180: "));
    EXPECT_THAT(RowText(*row), HasSubstr(" tokens a second and user at most, with 1 answer"));
  }
}

// By requests that are alike the batch of a range is found: each rank decodes about as many.
TEST(Dwdp, RequestsThatAreAlikeAreDealtEvenly) {
  Lab lab;
  for (const int32_t batch : {1, 12}) {
    const auto served = RunServing({.ships = true,
                                    .ranks = 8,
                                    .prompt = 1024,
                                    .output = 40,
                                    .batch = batch,
                                    .requests = int64_t{8} * batch},
                                   lab);
    ASSERT_TRUE(served.ok()) << served.status().ToString();
    EXPECT_GT(served->decoding_seconds, 0) << batch;
  }
}

// What a steady state is made of, and that pooling as the paper has it is slower there than no
// pooling: physical links.
TEST(Lab, ASteadyState) {
  Lab lab;
  const GroupSetting dp{.device = "h200", .batch = 8};
  const auto alone = lab.Decode(dp);
  ASSERT_TRUE(alone.ok()) << alone.status().ToString();
  EXPECT_EQ(alone->batch, 8);
  EXPECT_EQ(alone->fetch_ms, 0);
  EXPECT_EQ(alone->exposed_ms, 0);
  EXPECT_NEAR(alone->tokens_per_s, 8 * 8 / alone->step_ms * 1e3, 1e-6 * alone->tokens_per_s);
  GroupSetting sidp = dp;
  sidp.weights = kStriped;
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
  Claim claim = ClaimOf("SI4.DP8");
  claim.values.resize(1);
  claim.values[0].printed = "100.0";
  Lab lab;
  const auto row = RunRow(claim, lab);
  ASSERT_TRUE(row.ok()) << row.status().ToString();
  EXPECT_EQ(row->verdict, Verdict::kNotReproduced);
  std::map<std::string, double> terms;
  for (const Term& term : row->findings[0].account) terms[term.name] = term.value;
  EXPECT_EQ(terms["rows a device"], 8);
  EXPECT_NEAR(terms["context"], 512 + 256, 2);
  EXPECT_GT(terms["KV tokens a device"], 8 * 1024);
  // the weights once, at the memory's full bandwidth
  EXPECT_GT(terms["linear ms"], 65.5 / 4800 * 1e3);
  EXPECT_GT(terms["attention ms"], 0);
  EXPECT_GT(terms["other ms"], 0);
  EXPECT_LT(terms["other ms"], 0.1 * terms["step ms"]);
  EXPECT_NEAR(terms["linear ms"] + terms["attention ms"] + terms["host ms"] + terms["other ms"],
              terms["step ms"], 1e-9);
  EXPECT_NEAR(row->findings[0].calibrated, 64 / terms["step ms"], 1e-9);
}

// What pool=auto expects of a step is what the simulated engine takes for it.
TEST(Lab, AStepTakesWhatItIsPricedAt) {
  Lab lab;
  for (const int tp : {1, 2}) {
    for (const int64_t pooled : {0, 16}) {
      GroupSetting setting{.device = "h200",
                           .tp = tp,
                           .weights = pooled > 0 ? kStriped : kReplicated,
                           .pool = pooled,
                           .context = 2048,
                           .batch = 64};
      const auto decoding = lab.Decode(setting);
      ASSERT_TRUE(decoding.ok()) << decoding.status().ToString();
      const layout::EngineOptions options = OptionsOf(setting);
      const auto files = engine::OpenModel(options.model, true, 0);
      const auto plan = choose::Decide(options, files->config);
      ASSERT_TRUE(plan.ok()) << plan.status().ToString();
      const price::StepPricer pricer(files->config, plan->dtype, {.tp = tp},
                                     plan->ranks[0].memory.capacity, plan->machine.profile,
                                     {cost::Calibration::kCalibrated});
      const cost::Work step = pricer.Decode(64, 2036).all();
      const double rate = 1e-3 * decoding->fetch_ms / (1e-3 * decoding->step_ms) *
                          cost::PullRate(plan->machine.profile);
      const double slowdown = cost::Slowdown(step, {.in = rate, .out = rate},
                                             cost::ContentionOf(plan->machine.profile, 1));
      const double expected_ms = std::max(1e3 * step.seconds * slowdown, decoding->fetch_ms);
      EXPECT_NEAR(expected_ms, decoding->step_ms, (pooled > 0 ? 0.03 : 0.01) * decoding->step_ms)
          << tp << " " << pooled;
    }
  }
}

TEST(Rows, ContentionIsADistribution) {
  Lab lab;
  double sum = 0;
  for (const int pulls : {1, 2, 3})
    sum += PullContention({.ranks = 4, .pulls = pulls}, 0, lab)->calibrated;
  EXPECT_NEAR(sum, 100, 1e-9);
}

// The gain of one prompt rises to its peak, where its pulls are hidden, and falls.
TEST(Dwdp, TheGainPeaksWherePullsAreHidden) {
  const double best = BestTokens({});
  EXPECT_NEAR(best, HidingTokens({}), 64);
  const auto gain = [](double tokens) { return RooflineOfContext(tokens, {}).speedup(); };
  EXPECT_GT(gain(best), gain(best - 64));
  EXPECT_GT(gain(best), gain(best + 64));
  EXPECT_GT(gain(32768), gain(131072));
}

TEST(Substitutes, AreNamedAndChecked) {
  const auto parsed = ParseSubstitutes("model=Qwen2.5-72B,device=b200,link=5e10,bf16_flops=1e15");
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->model, "Qwen2.5-72B");
  EXPECT_EQ(parsed->device, "b200");
  EXPECT_EQ(parsed->numbers, ":link_bytes_per_s=5e10:bf16_flops=1e15");
  EXPECT_FALSE(ParseSubstitutes("")->any());
  for (const char* wrong : {"model", "=x", "model=", "model=x", "device=x", "speed=3", "link=x"})
    EXPECT_FALSE(ParseSubstitutes(wrong).ok()) << wrong;
}

// A row of the same figure with a ninth of the link: other values, and no verdict.
TEST(Substitutes, ReachRowsThatRun) {
  const Claim& fetch = ClaimOf("SI6.fetch");
  Lab papers, ours(false, *ParseSubstitutes("link=5e10"));
  const auto before = RunRow(fetch, papers), after = RunRow(fetch, ours);
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_EQ(after->verdict, Verdict::kNotJudged);
  EXPECT_THAT(RowText(*after), HasSubstr("ours is with --set"));
  EXPECT_GT(after->findings[0].calibrated, 5 * before->findings[0].calibrated);
  Lab again(false, *ParseSubstitutes("link=5e10"));
  EXPECT_THAT(RunRow(ClaimOf("DW3"), again)->setting, HasSubstr("--set does not reach"));
  EXPECT_FALSE(RunRow(ClaimOf("DW3"), again)->reached);
  // Serving, which the lab does not run itself.
  Lab quick(true), slow(true, *ParseSubstitutes("link=5e10"));
  const Claim& queue = ClaimOf("DW7.ttft");
  const auto fast_links = RunRow(queue, quick), slow_links = RunRow(queue, slow);
  ASSERT_TRUE(fast_links.ok() && slow_links.ok());
  EXPECT_TRUE(slow_links->reached);
  EXPECT_NE(slow_links->findings[0].calibrated, fast_links->findings[0].calibrated);
}

// What takes runs of its own is run for accounts that are shown.
TEST(Rows, MoreIsAskedForWhereAnAccountIsShown) {
  const auto more_of = [](std::string_view printed, bool all, bool quick) {
    Claim claim{.id = "X1",
                .kind = Kind::kBand,
                .band = 0.1,
                .values = {{"B = 1", printed}},
                .account_all = all};
    claim.values[0].measure = [](Lab&) -> FindingOr {
      return Finding{.calibrated = 2, .more = [](Account* account) -> base::Status {
                       account->push_back({"more", 1});
                       return {};
                     }};
    };
    Lab lab(quick);
    return RunRow(claim, lab)->findings[0].account.size();
  };
  EXPECT_EQ(more_of("2", false, false), 0);
  EXPECT_EQ(more_of("2", true, false), 1);
  EXPECT_EQ(more_of("3", false, false), 1);
  EXPECT_EQ(more_of("3", false, true), 0);
}

// Rows that go to experts in 4 bits and come back in bf16: 2.70 other ranks of four.
TEST(Dwdp, SumsTakeWhatTheirBytesTake) {
  EXPECT_NEAR(ExchangeBytes(1, 4, cost::NumberFormat::kNVFP4), 49'600, 50);
  EXPECT_EQ(LayersWithExperts(), 58);
  ContextTimes times{.step = 1000, .exchange = 400, .rows = 32768};
  const ContextTimes by_bytes = WithSums({.ranks = 4, .uncalibrated = true}, times),
                     measured = WithSums({.ranks = 4}, times);
  EXPECT_NEAR(by_bytes.exchange, 58 * 32.768 * 49'600 / 720e3, 0.2);
  EXPECT_NEAR(measured.exchange, 58 * 2.7083, 0.01);
  EXPECT_NEAR(measured.step, 600 + measured.exchange, 1e-9);
}

// A context step is its kernels, waits and exchange; ranks that pull wait for nobody.
TEST(Dwdp, StepsAreTheirParts) {
  Lab lab(true);
  ContextSteps setting{.routing = "balanced", .prompt = 2048, .ratio = 1, .rows = 8192};
  const auto pulled = RunContext(setting, lab);
  ASSERT_TRUE(pulled.ok()) << pulled.status().ToString();
  EXPECT_EQ(pulled->rows, 8192);
  EXPECT_NEAR(pulled->fetch, 58 * 4756.0 / 720, 7);  // MB a layer, by GB/s; one more ahead
  EXPECT_GT(pulled->step, pulled->fetch);
  EXPECT_NEAR(pulled->exchange, 0, 1e-3);
  EXPECT_EQ(pulled->merge, 0);
  EXPECT_EQ(pulled->waits, 0);
  ContextSteps few = setting;
  few.rows = 2048;
  const auto uncovered = RunContext(few, lab);
  ASSERT_TRUE(uncovered.ok()) << uncovered.status().ToString();
  EXPECT_GT(uncovered->exposed, 0.2 * uncovered->step);
  EXPECT_EQ(uncovered->waits, 0);
  few.alone = true;
  const auto alone = RunContext(few, lab);
  ASSERT_TRUE(alone.ok()) << alone.status().ToString();
  EXPECT_EQ(alone->step, uncovered->step);
  EXPECT_LT(alone->compute(), uncovered->compute());
  EXPECT_GT(alone->compute(), 0.8 * uncovered->compute());  // links are full all the time
  setting.merges = true;
  const auto merged = RunContext(setting, lab);
  ASSERT_TRUE(merged.ok()) << merged.status().ToString();
  EXPECT_GT(merged->merge, 58 * 2 * 6341.0 / 8000);  // MB of a layer read and written, by GB/s
  setting.merges = false;
  setting.mode = StepMode{.ffn = FfnMode::kShip};
  const auto shipped = RunContext(setting, lab);
  ASSERT_TRUE(shipped.ok()) << shipped.status().ToString();
  EXPECT_GT(shipped->exchange, 0.1 * shipped->step);
  EXPECT_LT(shipped->waits, 0.1 * shipped->step);  // all ranks have the same to do
  setting.rank_cv = 0.2;
  const auto uneven = RunContext(setting, lab);
  ASSERT_TRUE(uneven.ok()) << uneven.status().ToString();
  EXPECT_GT(uneven->waits, 0.1 * uneven->step);
  EXPECT_GT(uneven->waits, 2 * shipped->waits);
  EXPECT_LT(uneven->least_waits, 0.5 * uneven->waits);
}

TEST(RowFormat, ShowsContradictionsAndAccounts) {
  Claim claim{
      .id = "X1",
      .source = "Paper, Table 1",
      .what = "A rate",
      .assumed = "a tail",
      .kind = Kind::kBand,
      .band = 0.1,
      .values = {
          {"B = 1", "2.0"}, {"B = 2", "4.0"}, {"B = 3", "6.0", {"more than the link has", "9"}}}};
  RowResult row{
      .claim = claim,
      .shortened = "1 of 3 values",
      .findings = {{.calibrated = 2.1},
                   {.calibrated = 6, .uncalibrated = 7, .account = {{"step, ms", 12.5}}},
                   {.calibrated = 9}},
      .verdicts = {Verdict::kWithinBand, Verdict::kNotReproduced, Verdict::kContradiction},
      .verdict = Verdict::kNotReproduced};
  const std::string text = RowText(row);
  EXPECT_THAT(text, HasSubstr("X1  A rate (Paper, Table 1; band 10 %): not reproduced\n"));
  EXPECT_THAT(text, HasSubstr("\n  shortened: 1 of 3 values\n"));
  EXPECT_THAT(text, HasSubstr("  account of B = 2: step, ms 12.5\n"));
  EXPECT_THAT(text, HasSubstr("  contradiction in B = 3: more than the link has; corrected 9\n"));
  EXPECT_THAT(text, HasSubstr("  assumed: a tail\n"));
  const RowResult rows[] = {row, row};
  EXPECT_EQ(TotalsText(rows), "2 rows: 2 not reproduced");
  RowResult own = row;
  own.claim.source = kBoundOfOurs;
  EXPECT_EQ(TotalsText(std::vector{row, own}),
            "2 rows: 2 not reproduced\nof the 1 published claims: 1 not reproduced\n"
            "of the 1 comparisons and bounds of ours: 1 not reproduced");
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
    if (config.stored) continue;  // as its namesake
    const model::DerivedFigures figures = model::Derive(config);
    const layout::MemoryRequest request{.budget_bytes = 1ull << 41,
                                        .max_model_len = 32,
                                        .max_num_seqs = 8,
                                        .max_num_batched_tokens = 64};
    const auto plan = layout::PlanMemory(config, tensor::DType::kBF16, request);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const double weights = static_cast<double>(plan->bytes(layout::RegionUse::kWeights)) /
                           (2.0 * static_cast<double>(figures.params));
    EXPECT_GE(weights, 1) << text.name;
    // panels of 64 columns (a state's gates have a column a head), tables of tiles, vectors in fp32
    EXPECT_LT(weights, config.states ? 1.004 : 1.001) << text.name;
    EXPECT_EQ(kv::KvBlockBytes(plan->kv_groups, false),
              figures.kv_values * 2 * kernels::kBlockTokens)
        << text.name;
  }
}

}  // namespace
}  // namespace forebay::repro
