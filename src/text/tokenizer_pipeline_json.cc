#include "text/tokenizer_pipeline_json.h"

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "text/precompiled.h"
#include "text/tokenizer_fields.h"

namespace forebay::text {
namespace {

using fields::array;
using fields::As;
using fields::element;
using fields::Get;
using fields::GetOr;
using fields::object;
using fields::Result;
using fields::Status;
using fields::Unsupported;

// A component of the pipeline: nothing, or an object with a type.
struct Component {
  bool present = false;
  object json;
  std::string_view type;
};

Result<Component> AsComponent(element value, std::string_view where) {
  FB_ASSIGN_OR_RETURN(object json, As<object>(value, where));
  FB_ASSIGN_OR_RETURN(std::string_view type, Get<std::string_view>(json, "type", where));
  return Component{true, json, type};
}

Result<Component> GetComponent(object root, std::string_view key) {
  element value;
  if (root[key].get(value) || value.is_null()) return Component{};
  return AsComponent(value, key);
}

// Calls `visit` for the component, or for the members of a Sequence under `key`, however deep
// (simdjson bounds it).
template <typename Visit>
Status ForEachComponent(const Component& component, std::string_view key, std::string_view where,
                        const Visit& visit) {
  if (component.type != "Sequence") return visit(component);
  FB_ASSIGN_OR_RETURN(array members, Get<array>(component.json, key, where));
  for (const element value : members) {
    FB_ASSIGN_OR_RETURN(const Component member, AsComponent(value, where));
    FB_RETURN_IF_ERROR(ForEachComponent(member, key, where, visit));
  }
  return Status::Ok();
}

// {"String": s} or {"Regex": r}; r only if `is_regex` is given.
Result<std::string> GetPattern(object from, std::string_view where, bool* is_regex) {
  FB_ASSIGN_OR_RETURN(object pattern, Get<object>(from, "pattern", where));
  std::string_view text;
  if (!pattern["String"].get(text)) return std::string(text);
  if (is_regex == nullptr || pattern["Regex"].get(text)) {
    return Unsupported(where, is_regex == nullptr
                                  ? "a pattern that is not a String"
                                  : "a pattern that is neither a String nor a Regex");
  }
  *is_regex = true;
  return std::string(text);
}

// Normalizers without members.
std::optional<NormalizerStep::Kind> PlainKind(std::string_view type) {
  using Kind = NormalizerStep::Kind;
  static constexpr std::pair<std::string_view, Kind> kKinds[] = {
      {"NFD", Kind::kNfd},
      {"NFKC", Kind::kNfkc},
      {"NFKD", Kind::kNfkd},
      {"Lowercase", Kind::kLowercase},
      {"StripAccents", Kind::kDropMarks}};
  for (const auto& [name, kind] : kKinds) {
    if (type == name) return kind;
  }
  return std::nullopt;
}

// What it does is steps of their own. Accents go where that is not said and letters become small.
Status ReadBertNormalizer(object json, TokenizerSpec* spec) {
  constexpr char kWhere[] = "normalizer BertNormalizer";
  using Kind = NormalizerStep::Kind;
  FB_ASSIGN_OR_RETURN(const bool clean, GetOr<bool>(json, "clean_text", true, kWhere));
  FB_ASSIGN_OR_RETURN(const bool pad, GetOr<bool>(json, "handle_chinese_chars", true, kWhere));
  FB_ASSIGN_OR_RETURN(const bool lowercase, GetOr<bool>(json, "lowercase", true, kWhere));
  FB_ASSIGN_OR_RETURN(const bool strip, GetOr<bool>(json, "strip_accents", lowercase, kWhere));
  for (const auto& [on, kind] : {std::pair{clean, Kind::kCleanText},
                                 {pad, Kind::kPadIdeographs},
                                 {strip, Kind::kNfd},
                                 {strip, Kind::kDropNonspacing},
                                 {lowercase, Kind::kLowercase}}) {
    if (on) spec->normalizers.push_back({.kind = kind});
  }
  return Status::Ok();
}

Status ReadNormalizer(const Component& component, TokenizerSpec* spec) {
  constexpr char kWhere[] = "normalizer";
  NormalizerStep step;
  if (component.type == "NFC") {
    step.kind = NormalizerStep::Kind::kNfc;
  } else if (component.type == "Prepend") {
    step.kind = NormalizerStep::Kind::kPrepend;
    FB_ASSIGN_OR_RETURN(step.content, Get<std::string_view>(component.json, "prepend", kWhere));
  } else if (component.type == "BertNormalizer") {
    return ReadBertNormalizer(component.json, spec);
  } else if (const auto plain = PlainKind(component.type)) {
    step.kind = *plain;
  } else if (component.type == "Strip") {
    step.kind = NormalizerStep::Kind::kStrip;
    FB_ASSIGN_OR_RETURN(step.left, GetOr<bool>(component.json, "strip_left", true, kWhere));
    FB_ASSIGN_OR_RETURN(step.right, GetOr<bool>(component.json, "strip_right", true, kWhere));
  } else if (component.type == "Precompiled") {
    step.kind = NormalizerStep::Kind::kPrecompiled;
    FB_ASSIGN_OR_RETURN(
        const std::string_view map,
        GetOr<std::string_view>(component.json, "precompiled_charsmap", "", kWhere));
    if (map.empty()) return Status::Ok();  // it changes nothing
    std::optional<std::string> bytes = DecodeBase64(map);
    if (!bytes) return InvalidTokenizer("normalizer: precompiled_charsmap is no base64");
    step.content = std::move(*bytes);
  } else if (component.type == "Replace") {
    step.kind = NormalizerStep::Kind::kReplace;
    FB_ASSIGN_OR_RETURN(step.pattern, GetPattern(component.json, kWhere, &step.regex));
    FB_ASSIGN_OR_RETURN(step.content, Get<std::string_view>(component.json, "content", kWhere));
    if (step.pattern.empty()) return InvalidTokenizer("normalizer: Replace has an empty pattern");
  } else {
    return Unsupported(kWhere, component.type);
  }
  spec->normalizers.push_back(std::move(step));
  return Status::Ok();
}

Status ReadBehavior(object json, std::string_view where, PreTokenizerStep* step) {
  static constexpr std::pair<std::string_view, PreTokenizerStep::Behavior> kBehaviors[] = {
      {"Isolated", PreTokenizerStep::Behavior::kIsolated},
      {"Removed", PreTokenizerStep::Behavior::kRemoved},
      {"MergedWithPrevious", PreTokenizerStep::Behavior::kMergedWithPrevious},
      {"MergedWithNext", PreTokenizerStep::Behavior::kMergedWithNext},
      {"Contiguous", PreTokenizerStep::Behavior::kContiguous}};
  FB_ASSIGN_OR_RETURN(const std::string_view behavior,
                      Get<std::string_view>(json, "behavior", where));
  for (const auto& [name, value] : kBehaviors) {
    if (behavior != name) continue;
    step->behavior = value;
    return Status::Ok();
  }
  return Unsupported(where, fmt::format("the behavior \"{}\"", behavior));
}

Status ReadSplit(object json, PreTokenizerStep* step) {
  constexpr char kWhere[] = "pre_tokenizer Split";
  bool is_regex = false;
  FB_ASSIGN_OR_RETURN(step->pattern, GetPattern(json, kWhere, &is_regex));
  step->literal = !is_regex;
  FB_ASSIGN_OR_RETURN(step->invert, GetOr<bool>(json, "invert", false, kWhere));
  return ReadBehavior(json, kWhere, step);
}

Status CheckMetaspace(object json, std::string_view where) {
  FB_ASSIGN_OR_RETURN(const std::string_view replacement,
                      GetOr<std::string_view>(json, "replacement", kMetaspace, where));
  if (replacement != kMetaspace)
    return Unsupported(where, fmt::format("the replacement \"{}\"", replacement));
  return Status::Ok();
}

// Older files have add_prefix_space alone.
Result<PreTokenizerStep::Prepend> GetPrependScheme(object json, std::string_view where) {
  FB_ASSIGN_OR_RETURN(const bool add, GetOr<bool>(json, "add_prefix_space", true, where));
  FB_ASSIGN_OR_RETURN(
      const std::string_view scheme,
      GetOr<std::string_view>(json, "prepend_scheme", add ? "always" : "never", where));
  if (scheme == "always") return PreTokenizerStep::Prepend::kAlways;
  if (scheme == "first") return PreTokenizerStep::Prepend::kFirst;
  if (scheme == "never") return PreTokenizerStep::Prepend::kNever;
  return Unsupported(where, fmt::format("the prepend_scheme \"{}\"", scheme));
}

Status ReadPreTokenizer(const Component& component, TokenizerSpec* spec) {
  constexpr char kWhere[] = "pre_tokenizer";
  if (!spec->pre_tokenizers.empty() &&
      spec->pre_tokenizers.back().kind == PreTokenizerStep::Kind::kByteLevel) {
    return Unsupported(kWhere, fmt::format("{} after ByteLevel", component.type));
  }
  PreTokenizerStep step;
  const object json = component.json;
  if (component.type == "Split") {
    step.kind = PreTokenizerStep::Kind::kSplit;
    FB_RETURN_IF_ERROR(ReadSplit(json, &step));
  } else if (component.type == "BertPreTokenizer") {
    step.kind = PreTokenizerStep::Kind::kWhitespace;
    spec->pre_tokenizers.push_back(step);
    step.kind = PreTokenizerStep::Kind::kPunctuation;
  } else if (component.type == "WhitespaceSplit") {
    step.kind = PreTokenizerStep::Kind::kWhitespace;
  } else if (component.type == "Punctuation") {
    step.kind = PreTokenizerStep::Kind::kPunctuation;
    if (element behavior; !json["behavior"].get(behavior))
      FB_RETURN_IF_ERROR(ReadBehavior(json, "pre_tokenizer Punctuation", &step));
  } else if (component.type == "Digits") {
    step.kind = PreTokenizerStep::Kind::kDigits;
    FB_ASSIGN_OR_RETURN(step.individual, GetOr<bool>(json, "individual_digits", false, kWhere));
  } else if (component.type == "ByteLevel") {
    step.kind = PreTokenizerStep::Kind::kByteLevel;
    FB_ASSIGN_OR_RETURN(step.prefix_space, GetOr<bool>(json, "add_prefix_space", true, kWhere));
    FB_ASSIGN_OR_RETURN(step.gpt2_split, GetOr<bool>(json, "use_regex", true, kWhere));
  } else if (component.type == "Metaspace") {
    step.kind = PreTokenizerStep::Kind::kMetaspace;
    FB_RETURN_IF_ERROR(CheckMetaspace(json, "pre_tokenizer Metaspace"));
    FB_ASSIGN_OR_RETURN(step.prepend, GetPrependScheme(json, kWhere));
    FB_ASSIGN_OR_RETURN(step.split, GetOr<bool>(json, "split", true, kWhere));
  } else {
    return Unsupported(kWhere, component.type);
  }
  spec->pre_tokenizers.push_back(std::move(step));
  return Status::Ok();
}

// Strip counts only spaces and only at the start, after everything else.
Status ReadStrip(object json, DecoderSpec* decoder) {
  constexpr char kWhere[] = "decoder Strip";
  FB_ASSIGN_OR_RETURN(const std::string_view content,
                      Get<std::string_view>(json, "content", kWhere));
  FB_ASSIGN_OR_RETURN(const int64_t start, Get<int64_t>(json, "start", kWhere));
  FB_ASSIGN_OR_RETURN(const int64_t stop, Get<int64_t>(json, "stop", kWhere));
  if (content != " " || stop != 0) return Unsupported(kWhere, "anything but spaces at the start");
  if (start < 0 || start > 1 << 30)
    return InvalidTokenizer(fmt::format("{}: \"start\" is {}", kWhere, start));
  decoder->strip_spaces = static_cast<uint32_t>(start);
  return Status::Ok();
}

// The pieces of a Sequence come in this order; a later one ends what the earlier ones may still do.
enum class DecoderStage { kReplace, kByteFallback, kFuse, kStrip, kEnd };

Status ReadDecoder(const Component& component, DecoderStage* stage, DecoderSpec* decoder) {
  constexpr char kWhere[] = "decoder";
  const bool first = *stage == DecoderStage::kReplace && decoder->replacements.empty();
  const auto advance = [&](DecoderStage from, DecoderStage to) {
    if (*stage > from) return Unsupported(kWhere, fmt::format("{} at this place", component.type));
    *stage = to;
    decoder->kind = DecoderSpec::Kind::kPieces;
    return Status::Ok();
  };
  if (component.type == "ByteLevel" || component.type == "Metaspace" ||
      component.type == "WordPiece") {
    if (!first) return Unsupported(kWhere, fmt::format("{} at this place", component.type));
    *stage = DecoderStage::kEnd;
    if (component.type == "WordPiece") {
      decoder->kind = DecoderSpec::Kind::kWordPiece;
      FB_ASSIGN_OR_RETURN(decoder->prefix,
                          GetOr<std::string_view>(component.json, "prefix", "##", kWhere));
      FB_ASSIGN_OR_RETURN(decoder->cleanup, GetOr<bool>(component.json, "cleanup", true, kWhere));
      return Status::Ok();
    }
    if (component.type == "ByteLevel") {
      decoder->kind = DecoderSpec::Kind::kByteLevel;
      return Status::Ok();
    }
    decoder->kind = DecoderSpec::Kind::kMetaspace;
    FB_RETURN_IF_ERROR(CheckMetaspace(component.json, "decoder Metaspace"));
    FB_ASSIGN_OR_RETURN(const PreTokenizerStep::Prepend prepend,
                        GetPrependScheme(component.json, kWhere));
    decoder->drop_first = prepend != PreTokenizerStep::Prepend::kNever;
    return Status::Ok();
  }
  if (component.type == "Replace") {
    FB_RETURN_IF_ERROR(advance(DecoderStage::kReplace, DecoderStage::kReplace));
    DecoderSpec::Replacement replacement;
    FB_ASSIGN_OR_RETURN(replacement.pattern,
                        GetPattern(component.json, "decoder Replace", nullptr));
    FB_ASSIGN_OR_RETURN(replacement.content,
                        Get<std::string_view>(component.json, "content", "decoder Replace"));
    if (replacement.pattern.empty())
      return InvalidTokenizer("decoder: Replace has an empty pattern");
    decoder->replacements.push_back(std::move(replacement));
    return Status::Ok();
  }
  if (component.type == "ByteFallback") {
    decoder->byte_fallback = true;
    return advance(DecoderStage::kReplace, DecoderStage::kByteFallback);
  }
  if (component.type == "Fuse") return advance(DecoderStage::kByteFallback, DecoderStage::kFuse);
  if (component.type == "Strip") {
    if (*stage != DecoderStage::kFuse) return Unsupported(kWhere, "Strip without Fuse before it");
    FB_RETURN_IF_ERROR(ReadStrip(component.json, decoder));
    return advance(DecoderStage::kFuse, DecoderStage::kStrip);
  }
  return Unsupported(kWhere, component.type);
}

Status CheckDecoderEnd(const Component& decoder, DecoderStage stage) {
  const bool joined =
      stage == DecoderStage::kFuse || stage == DecoderStage::kStrip || stage == DecoderStage::kEnd;
  if (decoder.present && decoder.type == "Sequence" && !joined) {
    return Unsupported("decoder",
                       "a Sequence that does not end in Fuse, Strip, ByteLevel or Metaspace");
  }
  return Status::Ok();
}

// Bounds what a file that names long lists often can make us allocate.
constexpr size_t kMaxSpecialTokens = 1024;

Result<int32_t> AsTokenId(element value, std::string_view where) {
  FB_ASSIGN_OR_RETURN(const int64_t id, As<int64_t>(value, where));
  if (id < 0 || id > INT32_MAX) return InvalidTokenizer(fmt::format("{}: the id {}", where, id));
  return static_cast<int32_t>(id);
}

// Special tokens before, between and behind the texts of a template, as `wanted` names these.
Result<std::optional<PairTemplate>> ReadTemplateItems(object json, std::string_view key,
                                                      std::span<const std::string_view> wanted) {
  constexpr char kWhere[] = "post_processor TemplateProcessing";
  FB_ASSIGN_OR_RETURN(array items, Get<array>(json, key, kWhere));
  FB_ASSIGN_OR_RETURN(object specials, Get<object>(json, "special_tokens", kWhere));
  PairTemplate ids;
  std::vector<int32_t>* const runs[] = {&ids.prefix, &ids.middle, &ids.suffix};
  size_t seen = 0, count = 0;
  for (const element item : items) {
    FB_ASSIGN_OR_RETURN(object member, As<object>(item, kWhere));
    object inner;
    if (!member["Sequence"].get(inner)) {
      FB_ASSIGN_OR_RETURN(const std::string_view name,
                          GetOr<std::string_view>(inner, "id", "A", kWhere));
      if (seen == wanted.size() || name != wanted[seen]) return std::optional<PairTemplate>();
      ++seen;
      continue;
    }
    FB_ASSIGN_OR_RETURN(inner, Get<object>(member, "SpecialToken", kWhere));
    FB_ASSIGN_OR_RETURN(const std::string_view name, Get<std::string_view>(inner, "id", kWhere));
    FB_ASSIGN_OR_RETURN(object special, Get<object>(specials, name, kWhere));
    FB_ASSIGN_OR_RETURN(array values, Get<array>(special, "ids", kWhere));
    for (const element value : values) {
      FB_ASSIGN_OR_RETURN(const int32_t id, AsTokenId(value, kWhere));
      runs[seen == wanted.size() ? 2 : seen]->push_back(id);
      if (++count > kMaxSpecialTokens) return Unsupported(kWhere, "so many special tokens");
    }
  }
  if (seen < wanted.size()) return std::optional<PairTemplate>();
  return std::optional<PairTemplate>(std::move(ids));
}

// The special tokens before and after the text go around what is there already.
Status ReadTemplate(object json, TokenizerSpec* spec) {
  constexpr char kWhere[] = "post_processor TemplateProcessing";
  constexpr std::string_view kOne[] = {"A"}, kTwo[] = {"A", "B"};
  FB_ASSIGN_OR_RETURN(const auto single, ReadTemplateItems(json, "single", kOne));
  if (!single)
    return InvalidTokenizer(fmt::format("{}: \"single\" has not one Sequence, A", kWhere));
  spec->prefix.insert(spec->prefix.begin(), single->prefix.begin(), single->prefix.end());
  spec->suffix.insert(spec->suffix.end(), single->suffix.begin(), single->suffix.end());
  if (element pair; json["pair"].get(pair) || pair.is_null()) return Status::Ok();
  FB_ASSIGN_OR_RETURN(spec->pair, ReadTemplateItems(json, "pair", kTwo));
  return Status::Ok();
}

// ["</s>", 2]
Result<int32_t> GetNamedId(object json, std::string_view key, std::string_view where) {
  FB_ASSIGN_OR_RETURN(array pair, Get<array>(json, key, where));
  if (pair.size() != 2)
    return InvalidTokenizer(fmt::format("{}, \"{}\": expected a token and its id", where, key));
  return AsTokenId(pair.at(1).value(), where);
}

// "<s> A </s>" and "<s> A </s> </s> B </s>", or BERT's with one token between.
Status ReadClsSep(const Component& component, TokenizerSpec* spec) {
  const std::string where = fmt::format("post_processor {}", component.type);
  FB_ASSIGN_OR_RETURN(const int32_t cls, GetNamedId(component.json, "cls", where));
  FB_ASSIGN_OR_RETURN(const int32_t sep, GetNamedId(component.json, "sep", where));
  spec->prefix.insert(spec->prefix.begin(), cls);
  spec->suffix.push_back(sep);
  spec->pair = PairTemplate{.prefix = {cls}, .middle = {sep}, .suffix = {sep}};
  if (component.type == "RobertaProcessing") spec->pair->middle.push_back(sep);
  return Status::Ok();
}

Status ReadPostProcessor(const Component& component, TokenizerSpec* spec) {
  // it trims offsets, which nobody asks for here
  if (component.type == "ByteLevel") return Status::Ok();
  if (component.type == "TemplateProcessing") return ReadTemplate(component.json, spec);
  if (component.type == "RobertaProcessing" || component.type == "BertProcessing")
    return ReadClsSep(component, spec);
  return Unsupported("post_processor", component.type);
}

}  // namespace

Status ReadPipeline(object root, TokenizerSpec* spec) {
  FB_ASSIGN_OR_RETURN(const Component normalizer, GetComponent(root, "normalizer"));
  FB_ASSIGN_OR_RETURN(const Component pre_tokenizer, GetComponent(root, "pre_tokenizer"));
  FB_ASSIGN_OR_RETURN(const Component post_processor, GetComponent(root, "post_processor"));
  FB_ASSIGN_OR_RETURN(const Component decoder, GetComponent(root, "decoder"));
  if (normalizer.present) {
    FB_RETURN_IF_ERROR(
        ForEachComponent(normalizer, "normalizers", "normalizer",
                         [&](const Component& c) { return ReadNormalizer(c, spec); }));
  }
  if (pre_tokenizer.present) {
    FB_RETURN_IF_ERROR(
        ForEachComponent(pre_tokenizer, "pretokenizers", "pre_tokenizer",
                         [&](const Component& c) { return ReadPreTokenizer(c, spec); }));
  }
  if (post_processor.present) {
    FB_RETURN_IF_ERROR(
        ForEachComponent(post_processor, "processors", "post_processor",
                         [&](const Component& c) { return ReadPostProcessor(c, spec); }));
  }
  if (decoder.present) {
    DecoderStage stage = DecoderStage::kReplace;
    FB_RETURN_IF_ERROR(ForEachComponent(decoder, "decoders", "decoder", [&](const Component& c) {
      return ReadDecoder(c, &stage, &spec->decoder);
    }));
    FB_RETURN_IF_ERROR(CheckDecoderEnd(decoder, stage));
  }
  return Status::Ok();
}

}  // namespace forebay::text
