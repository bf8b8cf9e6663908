#include "device/hazard_checker.h"

#include <algorithm>
#include <span>
#include <utility>

namespace forebay::device {
namespace {

uint64_t SharedBytes(const Access& a, const Access& b) {
  const auto a_begin = reinterpret_cast<uintptr_t>(a.data),
             b_begin = reinterpret_cast<uintptr_t>(b.data);
  const uintptr_t begin = std::max(a_begin, b_begin),
                  end = std::min(a_begin + a.bytes, b_begin + b.bytes);
  return begin < end ? end - begin : 0;
}

const char* Verb(const Access& access) { return access.write ? "writes" : "reads"; }

}  // namespace

int64_t HazardChecker::Begin(std::string_view stream, const Operation& operation) {
  Active started{0,
                 fmt::format("'{}' on {}", operation.desc.label, stream),
                 {operation.accesses.begin(), operation.accesses.begin() + operation.num_accesses}};
  if (operation.further_accesses != nullptr)
    operation.further_accesses(operation.args.data(), &started.accesses);
  std::vector<Access>& accesses = started.accesses;
  const auto reads = std::stable_partition(accesses.begin(), accesses.end(),
                                           [](const Access& access) { return access.write; });
  started.num_writes = static_cast<size_t>(reads - accesses.begin());
  const std::lock_guard lock(mutex_);
  started.token = next_token_++;
  for (const Active& other : active_) Compare(other, started);
  return active_.emplace_back(std::move(started)).token;
}

void HazardChecker::End(int64_t token) {
  const std::lock_guard lock(mutex_);
  const size_t ended =
      std::erase_if(active_, [token](const Active& active) { return active.token == token; });
  FB_CHECK(ended == 1, "operation {} ends but is not active", token);
}

// All against the writes: an attention reads so many blocks that two of them are not compared.
void HazardChecker::Compare(const Active& a, const Active& b) {
  for (size_t i = 0; i < a.accesses.size(); ++i) {
    const Access& first = a.accesses[i];
    const size_t count = i < a.num_writes ? b.accesses.size() : b.num_writes;
    for (const Access& second : std::span(b.accesses).first(count)) {
      const uint64_t shared = SharedBytes(first, second);
      if (shared == 0 || num_conflicts_++ > 0) continue;
      first_conflict_ =
          base::Status(kHazard, fmt::format("{} {} {} bytes that {} {} at the same time", a.name,
                                            Verb(first), shared, b.name, Verb(second)));
    }
  }
}

base::Status HazardChecker::status() const {
  const std::lock_guard lock(mutex_);
  return first_conflict_;
}

int64_t HazardChecker::num_operations() const {
  const std::lock_guard lock(mutex_);
  return next_token_;
}

int64_t HazardChecker::num_conflicts() const {
  const std::lock_guard lock(mutex_);
  return num_conflicts_;
}

}  // namespace forebay::device
