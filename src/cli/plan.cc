// forebay plan: how the memory of a rank is divided, layout by layout, side by side; how long a job
// takes with each number of pooled layers, and in which layouts it is done soonest; what a step
// costs in each mode of a layout that cuts rows.
#include <ctime>

#include "base/log.h"
#include "choose/decide_job.h"
#include "choose/layout_search.h"
#include "choose/pool_trials.h"
#include "choose/printed_plan.h"
#include "cli/commands.h"
#include "cli/layout_table.h"
#include "cli/outcome.h"
#include "cli/plan_tables.h"
#include "cli/run_flags.h"
#include "cli/search_display.h"
#include "cli/setting_flags.h"
#include "engine/open_model.h"
#include "layout/job_plan.h"
#include "open/measure_lines.h"
#include "open/model_files.h"
#include "profile/cpu_cache.h"
#include "runtime/real/real_runtime.h"
#include "trace/job_lengths.h"
#include "trace/trace.h"

namespace forebay::cli {
namespace {

base::Result<std::vector<Column>> PlanColumns(const RunFlags& flags,
                                              const model::ModelConfig& config) {
  std::vector<Column> columns;
  layout::EngineOptions options = flags.engine;
  const auto add = [&]() -> base::Status {
    FB_ASSIGN_OR_RETURN(std::vector<choose::RoleDecision> roles,
                        choose::DecideJob(options, config));
    for (choose::RoleDecision& role : roles) {
      columns.push_back({role.role, std::move(role.plan), {}});
      columns.back().fits = columns.back().plan.Fits();
    }
    return {};
  };
  if (flags.plan.layouts.empty()) FB_RETURN_IF_ERROR(add());
  for (const std::string& layout : flags.plan.layouts) {
    FB_RETURN_IF_ERROR(settings::SetLayout(layout, &options));
    FB_RETURN_IF_ERROR(add());
  }
  return columns;
}

// Processor time that numbers of layers are tried for which pool=auto has not.
constexpr double kTrialSeconds = 5;

// The choice with all numbers tried, and why not, where that takes too long.
choose::PoolChoice TryAll(const RunFlags& flags, const model::ModelConfig& config,
                          const choose::Decision& plan, std::string* left_out) {
  if (flags.engine.roles) return *plan.choice;
  const std::clock_t begin = std::clock();
  bool in_time = true;
  const auto go_on = [&] {
    return in_time = static_cast<double>(std::clock() - begin) < kTrialSeconds * CLOCKS_PER_SEC;
  };
  choose::PoolChoice choice = TryEveryCount(flags.engine, config, plan, go_on);
  const int64_t tried = std::ssize(choice.trials), all = choice.trials.back().layers + 1;
  if (!in_time) {
    *left_out = fmt::format(
        "{} of {} numbers of layers were not tried: pool=auto needs {} to choose, and others for "
        "{:.0f} s of a core were tried beside them",
        all - tried, all, plan.choice->trials.size(), kTrialSeconds);
  }
  return choice;
}

// What the job takes with each number of pooled layers, and of experts that expert-size=auto tried.
int PlanPool(const RunFlags& flags, const model::ModelConfig& config) {
  const auto columns = PlanColumns(flags, config);
  if (!columns.ok()) return Fail(columns.status());
  for (const Column& column : *columns) {
    Print(FormatLayout(column.plan.layout));
    const auto print = [](int64_t count, bool chosen, const char* what,
                          const choose::Throughput& trial) {
      Print(fmt::format("{}{:4} {}: {}", chosen ? "*" : " ", count, what, FormatTrial(trial)));
    };
    if (column.plan.choice) {
      std::string left_out;
      const choose::PoolChoice choice = TryAll(flags, config, column.plan, &left_out);
      for (const choose::PoolTrial& trial : choice.trials)
        print(trial.layers, trial.layers == choice.layers, "layers", trial);
      if (!left_out.empty()) Print("  " + left_out);
    }
    if (const auto& choice = column.plan.expert_choice) {
      for (const choose::ExpertTrial& trial : choice->trials)
        print(trial.size, trial.size == choice->size, "experts", trial);
    }
    if (!column.plan.choice && !column.plan.expert_choice) {
      Print(
          "  nothing is left to choose; expected pool=auto beside weights=by_layer, striped or "
          "sharded, or expert-size=auto beside experts=by_expert");
    }
  }
  return 0;
}

// The layouts in which the job is done soonest, and why the others cannot run.
int PlanLayouts(const RunFlags& flags, const engine::ModelFiles& files) {
  std::vector<choose::LayoutTrial> trials;
  if (flags.engine.roles) {
    trials.push_back(choose::ForeseeRoles(flags.engine, files.config));
    if (!trials.front().refused.ok()) return Fail(trials.front().refused);
  } else {
    base::Log(base::LogLevel::kInfo,
              fmt::format("foreseeing the job in each layout of {}: up to half a minute",
                          flags.engine.machine.devices.text));
    SearchDisplay search(flags.quiet);
    auto ranked = choose::RankLayouts(flags.engine, files.config, search.tell());
    if (!ranked.ok()) return Fail(ranked.status());
    trials = *std::move(ranked);
  }
  const ComparedJob job{.model = files.name,
                        .devices = flags.engine.machine.devices.text,
                        .tp_wire = flags.engine.pricing().tp_wire_bytes == 2 ? "bf16" : "fp32",
                        .price_per_hour = flags.plan.price_per_hour};
  (flags.plan.json ? PrintLayoutJson : PrintLayoutTable)(job, trials);
  if (trials.front().plan) return 0;
  return Fail(trials.front().refused.WithContext("no layout can run the job, the first for"));
}

// Prints a layout's price of a step of so many rows in each mode, the mode that such a step takes,
// and where the mode changes.
void PrintModes(const RunFlags& flags, const choose::Decision& plan) {
  const layout::ShiftPlan& shift = plan.shift;
  Print(FormatLayout(plan.layout));
  Print("");
  if (shift.modes.size() < 2) {
    Print("one mode: " + layout::FormatMode(plan.layout.degrees()));
    return;
  }
  const std::vector<choose::ModePrices> prices =
      plan.mode_prices.empty()
          ? choose::PriceModes(shift.modes, flags.engine, plan.config, plan.machine)
          : plan.mode_prices;
  std::string head = fmt::format("{:>8}", "rows");
  for (const model::Degrees& mode : shift.modes)
    head += fmt::format("{:>12}", layout::FormatMode(mode) + " ms");
  Print(head + "  mode");
  const auto mode_at = [&](int64_t rows) { return shift.table.Shift({}, rows, 0).degrees; };
  for (const choose::ModePrices& price : prices) {
    std::string line = fmt::format("{:>8}", price.rows);
    for (const double seconds : price.seconds) line += fmt::format("{:>12.3f}", 1e3 * seconds);
    Print(line + "  " + layout::FormatMode(mode_at(price.rows)));
  }
  std::string rule = fmt::format("by the prices of {}:", plan.machine.profile.name);
  for (const schedule::ShiftEntry& entry : shift.table.entries) {
    const bool last = &entry == &shift.table.entries.back();
    if (!last) rule += fmt::format(" up to {} rows", entry.most_rows);
    if (last && shift.table.entries.size() > 1) rule += " above,";
    rule += " " + layout::FormatMode(entry.degrees) + (last ? "" : ",");
  }
  Print("");
  Print(rule);
}

// Which of the flags that say what is planned go together.
base::Status CheckWork(const RunFlags& flags) {
  const auto refuse = [](const char* message) {
    return base::Status(base::kInvalidArgument, message);
  };
  if (!flags.trace.empty() && flags.input)
    return refuse("--trace and --input-file exclude each other");
  if (flags.trace.empty() && flags.trace_options() != trace::TraceOptions())
    return refuse("--trace-rows is for a --trace");
  if (!flags.input && !flags.output_lengths.empty())
    return refuse("--output-lengths is for an --input-file");
  if (flags.plan.memory + flags.plan.pool + flags.plan.modes > 1)
    return refuse("--memory, --pool and --modes exclude each other");
  if (flags.plan.json && (flags.plan.pool || flags.plan.modes))
    return refuse("--json is for --memory, or for a --trace or --input-file alone");
  if (flags.plan.price_per_hour > 0 && (flags.plan.memory || flags.plan.pool || flags.plan.modes))
    return refuse("--price-per-hour is for a --trace or --input-file alone");
  if (flags.plan.memory || flags.plan.pool || flags.plan.modes || !flags.trace.empty() ||
      flags.input)
    return {};
  return refuse("nothing to plan; expected --memory, --pool, --modes, --trace or --input-file");
}

// Where layouts are compared by what the job takes in them.
base::Status CheckForecast(const RunFlags& flags) {
  if (!flags.engine.policy->make()->growth_is_free()) return {};
  return {
      choose::kNotOfAMachine,
      fmt::format("--scheduling-policy {}: no job is foreseen where what choices generate takes "
                  "no memory; expected another policy, or --memory",
                  flags.engine.policy->name)};
}

// Flags that would do nothing in any of the columns.
base::Status CheckMute(const RunFlags& flags) {
  settings::RunOptions options = flags;
  std::vector<layout::Layout> columns;
  for (const std::string& layout : flags.plan.layouts) {
    FB_RETURN_IF_ERROR(settings::SetLayout(layout, &options.engine));
    if (options.engine.layout_by_job) return {};
    columns.push_back(*options.engine.layout);
  }
  return settings::CheckMute(options, columns);
}

// Tells the engine how long the job's prompts and answers are.
base::Status DescribeJob(RunFlags& flags, const engine::ModelFiles& files) {
  if (!flags.trace.empty()) {
    FB_ASSIGN_OR_RETURN(const trace::LengthTrace trace,
                        trace::ReadTrace(flags.trace, flags.trace_options()));
    trace::DescribeTrace(trace, &flags.engine);
    return {};
  }
  FB_ASSIGN_OR_RETURN(const job::JobFile file, job::JobFile::Open(*flags.input));
  trace::OutputLengths lengths;
  if (!flags.output_lengths.empty()) {
    FB_ASSIGN_OR_RETURN(lengths, trace::ReadOutputLengths(flags.output_lengths));
  }
  FB_ASSIGN_OR_RETURN(const auto text, open::LoadText(flags.text, files));
  job::RequestRules rules = open::RulesOf(flags, files, engine::FactsOf(files));
  rules.model_names = {"*"};
  FB_ASSIGN_OR_RETURN(
      trace::JobLengths measured,
      open::MeasureLines({file, rules, *text, files.config, &lengths}, flags.engine));
  trace::DescribeLengths(std::move(measured), true, &flags.engine);
  return {};
}

// Real devices, for each layout that is asked about.
void PriceDevices(RunFlags& flags, bool ranks_layouts) {
  const std::unique_ptr<runtime::Runtime> runtime = runtime::CreateRealRuntime();
  layout::EngineOptions asked = flags.engine;
  if (ranks_layouts) asked.roles.reset();  // a forecast of roles needs what one of layouts needs
  std::vector<std::string> layouts = flags.plan.layouts;
  if (layouts.empty() && !asked.roles && asked.job != nullptr) layouts = {"auto"};
  if (layouts.empty()) layouts = {""};
  for (const std::string& layout : layouts) {
    // What is wrong with a layout is said where it is planned.
    if (!asked.roles && !settings::SetLayout(layout, &asked).ok()) continue;
    profile::PriceCpu(*runtime, &asked);
  }
  flags.engine.machine = asked.machine;
}

int Plan(const SettingFlags& line) {
  RunFlags flags;
  base::Status status = line.Read(&flags);
  if (status.ok()) status = CheckWork(flags);
  if (!status.ok()) return Fail(status, 2);
  if (flags.engine.roles && !flags.plan.layouts.empty())
    return Fail(base::Status(layout::kRolesInvalid,
                             "--context and --generation beside --layout; expected either"),
                2);
  const bool ranks_layouts = !flags.plan.memory && !flags.plan.pool && !flags.plan.modes;
  if (ranks_layouts) status = CheckForecast(flags);
  if (status.ok() && (!ranks_layouts || flags.engine.roles)) status = CheckMute(flags);
  if (!status.ok()) return Fail(status, 2);
  const auto files = open::OpenModelFiles(flags, !flags.engine.model.ends_with(".gguf"));
  if (!files.ok()) return Fail(files.status());
  if (!flags.trace.empty() || flags.input) {
    if (status = DescribeJob(flags, *files); !status.ok()) return Fail(status, 2);
  }
  if (ranks_layouts && flags.engine.job == nullptr) {
    return Fail(base::Status(base::kInvalidArgument,
                             "layouts are compared for a job whose requests are all there; "
                             "expected a trace without arrivals, and no --mean-context"),
                2);
  }
  PriceDevices(flags, ranks_layouts);
  if (flags.plan.pool) return PlanPool(flags, files->config);
  if (ranks_layouts) return PlanLayouts(flags, *files);
  const auto columns = PlanColumns(flags, files->config);
  if (!columns.ok()) return Fail(columns.status());
  if (flags.plan.modes) {
    for (const Column& column : *columns) PrintModes(flags, column.plan);
    return 0;
  }
  (flags.plan.json ? PrintJson : PrintTable)(files->name, flags.engine.machine.devices.text,
                                             *columns);
  return 0;
}

}  // namespace

void AddPlanCommand(Command app, int* exit_code) {
  const Command command =
      app.add_subcommand("plan",
                         "What layouts take of each rank's memory and how long a "
                         "job takes in them, before anything is run");
  const SettingFlags line(command, settings::kPlan);
  command.callback([line, exit_code] { *exit_code = Plan(line); });
}

}  // namespace forebay::cli
