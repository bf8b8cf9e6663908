// The registry's entries: one a file in this folder.
#pragma once

#include "model/family.h"

namespace forebay::model {

extern const Family kLlama;
extern const Family kMistral;
extern const Family kQwen2;
extern const Family kQwen3;

}  // namespace forebay::model
