// Do the rows of a table have ids of their own? By 8 bytes a row, however long the ids are.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "base/hash.h"
#include "model.h"

namespace forebay::python {
namespace {

int64_t HashOf(const std::string& id) { return static_cast<int64_t>(base::HashBytes(id) >> 1); }

class RowIds {
 public:
  void Add(const std::vector<std::string>& ids) {
    for (const std::string& id : ids) hashes_.push_back(HashOf(id));
  }

  // Hashes that more than one row has, kMost of them at most: two rows of one hash need not have
  // one id, so that whoever asks looks at these rows' ids again.
  std::vector<int64_t> Repeated() {
    const GilRelease release;
    std::ranges::sort(hashes_);
    std::vector<int64_t> repeated;
    for (size_t i = 1; i < hashes_.size() && repeated.size() < kMost; ++i) {
      if (hashes_[i] == hashes_[i - 1] && (repeated.empty() || repeated.back() != hashes_[i]))
        repeated.push_back(hashes_[i]);
    }
    return repeated;
  }

 private:
  static constexpr size_t kMost = 1000;
  std::deque<int64_t> hashes_;  // grows without being copied
};

}  // namespace

void AddRowIds(nb::module_& module) {
  module.def("hash_key", &HashOf);
  nb::class_<RowIds>(module, "RowIds")
      .def(nb::init<>())
      .def("add", &RowIds::Add)
      .def("repeated", &RowIds::Repeated);
}

}  // namespace forebay::python
