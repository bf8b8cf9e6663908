#include "cli/plan_tables.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "base/json_writer.h"
#include "base/log.h"
#include "base/units.h"
#include "cli/outcome.h"
#include "layout/region_table.h"
#include "model/blocks/latent_forms.h"
#include "weights/book/placement.h"

namespace forebay::cli {
namespace {

struct Row {
  const char* key;  // in JSON
  const char* name;
  std::function<uint64_t(const Column& column)> bytes;
};

// States stand there only for models whose layers keep them.
std::vector<Row> Rows(const model::ModelConfig& config) {
  std::vector<Row> rows;
  for (const layout::FixedUse& use : layout::kFixedUses) {
    if (use.use == layout::RegionUse::kState && !config.states) continue;
    rows.push_back({use.key, use.name,
                    [of = use.use](const Column& column) { return column.memory().bytes(of); }});
  }
  rows.push_back({"device_bytes", "device's own",
                  [](const Column& column) { return column.plan.machine.device_bytes; }});
  rows.push_back({"kv_bytes", "KV cache", [](const Column& column) {
                    return column.fits.ok() ? column.memory().bytes(layout::RegionUse::kKv) : 0;
                  }});
  rows.push_back({"tier_bytes", "KV in the host's memory",
                  [](const Column& column) { return column.memory().tier_bytes; }});
  rows.push_back({"file_bytes", "KV in a file",
                  [](const Column& column) { return column.memory().file_bytes; }});
  rows.push_back({"least_bytes", "least that it needs", [](const Column& column) {
                    return layout::LeastBytes(column.memory(), column.rank().request);
                  }});
  return rows;
}

// How the experts of a layer lie on the ranks.
struct HeldExperts {
  int64_t held = 0, all = 0;  // by the rank with most, of so many
  double redundancy = 1;      // ranks among those that share them that hold an expert, on average
};

// Nothing: the model has none.
std::optional<HeldExperts> HeldExpertsOf(const layout::LayoutPlan& plan) {
  const layout::Layout& layout = plan.layout;
  if (!plan.config.moe) return std::nullopt;
  HeldExperts experts{.all = plan.config.moe->num_experts};
  int64_t held = 0;  // by all of a stage's ranks
  for (int rank = 0; rank < layout.ranks_per_stage(); ++rank) {
    int64_t own = plan.ranks[rank].request.decoder->shard.experts.size();
    if (layout.pools_experts()) {
      const int64_t least = weights::ExpertSizes(own, layout.dp)[0],
                    size = layout.expert_size.value_or(0);
      own = size > 0 ? size : least;
    }
    experts.held = std::max(experts.held, own);
    held += own;
  }
  const int replicas = layout.sp > 1 ? 1 : layout.dp;
  experts.redundancy = static_cast<double>(held * replicas) / static_cast<double>(experts.all);
  return experts;
}

// Where rows of prompts attend in the expanded form of latent attention.
struct ExpandedHeads {
  int64_t heads = 0;  // at a time in the longest context
  uint64_t bytes = 0;
};

std::optional<ExpandedHeads> ExpandedHeadsOf(const layout::MemoryPlan& memory) {
  const model::ModelConfig& config = memory.decoder->config;
  if (!config.expands_prompts()) return std::nullopt;
  const int64_t heads = memory.decoder->shard.own_heads.size(),
                blocks = memory.step_shape.expanded_blocks;
  const uint64_t bytes = memory.capacity.expanded_bytes;
  return ExpandedHeads{model::HeadsOfPass(config, heads, memory.dtype, blocks, bytes),
                       model::PassBytes(config, heads, memory.dtype, blocks, bytes)};
}

bool StatesLieBelow(const Column& column) {
  return column.memory().state_blocks > 0 && column.memory().tier_blocks.all() > 0;
}

// How many blocks the KV groups have, and for how many choices, where these are not equally many;
// else empty.
std::string UnequalBlocks(const Column& column) {
  const layout::MemoryPlan& memory = column.memory();
  std::string text;
  bool unequal = false;
  for (const kv::KvGroup& group : memory.kv_groups) {
    const int64_t blocks = group.BlocksOf(memory.num_blocks);
    const base::Reach& reach = group.spec.reach;
    unequal |= blocks < memory.num_blocks;
    text += fmt::format("{}{} layers that see {}: {}", text.empty() ? "KV blocks of " : "; of ",
                        group.layers.size(),
                        reach.window > 0  ? fmt::format("the last {}", reach.window)
                        : reach.chunk > 0 ? fmt::format("chunks of {}", reach.chunk)
                                          : "all",
                        blocks);
  }
  if (!unequal) return "";
  return fmt::format("{}; for {} choices at once", text, column.plan.machine.max_num_seqs);
}

std::string RoleText(GroupRole role) {
  return role == GroupRole::kAll ? "" : fmt::format("{}: ", Name(role));
}

void PrintTableLine(const char* name, const std::vector<Column>& columns,
                    const std::function<std::string(const Column&)>& cell) {
  std::string line = fmt::format("{:<26}", name);
  for (const Column& column : columns) line += fmt::format("{:>14}", cell(column));
  Print(line);
}

}  // namespace

void Print(std::string_view line) { PrintLine(base::Printable(line)); }

void PrintTable(const std::string& model, const std::string& devices,
                const std::vector<Column>& columns) {
  const auto letter = [&](const Column& column) {
    return std::string(1, static_cast<char>('A' + (&column - columns.data()) % 26));
  };
  Print(fmt::format("{} on {}, {} a rank", model, devices,
                    base::FormatBytes(columns[0].plan.machine.budget_bytes)));
  Print("");
  for (const Column& column : columns) {
    Print(fmt::format("{}  {}{}", letter(column), RoleText(column.role),
                      FormatLayout(column.plan.layout)));
  }
  Print("");
  PrintTableLine("", columns, letter);
  for (const Row& row : Rows(columns[0].plan.config))
    PrintTableLine(row.name, columns,
                   [&](const Column& column) { return base::FormatBytes(row.bytes(column)); });
  const auto of_experts = [&](const char* name, auto&& cell) {
    if (!HeldExpertsOf(columns[0].plan)) return;
    PrintTableLine(name, columns, [&](const Column& c) { return cell(*HeldExpertsOf(c.plan)); });
  };
  of_experts("experts held of a layer",
             [](const HeldExperts& e) { return fmt::format("{} of {}", e.held, e.all); });
  of_experts("ranks that hold an expert",
             [](const HeldExperts& e) { return fmt::format("{:.3f}", e.redundancy); });
  if (StatesLieBelow(columns[0])) {
    PrintTableLine("blocks below", columns,
                   [](const Column& c) { return std::to_string(c.memory().tier_blocks.all()); });
    PrintTableLine("  of a choice's states", columns,
                   [](const Column& c) { return std::to_string(c.memory().state_blocks); });
  }
  PrintTableLine("KV tokens of a replica", columns,
                 [](const Column& c) { return std::to_string(c.kv_tokens()); });
  PrintTableLine("KV tokens of all", columns,
                 [](const Column& c) { return std::to_string(c.kv_tokens() * c.plan.replicas()); });
  PrintTableLine("longest sequence", columns,
                 [](const Column& c) { return std::to_string(c.memory().max_model_len); });
  for (const Column& column : columns) {
    const auto note = [&](const std::string& text) {
      Print("");
      Print(letter(column) + ": " + text);
    };
    if (const auto expanded = ExpandedHeadsOf(column.memory())) {
      note(
          fmt::format("of the workspace {} hold keys and values of prompts' contexts, {} of {} "
                      "heads at a time in the longest",
                      base::FormatBytes(expanded->bytes), expanded->heads,
                      column.memory().decoder->config.num_heads));
    }
    if (const std::string blocks = UnequalBlocks(column); column.fits.ok() && !blocks.empty())
      note(blocks);
    if (column.plan.choice) note(FormatChoice(column.plan));
    if (column.plan.expert_choice) note(FormatExpertChoice(column.plan));
    if (!column.plan.streaming.empty()) note(column.plan.streaming);
    if (const std::string uneven = FormatUneven(column.plan.layout, column.plan.config);
        !uneven.empty())
      note(uneven);
    if (!column.fits.ok()) note(column.fits.ToString());
  }
}

void PrintJson(const std::string& model, const std::string& devices,
               const std::vector<Column>& columns) {
  std::string text;
  base::JsonWriter writer(&text);
  writer.BeginObject()
      .Key("model")
      .String(model)
      .Key("devices")
      .String(devices)
      .Key("budget_bytes")
      .UInt(columns[0].plan.machine.budget_bytes);
  writer.Key("layouts").BeginArray();
  for (const Column& column : columns) {
    writer.BeginObject().Key("role").String(Name(column.role));
    writer.Key("layout")
        .String(FormatLayout(column.plan.layout))
        .Key("fits")
        .Bool(column.fits.ok());
    if (!column.fits.ok()) writer.Key("error").String(column.fits.ToString());
    for (const Row& row : Rows(column.plan.config)) writer.Key(row.key).UInt(row.bytes(column));
    writer.Key("kv_tokens")
        .Int(column.kv_tokens())
        .Key("kv_tokens_all")
        .Int(column.kv_tokens() * column.plan.replicas());
    writer.Key("max_model_len").Int(column.memory().max_model_len);
    if (StatesLieBelow(column)) {
      writer.Key("blocks_below").Int(column.memory().tier_blocks.all());
      writer.Key("state_blocks_below").Int(column.memory().state_blocks);
    }
    if (const layout::MemoryPlan& memory = column.memory(); memory.kv_groups.size() > 1) {
      writer.Key("max_num_seqs").Int(column.plan.machine.max_num_seqs);
      writer.Key("kv_groups").BeginArray();
      for (const kv::KvGroup& group : memory.kv_groups) {
        writer.BeginObject().Key("layers").UInt(group.layers.size());
        writer.Key("window").Int(group.spec.reach.window).Key("chunk").Int(group.spec.reach.chunk);
        writer.Key("blocks").Int(column.fits.ok() ? group.BlocksOf(memory.num_blocks) : 0);
        writer.EndObject();
      }
      writer.EndArray();
    }
    if (const auto experts = HeldExpertsOf(column.plan)) {
      writer.Key("held_experts").Int(experts->held).Key("num_experts").Int(experts->all);
      writer.Key("expert_redundancy").Double(experts->redundancy);
    }
    if (const auto expanded = ExpandedHeadsOf(column.memory())) {
      writer.Key("expanded_bytes").UInt(expanded->bytes);
      writer.Key("expanded_heads").Int(expanded->heads);
    }
    if (column.plan.choice) writer.Key("choice").String(FormatChoice(column.plan));
    if (column.plan.expert_choice)
      writer.Key("expert_choice").String(FormatExpertChoice(column.plan));
    if (!column.plan.streaming.empty()) writer.Key("kv_offload").String(column.plan.streaming);
    writer.EndObject();
  }
  writer.EndArray().EndObject();
  PrintLine(text);
}

}  // namespace forebay::cli
