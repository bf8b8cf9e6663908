// The tokenizer of a model: tokenizer.json of a folder, or a GGUF file's metadata.
#pragma once

#include <memory>
#include <string>

#include "text/tokenizer.h"
#include "weights/formats/gguf.h"

namespace forebay::engine {

// `gguf` null: `path` is a folder. Errors name the file.
base::Result<std::unique_ptr<text::Tokenizer>> LoadTokenizer(const std::string& path,
                                                             const weights::GgufFile* gguf);

}  // namespace forebay::engine
