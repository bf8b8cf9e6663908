// forebay plan --memory: how the memory of a rank is divided, layout by layout, side by side.
#include <algorithm>
#include <cstdio>
#include <functional>

#include "base/json.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/layout_flags.h"
#include "cli/open_text.h"
#include "cli/run_flags.h"
#include "engine/layout_plan.h"
#include "engine/open_model.h"

namespace forebay::cli {
namespace {

struct PlanFlags {
  engine::EngineOptions engine;
  LayoutFlags layout;
  std::vector<std::string> layouts;
  bool memory = false, json = false;
};

// Of one layout. Where the ranks of a replica differ: of the one that holds most beside its KV cache.
struct Column {
  engine::LayoutPlan plan;
  base::Status fits;

  const engine::RankPlan& rank() const {
    return *std::ranges::max_element(plan.ranks, {}, [](const engine::RankPlan& r) { return r.memory.fixed_bytes(); });
  }
  const engine::MemoryPlan& memory() const { return rank().memory; }
  int64_t kv_tokens() const { return fits.ok() ? memory().kv_tokens() : 0; }
};

struct Row {
  const char* key;  // in JSON
  const char* name;
  uint64_t (*bytes)(const Column& column);
};

constexpr Row kRows[] = {
    {"weight_bytes", "weights of its own", [](const Column& c) { return c.memory().weight_bytes; }},
    {"pool_bytes", "share of pooled weights", [](const Column& c) { return c.memory().pool_bytes; }},
    {"slot_bytes", "slots for pulled weights", [](const Column& c) { return c.memory().slot_bytes; }},
    {"workspace_bytes", "workspace of a step",
     [](const Column& c) { return c.memory().workspace_bytes + c.memory().batch_bytes; }},
    {"staging_bytes", "staging for other ranks",
     [](const Column& c) {
       return c.memory().tensor_staging_bytes + c.memory().stage_staging_bytes + c.memory().ship_rows_bytes +
              c.memory().ship_sums_bytes;
     }},
    {"table_bytes", "tables of tiles",
     [](const Column& c) { return c.memory().table_bytes + c.memory().pool_table_bytes; }},
    {"device_bytes", "device's own", [](const Column& c) { return c.plan.machine.device_bytes; }},
    {"kv_bytes", "KV cache", [](const Column& c) { return c.fits.ok() ? c.memory().kv_bytes : 0; }},
    {"least_bytes", "least that it needs",
     [](const Column& c) { return engine::LeastBytes(c.memory(), c.rank().request); }},
};

base::Result<std::vector<Column>> PlanColumns(const PlanFlags& flags, const model::ModelConfig& config) {
  std::vector<Column> columns;
  engine::EngineOptions options = flags.engine;
  for (const std::string& layout : flags.layouts.empty() ? std::vector<std::string>{""} : flags.layouts) {
    options.layout = layout;
    FB_ASSIGN_OR_RETURN(engine::LayoutPlan plan, engine::PlanLayout(options, config));
    columns.push_back({std::move(plan), {}});
    columns.back().fits = columns.back().plan.Fits();
  }
  return columns;
}

void PrintLine(const char* name, const std::vector<Column>& columns,
               const std::function<std::string(const Column&)>& cell) {
  std::string line = fmt::format("{:<26}", name);
  for (const Column& column : columns) line += fmt::format("{:>14}", cell(column));
  std::printf("%s\n", line.c_str());
}

void PrintTable(const std::string& model, const std::string& devices, const std::vector<Column>& columns) {
  const auto letter = [&](const Column& column) {
    return std::string(1, static_cast<char>('A' + (&column - columns.data()) % 26));
  };
  std::printf("%s on %s, %s a rank\n\n", model.c_str(), devices.c_str(),
              base::FormatBytes(columns[0].plan.machine.budget_bytes).c_str());
  for (const Column& column : columns)
    std::printf("%s  %s\n", letter(column).c_str(), FormatLayout(column.plan.layout).c_str());
  std::printf("\n");
  PrintLine("", columns, letter);
  for (const Row& row : kRows)
    PrintLine(row.name, columns, [&](const Column& column) { return base::FormatBytes(row.bytes(column)); });
  PrintLine("KV tokens of a replica", columns, [](const Column& c) { return std::to_string(c.kv_tokens()); });
  PrintLine("KV tokens of all", columns,
            [](const Column& c) { return std::to_string(c.kv_tokens() * c.plan.replicas()); });
  PrintLine("longest sequence", columns, [](const Column& c) { return std::to_string(c.memory().max_model_len); });
  for (const Column& column : columns) {
    if (column.plan.choice) std::printf("\n%s: %s\n", letter(column).c_str(), FormatChoice(column.plan).c_str());
    if (!column.fits.ok()) std::printf("\n%s: %s\n", letter(column).c_str(), column.fits.ToString().c_str());
  }
}

void PrintJson(const std::string& model, const std::string& devices, const std::vector<Column>& columns) {
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
    writer.BeginObject().Key("layout").String(FormatLayout(column.plan.layout)).Key("fits").Bool(column.fits.ok());
    if (!column.fits.ok()) writer.Key("error").String(column.fits.ToString());
    for (const Row& row : kRows) writer.Key(row.key).UInt(row.bytes(column));
    writer.Key("kv_tokens")
        .Int(column.kv_tokens())
        .Key("kv_tokens_all")
        .Int(column.kv_tokens() * column.plan.replicas());
    writer.Key("max_model_len").Int(column.memory().max_model_len);
    if (column.plan.choice) writer.Key("choice").String(FormatChoice(column.plan));
    writer.EndObject();
  }
  writer.EndArray().EndObject();
  std::printf("%s\n", text.c_str());
}

int Plan(PlanFlags& flags) {
  if (!flags.memory) return Fail(base::Status(base::kInvalidArgument, "nothing to plan; expected --memory"), 2);
  if (const base::Status status = ApplyLayoutFlags(flags.layout, &flags.engine); !status.ok()) return Fail(status, 2);
  const auto files = engine::OpenModel(flags.engine.model, !flags.engine.model.ends_with(".gguf"), 0);
  if (!files.ok()) return Fail(files.status());
  const auto columns = PlanColumns(flags, files->config);
  if (!columns.ok()) return Fail(columns.status(), EngineExitCode(columns.status()));
  (flags.json ? PrintJson : PrintTable)(files->name, flags.engine.devices, *columns);
  return 0;
}

}  // namespace

void AddPlanCommand(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<PlanFlags>();
  engine::EngineOptions& engine = flags->engine;
  CLI::App* command = app.add_subcommand("plan", "What a layout takes of each rank's memory, before anything is run");
  command->add_flag("--memory", flags->memory, "Show how memory is divided");
  command->add_option("-m,--model", engine.model, "Folder in Hugging Face's layout, GGUF file, or builtin:NAME")
      ->required();
  command->add_option("--devices", engine.devices, "cpu, 2xcpu, or simulated ones: sim:8xh200, sim:4xPROFILE.json")
      ->capture_default_str();
  command->add_option("--layout", flags->layouts,
                      "As dp=4,weights=striped,pool=auto; once for each column (default: each rank a copy)");
  AddLayoutFlags(*command, flags->layout, engine);
  command->add_option("--dtype", engine.dtype, "Compute type: auto (bfloat16), bfloat16, float32")
      ->capture_default_str();
  command->add_option("--threads", engine.threads, "Worker threads (default: all usable cores)");
  command->add_option("--max-model-len", engine.max_model_len, "Longest prompt and output together");
  command->add_option("--max-num-seqs", engine.max_num_seqs, "Most choices that run at once on a rank")
      ->check(CLI::PositiveNumber);
  command->add_option("--max-num-batched-tokens", engine.max_num_batched_tokens, "Most tokens of a step")
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", flags->json, "One JSON object instead of the table");
  command->callback([flags, exit_code] { *exit_code = Plan(*flags); });
}

}  // namespace forebay::cli
