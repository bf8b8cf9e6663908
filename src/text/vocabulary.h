// Token texts by id, and ids by text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace forebay::text {

// Immutable, compact: one arena for the texts, open addressing for the index.
class Vocabulary {
 public:
  Vocabulary() = default;
  // texts[id]; an empty text is no token. Of equal texts the last one is found.
  explicit Vocabulary(const std::vector<std::string>& texts) : Vocabulary(texts, {}) {}
  // As above, but Find knows only the ids with findable[id]. REQUIRES: findable is empty or as long
  // as texts.
  Vocabulary(const std::vector<std::string>& texts, const std::vector<bool>& findable);

  // The id of `text`, or -1.
  int32_t Find(std::string_view text) const;
  // REQUIRES: 0 <= id < size().
  std::string_view operator[](int32_t id) const {
    return std::string_view(arena_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
  }
  int32_t size() const { return static_cast<int32_t>(offsets_.size()) - 1; }
  // Length of the longest text that Find knows.
  size_t longest() const { return longest_; }

 private:
  std::string arena_;
  std::vector<uint64_t> offsets_ = {0};
  std::vector<int32_t> slots_;  // a power of two of them; -1 is free
  size_t longest_ = 0;
};

}  // namespace forebay::text
