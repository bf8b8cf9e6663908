// forebay pack: how short a job's steps could be, packed by an oracle that knows all lengths.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/json_writer.h"
#include "cli/commands.h"
#include "cli/outcome.h"
#include "oracle/list_search.h"
#include "oracle/milp.h"
#include "trace/trace.h"

namespace forebay::cli {
namespace {

// Rows of a drawing, and steps of the longest line.
constexpr int64_t kDrawnRequests = 40, kDrawnColumns = 72;

struct PackFlags {
  std::string requests;
  int64_t capacity = 0;
  std::string form = "grown";
  int64_t chunk = 512;
  oracle::SearchOptions search;
  bool oracle = false;
  double seconds = 10;
  std::string solver;
  bool json = false;
};

base::Result<oracle::Instance> ReadInstance(const PackFlags& flags) {
  FB_ASSIGN_OR_RETURN(const oracle::Form form, oracle::ParseForm(flags.form));
  FB_ASSIGN_OR_RETURN(const trace::LengthTrace trace, trace::ReadTrace(flags.requests, {}));
  std::vector<oracle::Lengths> lengths;
  for (const trace::TraceRow& row : trace.rows) {
    lengths.push_back({.prompt = row.prompt_tokens, .output = row.output_tokens});
  }
  return oracle::MakeInstance(lengths, flags.capacity, form, flags.chunk);
}

// The solver that was named, that the environment names, or that tools/fetch_highs.sh left.
std::string SolverPath(const PackFlags& flags) {
  if (!flags.solver.empty()) return flags.solver;
  const char* const set = std::getenv("FOREBAY_HIGHS");
  return set ? set : "build/highs/libhighs.so";
}

// A line a request, in the order of their beginnings; a column is so many steps.
void Draw(const oracle::Instance& instance, const oracle::Packing& packing) {
  std::vector<size_t> order(packing.begin.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](size_t i) { return packing.begin[i]; });
  const int64_t a_column = (packing.makespan + kDrawnColumns - 1) / kDrawnColumns;
  int64_t drawn = 0;
  for (const size_t request : order) {
    if (drawn++ == kDrawnRequests) {
      PrintLine(fmt::format("  and {} more", static_cast<int64_t>(order.size()) - kDrawnRequests));
      break;
    }
    const int64_t begin = packing.begin[request] / a_column;
    const int64_t end = packing.begin[request] +
                        static_cast<int64_t>(instance.requests[request].size()) + a_column - 1;
    PrintLine(fmt::format("  {:>6} {}{}", request + 1, std::string(static_cast<size_t>(begin), ' '),
                          std::string(static_cast<size_t>(end / a_column - begin), '#')));
  }
  PrintLine(fmt::format("  a column is {} step{}", a_column, a_column == 1 ? "" : "s"));
}

struct PackResult {
  oracle::Packing fifo, best;
  int64_t bound = 0;

  bool proven() const { return best.makespan == bound; }
};

void PrintText(const oracle::Instance& instance, const PackResult& result) {
  const auto row = [&](const char* name, int64_t steps) {
    PrintLine(fmt::format(
        "{:<28}{:>8} steps  {:.3f} of the bound", name, steps,
        static_cast<double>(steps) / static_cast<double>(std::max<int64_t>(1, result.bound))));
  };
  row("in the order of the file", result.fifo.makespan);
  row(result.proven() ? "best found, the optimum" : "best found", result.best.makespan);
  row("bound: no packing is shorter", result.bound);
  Draw(instance, result.best);
}

void PrintPackJson(const PackResult& result) {
  std::string text;
  base::JsonWriter writer(&text);
  writer.BeginObject();
  writer.Key("fifo_steps").Int(result.fifo.makespan);
  writer.Key("best_steps").Int(result.best.makespan);
  writer.Key("bound_steps").Int(result.bound);
  writer.Key("proven").Bool(result.proven());
  writer.Key("begin").BeginArray();
  for (const int64_t begin : result.best.begin) writer.Int(begin);
  writer.EndArray().EndObject();
  PrintLine(text);
}

base::Result<PackResult> PackInstance(const PackFlags& flags, const oracle::Instance& instance) {
  PackResult result{.fifo = oracle::PlaceFifo(instance),
                    .best = oracle::SearchPacking(instance, flags.search),
                    .bound = oracle::LowerBound(instance)};
  if (flags.oracle) {
    FB_ASSIGN_OR_RETURN(const oracle::Solver solver, oracle::Solver::Load(SolverPath(flags)));
    FB_ASSIGN_OR_RETURN(const oracle::Optimum optimum,
                        solver.Solve(instance, result.best, flags.seconds));
    result.best = optimum.packing;
    result.bound = optimum.bound;
  }
  return result;
}

int Pack(const PackFlags& flags) {
  const auto instance = ReadInstance(flags);
  if (!instance.ok()) return Fail(instance.status(), 2);
  const auto result = PackInstance(flags, *instance);
  if (!result.ok()) return Fail(result.status());
  if (flags.json) {
    PrintPackJson(*result);
  } else {
    PrintText(*instance, *result);
  }
  return 0;
}

}  // namespace

void AddPackCommand(Command app, int* exit_code) {
  auto flags = std::make_shared<PackFlags>();
  const Command command = app.add_subcommand(
      "pack", "The fewest steps that a job of known lengths takes in so much KV cache");
  command.add_option("requests", flags->requests, "CSV of lengths, or synthetic:... as for --trace")
      .required();
  command.add_option("--capacity", flags->capacity, "Tokens of KV cache").required();
  command.add_option("--form", flags->form,
                     "What a request holds: grown (prompt and what it has generated), chunked "
                     "(its prompt chunk by chunk first), printed (prompt and output throughout)");
  command.add_option("--chunk", flags->chunk, "Tokens of a chunk, for --form chunked");
  command.add_option("--placements", flags->search.placements, "Orders to try, at most");
  command.add_option("--seed", flags->search.seed, "Of the search");
  command.add_flag("--oracle", flags->oracle,
                   "Ask a mixed-integer solver for the optimum (tools/fetch_highs.sh)");
  command.add_option("--oracle-seconds", flags->seconds, "Its time");
  command.add_option("--solver", flags->solver,
                     "Its libhighs.so; default $FOREBAY_HIGHS, build/highs/libhighs.so");
  command.add_flag("--json", flags->json, "For programs");
  command.callback([flags, exit_code] { *exit_code = Pack(*flags); });
}

}  // namespace forebay::cli
