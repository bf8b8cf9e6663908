// How `forebay plan` shows in which layouts a job is done soonest.
#pragma once

#include <string>
#include <vector>

#include "choose/layout_search.h"

namespace forebay::cli {

// What the layouts are compared for.
struct ComparedJob {
  std::string model, devices;
  std::string tp_wire;        // the form of partial sums between ranks: "fp32", "bf16"
  double price_per_hour = 0;  // of all devices; 0: not given
};

// REQUIRES: the trials that run come first, the soonest done before the others. Of those the table
// shows ten, and JSON all.
void PrintLayoutTable(const ComparedJob& job, const std::vector<choose::LayoutTrial>& trials);
void PrintLayoutJson(const ComparedJob& job, const std::vector<choose::LayoutTrial>& trials);

}  // namespace forebay::cli
