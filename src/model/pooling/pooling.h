// How a model makes one vector of a prompt: what sentence-transformers writes beside a model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/pooling/dense_head.h"

namespace forebay::model {

inline constexpr base::ErrorCode kPoolingInvalid{"pooling_invalid"};
inline constexpr base::ErrorCode kPoolingUnsupported{"pooling_unsupported"};

struct Pooling {
  // Of the rows after the final norm: the last token's, the first one's, or the mean of all.
  enum class Rows : uint8_t { kLast, kFirst, kMean };
  Rows rows = Rows::kLast;
  std::vector<DenseLayer> dense;          // what these go through
  bool normalize = true;                  // the vector has length 1, in the end
  std::shared_ptr<const DenseHead> head;  // `dense`, once it is loaded

  // Of a vector of rows of so many numbers.
  int64_t WidthOf(int64_t hidden_size) const {
    return dense.empty() ? hidden_size : dense.back().out;
  }
  friend bool operator==(const Pooling&, const Pooling&) = default;
};

// "last", "first" or "mean" (--pooling); nothing for another text. What is named so is normalised.
std::optional<Pooling> PoolingNamed(std::string_view name);

// `modules` is the text of modules.json; `config_of` gives that of the config.json in a module's
// folder. kPoolingInvalid: a text is torn, or lacks a key; kPoolingUnsupported: a module, a kind of
// pooling or an activation that is none of the above. Also the errors of `config_of`.
using ConfigOf = std::function<base::Result<std::string>(const std::string& module)>;
base::Result<Pooling> ParsePooling(std::string_view modules, const ConfigOf& config_of,
                                   const std::string& folder);
// The folder's; nothing where it has no modules.json.
base::Result<std::optional<Pooling>> ReadPooling(const std::string& folder);

}  // namespace forebay::model
