#include "weights/tensor_reader.h"

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace forebay::weights {

base::Status TensorReader::ReadRows(std::string_view name, int64_t begin, int64_t end,
                                    tensor::BF16* out) const {
  FB_ASSIGN_OR_RETURN(const tensor::Shape shape, ShapeOf(name));
  const int64_t columns = shape[shape.rank() - 1];
  constexpr int64_t kRowsAtOnce = 8;
  std::vector<float> rows(static_cast<size_t>(std::min(kRowsAtOnce, end - begin) * columns));
  for (; begin < end; begin += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, end - begin);
    FB_RETURN_IF_ERROR(ReadRows(name, begin, begin + count, rows.data()));
    tensor::RoundToBF16(rows.data(), count * columns, out);
    out += count * columns;
  }
  return base::Status::Ok();
}

base::Status TensorReader::ReadStored(std::string_view name, int64_t, int64_t,
                                      StoredRowMemory*) const {
  FB_CHECK(false, "{} has no stored form", name);
}

}  // namespace forebay::weights
