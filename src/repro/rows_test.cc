#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <vector>

#include "repro/dwdp/table.h"
#include "repro/row_format.h"
#include "repro/scenario.h"

namespace forebay::repro {
namespace {

// Every row runs, of those that are simulated the first and the last value. What is not reproduced
// says of what it is made.
TEST(Rows, ComeOutAsKnown) {
  // Not reproduced in full, as docs/simulator.md says.
  const std::set<std::string_view> known = {"SI2",
                                            "SI4.TP8",
                                            "SI6.step",
                                            "SI5.H20",
                                            "SI5.H200",
                                            "SI5.B200",
                                            "SI5.jobs",
                                            "SI7",
                                            "SI8",
                                            "SI11.share",
                                            "SI12",
                                            "POOL.gains",
                                            "VA1",
                                            "VA2.chats",
                                            "VA2.link",
                                            "VA2.physical",
                                            "VA3.bytes",
                                            "VA4",
                                            "SH1.ttft.Llama",
                                            "SH1.tpot.Llama",
                                            "SH1.tokens.Llama",
                                            "SH1.ttft.Qwen3",
                                            "SH1.tpot.Qwen3",
                                            "SH1.tokens.Qwen3",
                                            "SH1.bf16",
                                            "SH2",
                                            "SH2.peak",
                                            "SH2.sweep",
                                            "SH3.most",
                                            "SH10.kv",
                                            "SH14.peak",
                                            "SH14.most",
                                            "SH14.ep",
                                            "SHL.stream.batch",
                                            "SHL.sweep",
                                            "SHT.lowest",
                                            "SHT.loss",
                                            "SHT.bursts",
                                            "DW0",
                                            "DW1.DEP4",
                                            "DW1.DWDP4",
                                            "DW1.gain",
                                            "DW4.tokens",
                                            "DW5.tokens",
                                            "DW6.tokens",
                                            "DW7",
                                            "DW8",
                                            "DW9"};
  // Rows and claims of which a quick run says nothing.
  const std::set<std::string_view> too_short = {
      "SH4.above", "DW7.ttft", "DW10.output", "DW10.user", "DW10.ttft",   "VA8.jobs",   "VA10",
      "VA4.jobs",  "VA1.jobs", "VA2.jobs",    "VA3.jobs",  "VA4.printed", "VA8.printed"};
  // These take seconds, and others of their kind run: tools/soak.sh runs all.
  const std::set<std::string_view> long_rows = {
      "SH3.most",         "SHB.bursts", "SH14.most",    "SH14.latency", "SHX.gains", "DW10.output",
      "SI5.B200",         "SI5.H20",    "SI5.batching", "POOL.B200",    "POOL.H20",  "DW9",
      "SHA.conversation", "SH2.peak",   "SH14.ep",      "SHB.rates"};
  const std::set<std::string_view> contradicted = {"model.DeepSeek-R1", "DWB", "SH7.used", "SH8"};
  Lab lab(true);
  const std::vector<const Claim*> claims = *SelectClaims({});
  for (const Claim* each : claims) {
    const Claim& claim = *each;
    if (long_rows.contains(claim.id) && std::getenv("FOREBAY_ALL_ROWS") == nullptr) continue;
    const auto row = RunRow(claim, lab);
    ASSERT_TRUE(row.ok()) << row.status().ToString();
    if (claim.id.starts_with("model.") || claim.kind == Kind::kExact) {
      EXPECT_EQ(row->verdict == Verdict::kContradiction, contradicted.contains(claim.id))
          << RowText(*row);
    }
    for (size_t i = 0; i < row->findings.size(); ++i) {
      if (too_short.contains(claim.id)) continue;
      const Verdict judged = Judge(claim, row->claim.values[i], row->findings[i].calibrated);
      EXPECT_TRUE(judged <= Verdict::kContradiction || known.contains(claim.id)) << RowText(*row);
      EXPECT_TRUE(row->verdicts[i] != Verdict::kNotReproduced || !row->findings[i].account.empty())
          << RowText(*row);
    }
  }
}

TEST(Dwdp, TheTablesHaveALineACellThatFits) {
  Lab lab(true);
  const auto printed = [&](const auto& print_table) {
    std::string table;
    const base::Status status =
        print_table(lab, [&](const std::string& line) { table += line + "\n"; });
    EXPECT_TRUE(status.ok()) << status.ToString();
    return table;
  };
  EXPECT_THAT(printed(&PrintMixedTable),
              AllOf(testing::HasSubstr("\n| gb200-nvl72 | 4 | 8K | 32 | "),
                    testing::HasSubstr("\n1 cells fit. ")));
  EXPECT_THAT(printed(&PrintFrontier), testing::HasSubstr("\n| 25 | 8 | 1 | 0 | 4.0 | 4 | "));
  const std::string table = printed(&PrintContextTable);
  EXPECT_THAT(table, testing::HasSubstr("\n| gb200-nvl72 | 4 | 8K | 8K | "));
  EXPECT_THAT(table, testing::HasSubstr("\n| gb200-nvl72 | 4 | 8K | 32K | "));
  EXPECT_THAT(table, testing::HasSubstr("\n2 cells fit. "));
  EXPECT_THAT(table, testing::ContainsRegex("slower by, %: gb200-nvl72 x4 -?[0-9.]+\\.\n"));
}

}  // namespace
}  // namespace forebay::repro
