// forebay repro: the papers' claims as scenarios.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <utility>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/outcome.h"
#include "repro/dwdp/table.h"
#include "repro/row_format.h"

namespace forebay::cli {
namespace {

struct ReproFlags {
  std::vector<std::string> rows, figures;
  std::string set, csv, svg;
  bool json = false;
  bool list = false;
  bool quick = false;
  bool table = false, frontier = false;
};

// A substitute that changes no figure is a mistake.
base::Status CheckReached(const std::vector<repro::RowResult>& rows) {
  if (std::ranges::any_of(rows, &repro::RowResult::reached)) return {};
  std::string ids;
  for (const repro::RowResult& row : rows) {
    if (!ids.empty()) ids += ", ";
    ids += row.claim.id;
  }
  return {base::kInvalidArgument,
          fmt::format("--set does not reach {}, closed forms of the paper's numbers; expected rows "
                      "that simulate, as SI6.fetch",
                      ids)};
}

base::Status WriteText(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  if (file) return {};
  return {base::kIoError, fmt::format("{}: cannot be written: {}", path, std::strerror(errno))};
}

int Repro(const ReproFlags& flags) {
  // What simulated runs say of themselves is not about the claims.
  base::SetLogLevel(base::LogLevel::kError);
  std::vector<std::string> wanted = flags.rows;
  wanted.insert(wanted.end(), flags.figures.begin(), flags.figures.end());
  const auto claims = repro::SelectClaims(wanted);
  if (!claims.ok()) return Fail(claims.status(), 2);
  if (flags.list) {
    for (const repro::Claim* claim : *claims) {
      PrintLine(fmt::format("{:<22} {} ({})", claim->id, claim->what, claim->source));
    }
    return 0;
  }
  auto substitutes = repro::ParseSubstitutes(flags.set);
  if (!substitutes.ok()) return Fail(substitutes.status(), 2);
  std::vector<repro::RowResult> rows;
  int failed = 0;
  repro::Lab lab(flags.quick, *std::move(substitutes));
  for (const repro::Claim* claim : *claims) {
    auto row = repro::RunRow(*claim, lab);
    if (!row.ok()) {
      failed = Fail(row.status(), 1);  // the others still run
      continue;
    }
    if (!flags.json) PrintLine(repro::RowText(*row));
    std::fflush(stdout);
    rows.push_back(std::move(*row));
  }
  const repro::PrintLine print = [](const std::string& line) {
    PrintLine(line);
    std::fflush(stdout);
  };
  if (flags.frontier) {
    if (const base::Status printed = repro::PrintFrontier(lab, print); !printed.ok())
      return Fail(printed);
  }
  if (flags.table) {
    for (const auto table : {&repro::PrintContextTable, &repro::PrintMixedTable}) {
      const base::Status printed = table(lab, print);
      if (!printed.ok()) return Fail(printed);
    }
  }
  PrintLine(flags.json ? repro::RowsJson(rows) : repro::TotalsText(rows));
  for (const auto& [path, text] :
       {std::pair(flags.csv, flags.csv.empty() ? "" : repro::RowsCsv(rows)),
        std::pair(flags.svg, flags.svg.empty() ? "" : repro::RowsSvg(rows))}) {
    if (path.empty()) continue;
    if (const base::Status written = WriteText(path, text); !written.ok()) return Fail(written);
  }
  if (lab.substitutes() && !rows.empty()) {
    if (const base::Status reached = CheckReached(rows); !reached.ok()) return Fail(reached, 2);
  }
  return failed;
}

}  // namespace

void AddReproCommand(Command app, int* exit_code) {
  auto flags = std::make_shared<ReproFlags>();
  const Command command =
      app.add_subcommand("repro", "Papers' claims against ours: run them, say what holds");
  command.add_option("ROW", flags->rows,
                     "Rows to run, as SI4, model.Qwen3-32B or sidp (default: all)");
  command.add_option("--figure", flags->figures,
                     "The rows of a paper's figure or table, as \"Shift 9\" or \"SiDP Table 2\"");
  command.add_option("--set", flags->set,
                     "Other models and devices in the place of the paper's, as "
                     "model=Qwen2.5-72B,device=b200,link=5e10: values are shown and not judged");
  command.add_option("--csv", flags->csv, "Also write the values to this file as CSV");
  command.add_option("--svg", flags->svg, "Also draw claimed beside ours into this file");
  const Flag json = command.add_flag("--json", flags->json, "One JSON object instead of tables");
  command
      .add_flag(
          "--table", flags->table,
          "Also DeepSeek-R1's context steps with experts pulled and rows shipped, and jobs in all "
          "modes, by lengths, ranks and devices")
      .excludes(json);
  command
      .add_flag("--frontier", flags->frontier,
                "Also output rates of a GPU by those of a user, with DWDP's context and with DEP's")
      .excludes(json);
  command.add_flag(
      "--quick", flags->quick,
      "Only the first values of a row and an eighth of a job; says which rows it shortens");
  command.add_flag("--list", flags->list, "Only name the rows");
  command.callback([flags, exit_code] { *exit_code = Repro(*flags); });
}

}  // namespace forebay::cli
