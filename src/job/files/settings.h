// The settings of a job that its answers depend on, and how a results file remembers them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace forebay::job {

enum class Setting : uint8_t {
  kTemplate,
  kNow,
  kText,
  kSeed,
  kMaxModelLen,
  kMaxLogprobs,
  kSampling,
  kDigest,
};
inline constexpr size_t kNumSettings = 8;

// As a message names them.
inline constexpr std::array<std::string_view, kNumSettings> kSettingNames = {
    "the chat template or tokenizer_config.json (--chat-template)",
    "the clock that the template reads (--now)",
    "--skip-tokenizer-init or --parse-special-in-content",
    "--seed",
    "--max-model-len",
    "--max-logprobs",
    "the sampling defaults (generation_config.json, --generation-config, --defaults)",
    "--digest",
};

// Collects the values of all settings, each once and in order.
class SettingsHash {
 public:
  void Add(Setting setting, std::string_view value);
  // What decides whether two jobs have the same settings.
  uint64_t hash() const { return hash_; }
  // A byte of each setting's own hash, the first in the lowest byte: enough to name what differs.
  uint64_t marks() const { return marks_; }

 private:
  uint64_t hash_ = 0, marks_ = 0;
};

// The names of the settings whose marks differ; "the settings" where none does or one of the two
// is 0, which is unknown.
std::string NameDifferences(uint64_t marks, uint64_t other_marks);

}  // namespace forebay::job
