// The pipeline around the model of a tokenizer.json: normalizer, pre_tokenizer, post_processor,
// decoder.
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "text/tokenizer_spec.h"

namespace forebay::text {

// Reads the four members of `root` into *spec; tokenizer_json.h says which components there are.
base::Status ReadPipeline(simdjson::dom::object root, TokenizerSpec* spec);

}  // namespace forebay::text
