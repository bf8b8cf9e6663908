// How `forebay plan --memory` shows what layouts take, side by side or as JSON.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "choose/decide_job.h"

namespace forebay::cli {

// A column for one layout, which may be that of one role. Where the ranks of a replica differ: for
// the one that holds most beside its KV cache.
struct Column {
  GroupRole role = GroupRole::kAll;
  choose::Decision plan;
  base::Status fits;

  const layout::RankPlan& rank() const {
    return *std::ranges::max_element(
        plan.ranks, {}, [](const layout::RankPlan& r) { return r.memory.fixed_bytes(); });
  }
  const layout::MemoryPlan& memory() const { return rank().memory; }
  int64_t kv_tokens() const { return fits.ok() ? memory().kv_tokens() : 0; }
};

// Prints a line. Names that came with files and flags cannot reach the terminal as anything but
// text.
void Print(std::string_view line);
void PrintTable(const std::string& model, const std::string& devices,
                const std::vector<Column>& columns);
void PrintJson(const std::string& model, const std::string& devices,
               const std::vector<Column>& columns);

}  // namespace forebay::cli
