// Added tokens, gathered from several files as Hugging Face's tokenizers gathers them.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/status.h"
#include "text/tokenizer_fields.h"
#include "text/tokenizer_spec.h"
#include "text/vocabulary.h"

namespace forebay::text {

// A token's members but its id: "content" and flags. `normalized` is true by default where
// "special" is not.
base::Result<AddedToken> ReadAddedToken(fields::object json, std::string_view where);

// Fills TokenizerSpec::added; borrows the spec, whose vocabulary is whole. One content has one id:
// the vocabulary's, or else the first that a token gave it. Its flags are the last ones.
class AddedTokenList {
 public:
  static constexpr int32_t kNextId = -1;  // as a token's id: one more than the greatest

  explicit AddedTokenList(TokenizerSpec* spec);

  // kTokenizerInvalid: the id is another content's; nothing is added. An empty content is skipped.
  base::Status Add(AddedToken token);
  AddedToken* Find(std::string_view content);
  // The id of an added token or of a word of the vocabulary.
  std::optional<int32_t> IdOf(std::string_view content) const;

 private:
  TokenizerSpec* spec_;
  Vocabulary vocabulary_;
  std::unordered_map<std::string, size_t> index_;  // into `added`, by content
  std::unordered_set<int32_t> ids_;                // of `added`
  int64_t next_id_;
};

}  // namespace forebay::text
