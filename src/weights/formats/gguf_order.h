// What GGUF files hold otherwise than Hugging Face's beside the names of tensors: the order of
// rows, vectors' shapes, and values that the converter works out beforehand.
#pragma once

#include "weights/formats/gguf.h"
#include "weights/formats/tensor_info.h"

namespace forebay::weights {

// Says of a tensor, which has Hugging Face's name already, how it lies in the file.
//   llama, granite, granitehybrid, nemotron_h (nemotron_h_moe, too), smollm3, mistral3:
//                                        rows of Q and K that rope turns together stand side by
//                                        side, where HF has them in halves of a head
//   qwen35, qwen35moe:                   value heads of delta-net layers lie by their number within
//                                        a key head, where HF has those of a key head together
//   qwen35, qwen35moe, qwen3next, granitehybrid, nemotron_h:
//                                        A_log is -e^A_log
//   these and lfm2:                      the convolution is [channels, taps]
//   granitehybrid, nemotron_h:           A_log and D are [heads, 1], the norm is [groups, channels
//                                        of a group]
// Errors are those of metadata that do not fit the tensor, and do not name the file.
base::Status SetGgufOrder(const GgufFile& gguf, std::string_view architecture, TensorInfo* tensor);

}  // namespace forebay::weights
