#include "text/added_token_list.h"

#include <algorithm>

namespace forebay::text {

using base::Result;
using base::Status;

Result<AddedToken> ReadAddedToken(fields::object json, std::string_view where) {
  using fields::GetOr;
  AddedToken token;
  FB_ASSIGN_OR_RETURN(token.content, fields::Get<std::string_view>(json, "content", where));
  FB_ASSIGN_OR_RETURN(token.special, GetOr<bool>(json, "special", false, where));
  FB_ASSIGN_OR_RETURN(token.single_word, GetOr<bool>(json, "single_word", false, where));
  FB_ASSIGN_OR_RETURN(token.lstrip, GetOr<bool>(json, "lstrip", false, where));
  FB_ASSIGN_OR_RETURN(token.rstrip, GetOr<bool>(json, "rstrip", false, where));
  FB_ASSIGN_OR_RETURN(token.normalized, GetOr<bool>(json, "normalized", !token.special, where));
  return token;
}

AddedTokenList::AddedTokenList(TokenizerSpec* spec)
    : spec_(spec), vocabulary_(spec->tokens), next_id_(static_cast<int64_t>(spec->tokens.size())) {
  for (size_t i = 0; i < spec->added.size(); ++i) {
    const AddedToken& token = spec->added[i];
    index_.emplace(token.content, i);
    ids_.insert(token.id);
    next_id_ = std::max<int64_t>(next_id_, int64_t{token.id} + 1);
  }
}

Status AddedTokenList::Add(AddedToken token) {
  if (token.content.empty()) return Status::Ok();
  if (AddedToken* known = Find(token.content)) {
    token.id = known->id;
    *known = std::move(token);
    return Status::Ok();
  }
  if (const int32_t id = vocabulary_.Find(token.content); id >= 0) {
    token.id = id;
  } else if (token.id == kNextId) {
    if (next_id_ > INT32_MAX) return InvalidTokenizer("no id is left for another token");
    token.id = static_cast<int32_t>(next_id_);
  }
  const std::string* word = static_cast<size_t>(token.id) < spec_->tokens.size()
                                ? &spec_->tokens[static_cast<size_t>(token.id)]
                                : nullptr;
  const bool taken = word != nullptr && !word->empty() && *word != token.content;
  if (taken || !ids_.insert(token.id).second) {
    const auto other = std::ranges::find(spec_->added, token.id, &AddedToken::id);
    return InvalidTokenizer(
        fmt::format("the id {} stands for two tokens, \"{:.100}\" and \"{:.100}\"", token.id,
                    taken ? *word : other->content, token.content));
  }
  next_id_ = std::max<int64_t>(next_id_, int64_t{token.id} + 1);
  index_.emplace(token.content, spec_->added.size());
  spec_->added.push_back(std::move(token));
  return Status::Ok();
}

AddedToken* AddedTokenList::Find(std::string_view content) {
  const auto it = index_.find(std::string(content));
  return it == index_.end() ? nullptr : &spec_->added[it->second];
}

std::optional<int32_t> AddedTokenList::IdOf(std::string_view content) const {
  if (const auto it = index_.find(std::string(content)); it != index_.end())
    return spec_->added[it->second].id;
  const int32_t id = vocabulary_.Find(content);
  return id < 0 ? std::nullopt : std::optional(id);
}

}  // namespace forebay::text
