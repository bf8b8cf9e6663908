// A table of measured kernels on a grid, with points beside the grid to tell how well it
// interpolates.
#pragma once

#include <functional>
#include <string>

#include "cost/profile.h"

namespace forebay::profile {

struct TableSpec {
  cost::TableOp op = cost::TableOp::kLinear;
  cost::NumberFormat format = cost::NumberFormat::kBF16;
  double head_dim = cost::kUsualHeadDim;
  std::array<std::vector<double>, 3> axes;
  // What a coordinate of a point beside the grid is a multiple of; 0: such points lie on this axis'
  // grid.
  std::array<double, 3> grain = {};
  std::function<double(const cost::Point&)> seconds;  // measures
};

// Measures every point and `held_out` others, which no number of the table comes from: their errors
// are its residual. Times that fall where they cannot (along axis 0, of attention along axis 1 too)
// are taken half-way between the least change up and the least change down.
cost::UtilisationTable MeasureTable(const TableSpec& spec, int held_out);

}  // namespace forebay::profile
