// A file of recorded routing (docs/formats/routing.md), record by record.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "model/config.h"

namespace forebay {

// Rows of one choice that a step computed.
struct RecordedRows {
  int64_t line = 0;
  size_t rows = 0;
  std::vector<uint16_t> experts;  // [rows, layers with experts, experts of a token]
};

inline std::vector<RecordedRows> ReadRecords(const std::string& file, const model::MoeConfig& moe) {
  const auto number = [&](size_t at, auto value) {
    std::memcpy(&value, file.data() + at, sizeof(value));
    return value;
  };
  const auto layers = static_cast<size_t>(std::ranges::count(moe.has_experts, 1)),
             slots = layers * static_cast<size_t>(moe.experts_per_token);
  std::vector<RecordedRows> records;
  for (size_t at = 8 + 6 * 4 + 4 * layers; at < file.size();) {
    RecordedRows& record = records.emplace_back(
        RecordedRows{.line = number(at, int64_t{}), .rows = number(at + 12, uint32_t{})});
    record.experts.resize(record.rows * slots);
    std::memcpy(record.experts.data(), file.data() + at + 24, 2 * record.experts.size());
    at += 24 + 2 * record.experts.size();
  }
  return records;
}

}  // namespace forebay
