#include "text/merge_reader.h"

#include <fmt/core.h>

#include <string>

namespace forebay::text {

base::Result<std::pair<std::string_view, std::string_view>> SplitMerge(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
    return InvalidTokenizer(
        fmt::format("the merge \"{:.100}\" is not two tokens with one space between them", line));
  }
  return std::pair(line.substr(0, space), line.substr(space + 1));
}

base::Result<Merge> MakeMerge(const Vocabulary& vocabulary, std::string_view left,
                              std::string_view right, uint32_t rank) {
  const std::string joined = std::string(left).append(right);
  const Merge merge{vocabulary.Find(left), vocabulary.Find(right), vocabulary.Find(joined), rank};
  if (merge.left >= 0 && merge.right >= 0 && merge.result >= 0) return merge;
  const std::string_view missing = merge.left < 0 ? left : merge.right < 0 ? right : joined;
  return InvalidTokenizer(fmt::format(
      "the merge of \"{:.100}\" and \"{:.100}\" needs the token \"{:.100}\", which is not in "
      "the vocabulary",
      left, right, missing));
}

}  // namespace forebay::text
