#include "job/failures.h"

#include <algorithm>

namespace forebay::job {
namespace {

constexpr size_t kMostMessage = 200;
// A results file may come from anywhere; codes beyond these are counted under one name.
constexpr size_t kMostCodes = 64;
constexpr std::string_view kOtherCodes = "other";

std::string Cut(std::string_view message) {
  if (message.size() <= kMostMessage) return std::string(message);
  size_t end = kMostMessage;
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0) == 0x80) --end;
  return std::string(message.substr(0, end)) + "...";
}

}  // namespace

void FailureTally::Add(std::string_view code, int64_t line, std::string_view message) {
  auto found = by_code_.find(code);
  if (found == by_code_.end()) {
    const std::string_view name = by_code_.size() < kMostCodes ? code : kOtherCodes;
    found = by_code_.try_emplace(std::string(name)).first;
  }
  Failure& failure = found->second;
  if (failure.count++ > 0 && failure.first_line < line) return;
  failure.first_line = line;
  failure.message = Cut(message);
}

std::vector<std::pair<std::string, FailureTally::Failure>> FailureTally::ByCount() const {
  std::vector<std::pair<std::string, Failure>> failures(by_code_.begin(), by_code_.end());
  std::ranges::stable_sort(
      failures, [](const auto& a, const auto& b) { return a.second.count > b.second.count; });
  return failures;
}

}  // namespace forebay::job
