#include "settings/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/read_file.h"
#include "settings/page.h"
#include "testing/test_data.h"

namespace forebay::settings {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

base::Status Set(RunOptions* options, std::string_view name, const std::string& text) {
  const Setting* const setting = Find(name, kRun);
  EXPECT_NE(setting, nullptr) << name;
  const Given given{setting, text};
  return Read({&given, 1}, options);
}

// The options with one setting given.
RunOptions With(std::string_view name, const std::string& text) {
  RunOptions options;
  const base::Status status = Set(&options, name, text);
  EXPECT_TRUE(status.ok()) << status.message();
  return options;
}

std::string ErrorOf(std::string_view name, const std::string& text) {
  RunOptions options;
  const base::Status status = Set(&options, name, text);
  EXPECT_FALSE(status.ok()) << name << " " << text;
  return status.message();
}

TEST(Settings, ACallerHasEachNameOnce) {
  for (const Caller caller : {kRun, kPlan, kPython}) {
    std::set<std::string_view> names;
    for (const Group& group : Table()) {
      for (const Setting& setting : group.settings) {
        if ((setting.callers & caller) == 0) continue;
        EXPECT_TRUE(setting.name().starts_with("--")) << setting.flag;
        EXPECT_TRUE(names.insert(setting.name()).second) << setting.name();
        EXPECT_EQ(Find(setting.name(), caller), &setting);
      }
    }
  }
}

// Whatever a member is printed as sets another one to the same; so --help, pages and checks of mute
// settings say what is so.
TEST(Settings, WhatIsPrintedIsRead) {
  for (const Group& group : Table()) {
    for (const Setting& setting : group.settings) {
      SCOPED_TRACE(setting.flag);
      std::vector<std::string> texts = setting.value.allowed;
      texts.push_back(setting.value.print(RunOptions()));
      for (const std::string& text : texts) {
        if (text.empty()) continue;
        RunOptions options;
        const base::Status status = setting.value.read(setting.name(), text, options);
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(setting.value.print(options), text);
      }
    }
  }
}

TEST(Settings, ValuesThatThereAreNotAreRefused) {
  EXPECT_EQ(ErrorOf("--steal", "never"),
            "--steal \"never\" is unknown; expected auto, off or always");
  EXPECT_EQ(ErrorOf("--length-predictor", "p90"),
            "--length-predictor \"p90\" is unknown; expected max, mean, quantile or known");
  EXPECT_EQ(ErrorOf("--max-num-seqs", "0"), "--max-num-seqs: \"0\" is no integer above 0");
  EXPECT_THAT(ErrorOf("--max-num-seqs", "99999999999"), HasSubstr("that fits"));
  EXPECT_EQ(ErrorOf("--threads", "1.5"), "--threads: \"1.5\" is no integer");
  EXPECT_THAT(ErrorOf("--seed", "-1"), HasSubstr("from 0 to 2^64 - 1"));
  EXPECT_EQ(ErrorOf("--max-logprobs", "-2"), "--max-logprobs is -2; expected at least -1");
  EXPECT_THAT(ErrorOf("--grace", "nan"), StartsWith("--grace is nan"));
  EXPECT_THAT(ErrorOf("--memory", "5XB"), StartsWith("--memory: "));
  EXPECT_EQ(ErrorOf("--memory", "0"), "--memory is 0; expected at least a byte");
  EXPECT_EQ(ErrorOf("--shard", ""),
            "--shard: the value is empty; expected one, or the flag left out");
  EXPECT_EQ(ErrorOf("--digest", "5"), "--digest is given \"5\"; expected no value");
  EXPECT_THAT(ErrorOf("--dtype", "float16"), StartsWith("--dtype float16 is not supported"));
  EXPECT_THAT(ErrorOf("--dtype", "bf17"), HasSubstr("expected auto, bfloat16 or float32"));
  EXPECT_THAT(ErrorOf("--shift-mode", "8x"), HasSubstr("is no mode"));
  EXPECT_THAT(ErrorOf("--shift-mode", "0x8"), HasSubstr("is no mode"));
  EXPECT_THAT(ErrorOf("--now", "yesterday"), StartsWith("--now: "));
  EXPECT_THAT(ErrorOf("--isa", "x"), StartsWith("--isa and --numerics: "));
}

// A number without its unit is a slip where it gives no room to speak of.
TEST(Settings, SizesBelowTheDeviceHaveUnits) {
  RunOptions options;
  const base::Status status = Set(&options, "--kv-offloading-size", "64");
  EXPECT_EQ(status.code(), layout::kOffloadingSize);
  EXPECT_EQ(status.message(),
            "--kv-offloading-size 64 is 64 bytes, less than any block of KV cache; 64GiB?");
  EXPECT_EQ(With("--kv-offloading-size", "8GiB").engine.tier.host_bytes, uint64_t{8} << 30);
  EXPECT_THAT(ErrorOf("--kv-offloading-size", "8 gigs"), StartsWith("--kv-offloading-size: "));
}

TEST(Settings, WhatIsReadIsSet) {
  EXPECT_EQ(With("--dtype", "float32").engine.machine.dtype, tensor::DType::kF32);
  EXPECT_EQ(With("--shift-mode", "4x2").engine.shift.mode, (model::Degrees{4, 2}));
  EXPECT_EQ(With("--pool-slice", "2MiB").engine.pool.slice_bytes, uint64_t{2} << 20);
  EXPECT_FALSE(With("--enable-prefix-caching", "false").engine.prefix_caching);
  EXPECT_EQ(With("--layout", "auto").engine.layout_by_job, true);
  RunOptions names;
  EXPECT_TRUE(Set(&names, "--served-model-name", "a").ok());
  EXPECT_TRUE(Set(&names, "--served-model-name", "b").ok());
  EXPECT_THAT(names.served_model_names, testing::ElementsAre("a", "b"));
}

TEST(Settings, AValueIsGivenOnce) {
  const Setting* const threads = Find("--threads", kRun);
  const Given twice[] = {{threads, "1"}, {threads, "2"}};
  RunOptions options;
  EXPECT_EQ(Read(twice, &options).message(), "--threads is given twice; expected once");
}

// vLLM's sizes are a layout, on as many ranks.
TEST(Settings, SizesBecomeALayout) {
  const RunOptions options = With("--tensor-parallel-size", "4");
  EXPECT_EQ(options.engine.layout->tp, 4);
  EXPECT_EQ(options.engine.machine.devices.text, "4xcpu");
  RunOptions both = With("--layout", "tp=2");
  EXPECT_THAT(Set(&both, "--data-parallel-size", "2").message(), HasSubstr("say --layout dp=2"));
}

TEST(Settings, SettingsThatNeedEachOtherAreCheckedTogether) {
  EXPECT_THAT(ErrorOf("--context", "dp=1"), HasSubstr("without --generation"));
  EXPECT_THAT(ErrorOf("--generation", "dp=1"), HasSubstr("without --context"));
  EXPECT_THAT(ErrorOf("--kv-file-size", "1GiB"), HasSubstr("without --kv-file"));
  EXPECT_THAT(ErrorOf("--kv-preempt", "park"), StartsWith("--kv-preempt park: there is nothing"));
  EXPECT_THAT(ErrorOf("--enable-shift-parallel", "false"),
              StartsWith("--no-enable-shift-parallel of a layout with sp=1"));
}

// Results that were made with other values are told apart by these texts: they stay as they are.
TEST(Settings, MarksOfTheFingerprintArePrinted) {
  RunOptions options;
  EXPECT_EQ(PrintMark(job::Setting::kText, options), "false false");
  options.text.parse_special_in_content = true;
  EXPECT_EQ(PrintMark(job::Setting::kText, options), "false true");
  EXPECT_EQ(PrintMark(job::Setting::kSeed, options), "0");
  EXPECT_EQ(PrintMark(job::Setting::kMaxLogprobs, options), "20");
  EXPECT_EQ(PrintMark(job::Setting::kDigest, options), "false");
}

// An error that names a mark names its settings.
TEST(Settings, MarksAreNamedByTheirSettings) {
  std::set<job::Setting> marks;
  for (const Group& group : Table()) {
    for (const Setting& setting : group.settings) {
      if (!setting.mark) continue;
      marks.insert(*setting.mark);
      EXPECT_THAT(std::string(job::kSettingNames[static_cast<size_t>(*setting.mark)]),
                  HasSubstr(std::string(setting.name())));
    }
  }
  EXPECT_EQ(marks.size(), job::kNumSettings);
}

TEST(Settings, ThePageIsAsTheTableSays) {
  const base::Result<std::string> page = base::ReadFile(TestData() + "/../docs/cli.md");
  ASSERT_TRUE(page.ok()) << page.status().message();
  const base::Result<std::string> filled = FillPage(*page);
  ASSERT_TRUE(filled.ok()) << filled.status().message();
  EXPECT_TRUE(*page == *filled) << "docs/cli.md is out of date; run `forebay docs docs/cli.md`";
}

TEST(Settings, HelpIsPlainText) {
  EXPECT_EQ(
      HelpLine(*Find("--max-logprobs", kRun)),
      "Most log probabilities that a request may ask for; -1 is the whole vocabulary (default: "
      "20)");
  EXPECT_EQ(HelpLine(*Find("--trace", kRun)).find('`'), std::string::npos);
}

}  // namespace
}  // namespace forebay::settings
