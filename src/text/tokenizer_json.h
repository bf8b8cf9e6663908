// Hugging Face's tokenizer.json.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/tokenizer_spec.h"

namespace forebay::text {

// Reads tokenizers made of
//   model           BPE, WordPiece, Unigram
//   normalizers     NFC, NFD, NFKC, NFKD, Prepend, Replace, Lowercase, StripAccents, Strip,
//                   BertNormalizer, Precompiled, Sequence
//   pre_tokenizers  Split, Digits, ByteLevel, Metaspace, BertPreTokenizer, WhitespaceSplit,
//                   Punctuation, Sequence
//   post_processor  TemplateProcessing, ByteLevel, BertProcessing, RobertaProcessing, Sequence
//   decoder         ByteLevel, Metaspace, WordPiece, Replace, ByteFallback, Fuse, Strip (of spaces
//                   at the start), Sequence
// Another component is kTokenizerUnsupported and named; what is missing or ill-typed is
// kTokenizerInvalid.
base::Result<TokenizerSpec> ParseTokenizerJson(std::string_view json);

}  // namespace forebay::text
