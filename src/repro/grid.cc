#include "repro/grid.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <vector>

#include "base/check.h"

namespace forebay::repro {
namespace {

std::vector<std::string_view> Words(std::string_view label) {
  std::vector<std::string_view> words;
  while (!label.empty()) {
    const size_t end = std::min(label.find_first_of(" ,:"), label.size());
    if (end > 0) words.push_back(label.substr(0, end));
    label.remove_prefix(std::min(end + 1, label.size()));
  }
  return words;
}

}  // namespace

Setting ReadLabel(std::string_view label, Setting base) {
  for (const std::string_view word : Words(label)) {
    const std::string text(word);
    if (text == "over") break;  // what follows is what it is compared with
    int tp = 0, dp = 0;
    if (std::sscanf(text.c_str(), "TP%dDP%d", &tp, &dp) == 2) {
      base.tp = tp;
      base.devices = tp * dp;
    } else if (text == "1K" || text == "2K" || text == "4K") {
      base.context = 1024 * (text[0] - '0');
    } else if (text == "H20" || text == "H200" || text == "B200") {
      base.device = (text[0] == 'H' ? "h" : "b") + text.substr(1);
    } else if (text.starts_with("Qwen") || text.starts_with("Llama")) {
      base.model = text;
    }
  }
  return base;
}

bool HasWord(std::string_view label, std::string_view word) {
  for (const std::string_view each : Words(label)) {
    if (each == word) return true;
  }
  return false;
}

int64_t NumberAfter(std::string_view label, std::string_view before) {
  const size_t at = label.find(before);
  FB_CHECK(at != label.npos, "\"{}\" has no \"{}\"", label, before);
  const std::string_view rest = label.substr(at + before.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  FB_CHECK(error == std::errc(), "\"{}\" has no number behind \"{}\"", label, before);
  return number;
}

}  // namespace forebay::repro
