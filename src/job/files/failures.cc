#include "job/files/failures.h"

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

std::string Thousands(int64_t number) {
  std::string text = std::to_string(number);
  for (size_t i = text.size(); i > 3;) text.insert(i -= 3, 1, ',');
  return text;
}

}  // namespace

void FailureTally::Add(std::string_view code, int64_t line, std::string_view message) {
  Add(code, Failure{1, line, Cut(message)});
}

void FailureTally::Add(const FailureTally& other) {
  for (const auto& [code, failure] : other.by_code_) Add(code, failure);
}

void FailureTally::Add(std::string_view code, const Failure& added) {
  auto found = by_code_.find(code);
  if (found == by_code_.end()) {
    const std::string_view name = by_code_.size() < kMostCodes ? code : kOtherCodes;
    found = by_code_.try_emplace(std::string(name)).first;
  }
  Failure& failure = found->second;
  const bool is_first = failure.count == 0 || added.first_line <= failure.first_line;
  failure.count += added.count;
  if (!is_first) return;
  failure.first_line = added.first_line;
  failure.message = added.message;
}

std::vector<FailureTally::CodeFailure> FailureTally::ByCount() const {
  std::vector<CodeFailure> failures(by_code_.begin(), by_code_.end());
  std::ranges::stable_sort(
      failures, [](const auto& a, const auto& b) { return a.second.count > b.second.count; });
  return failures;
}

std::string FailureText(const FailureTally::CodeFailure& failure) {
  const auto& [code, what] = failure;
  return fmt::format("{} x {}, first at line {}: {}", Thousands(what.count),
                     code.empty() ? "no code" : code, what.first_line, what.message);
}

base::Status CheckSomeSucceeded(int64_t lines, int64_t failed,
                                std::span<const FailureTally::CodeFailure> failures,
                                std::string_view advice) {
  constexpr size_t kMostShown = 3;
  if (lines == 0 || failed < lines) return {};
  std::string text = fmt::format("all {} lines failed", lines);
  for (size_t i = 0; i < std::min(failures.size(), kMostShown); ++i)
    text += (i == 0 ? ": " : "; ") + FailureText(failures[i]);
  if (failures.size() > kMostShown)
    text += fmt::format("; and {} more codes", failures.size() - kMostShown);
  return base::Status(kAllLinesFailed, fmt::format("{}; {}", text, advice));
}

}  // namespace forebay::job
