// llama.cpp's names of tensors, and Hugging Face's.
#pragma once

#include <string>
#include <string_view>

namespace forebay::weights {

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight"; a name without a counterpart
// ("rope_freqs.weight") stays as it is. `architecture`: general.architecture.
std::string HfTensorName(std::string_view architecture, std::string_view gguf_name);

}  // namespace forebay::weights
