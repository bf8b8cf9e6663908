// The registry's entries: one a file in this folder.
#pragma once

#include "model/family.h"

namespace forebay::model {

extern const Family kLlama;
extern const Family kMistral;
extern const Family kQwen2;
extern const Family kQwen3;
extern const Family kQwen3Moe;
extern const Family kMixtral;
extern const Family kDeepseekV3;
extern const Family kLlama4;

}  // namespace forebay::model
