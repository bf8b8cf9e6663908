// GGUF metadata as the config.json of the folder that the file was made of: a family whose folder
// is read needs no second reader for its GGUF files, but for what these leave unsaid
// (ConfigRules::gguf_implies).
#pragma once

#include <string>

#include "model/family.h"
#include "model/files/gguf_fields.h"

namespace forebay::model {

// REQUIRES: the family says what its files imply. Errors name the key.
base::Result<std::string> GgufAsConfigJson(const weights::GgufFile& gguf, const Family& family,
                                           GgufFields* in);

}  // namespace forebay::model
