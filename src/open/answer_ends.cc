#include "open/answer_ends.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/log.h"

namespace forebay::open {
namespace {

std::string NameOf(const job::ModelText& text, int32_t id) {
  const std::string shown = text.TokenBytes(id);
  return shown.empty() ? fmt::format("token {}", id)
                       : fmt::format("{} ({})", base::ShownName(shown), id);
}

}  // namespace

void AddTokenizerEnds(const job::ModelText& text, engine::ModelFiles* files) {
  std::vector<int32_t>& ends = files->config.eos_token_ids;
  const std::vector<int32_t>& others = files->generation.eos_token_ids;
  const auto has = [&](int32_t id) {
    return std::ranges::count(ends, id) > 0 || std::ranges::count(others, id) > 0;
  };
  for (const int32_t id : text.tokenizer() ? text.tokenizer()->ends() : std::vector<int32_t>()) {
    if (has(id)) continue;
    if (id >= files->config.vocab_size) {
      base::Log(
          base::LogLevel::kWarning,
          fmt::format("{}: eos_token {} of the tokenizer is beyond the vocabulary of {} tokens, "
                      "and ends nothing",
                      files->path, NameOf(text, id), files->config.vocab_size));
      continue;
    }
    if (files->gguf == nullptr && !(ends.empty() && others.empty())) {
      base::Log(base::LogLevel::kWarning,
                fmt::format("{}: eos_token {} of the tokenizer is not among eos_token_id of "
                            "config.json and generation_config.json; it ends answers too",
                            files->path, NameOf(text, id)));
    }
    ends.push_back(id);
  }
  std::vector<int32_t> all = ends;
  all.insert(all.end(), others.begin(), others.end());
  std::vector<std::string> names;
  for (const int32_t id : all) {
    std::string name = NameOf(text, id);
    if (std::ranges::count(names, name) == 0) names.push_back(std::move(name));
  }
  base::Log(base::LogLevel::kInfo,
            fmt::format("answers end at {}; chat template: {}",
                        names.empty() ? "no token" : fmt::format("{}", fmt::join(names, ", ")),
                        text.templates().Names()));
}

}  // namespace forebay::open
