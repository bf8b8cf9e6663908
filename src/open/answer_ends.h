// Which tokens end an answer: what the configuration says, and what the tokenizer's files say.
#pragma once

#include "engine/open_model.h"
#include "job/model_text.h"

namespace forebay::open {

// Adds to the configuration's ends what the tokenizer names beside them. One that a folder's
// configuration does not name costs a warning; the log gets all ends, and the chat templates in
// use.
void AddTokenizerEnds(const job::ModelText& text, engine::ModelFiles* files);

}  // namespace forebay::open
