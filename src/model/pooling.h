// How a model makes one vector of a prompt: what sentence-transformers writes beside a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace forebay::model {

inline constexpr base::ErrorCode kPoolingInvalid{"pooling_invalid"};
inline constexpr base::ErrorCode kPoolingUnsupported{"pooling_unsupported"};

struct Pooling {
  // Of the rows after the final norm: the last token's, the first one's, or the mean of all.
  enum class Rows : uint8_t { kLast, kFirst, kMean };
  Rows rows = Rows::kLast;
  bool normalize = true;  // the vector has length 1
  friend bool operator==(const Pooling&, const Pooling&) = default;
};

// "last", "first" or "mean" (--pooling); nothing for another text. What is named so is normalised.
std::optional<Pooling> PoolingNamed(std::string_view name);

// `modules` is the text of modules.json, `pooling` that of the pooling module's config.json.
// kPoolingInvalid: a text is torn, or lacks a key; kPoolingUnsupported: a module or a kind of
// pooling that is none of the above.
base::Result<Pooling> ParsePooling(std::string_view modules, std::string_view pooling,
                                   const std::string& folder);
// The folder's; nothing where it has no modules.json.
base::Result<std::optional<Pooling>> ReadPooling(const std::string& folder);

}  // namespace forebay::model
