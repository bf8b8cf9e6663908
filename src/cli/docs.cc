// forebay docs: writes the tables of settings into docs/cli.md, and those of parameters into
// docs/formats/requests.md. For who changes the program, so
// help does not list it.
#include <fstream>

#include "base/read_file.h"
#include "cli/commands.h"
#include "cli/outcome.h"
#include "job/lines/parameter_page.h"
#include "settings/page.h"

namespace forebay::cli {
namespace {

base::Status Fill(const std::string& path) {
  FB_ASSIGN_OR_RETURN(const std::string page, base::ReadFile(path));
  const bool has_settings = page.find("<!-- settings: ") != std::string::npos;
  const auto filled = has_settings ? settings::FillPage(page) : job::FillParameters(page);
  if (!filled.ok()) return filled.status().WithContext(path);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << *filled;
  file.close();
  if (file.good()) return {};
  return {base::kIoError, fmt::format("{}: cannot be written", path)};
}

}  // namespace

void AddDocsCommand(Command app, int* exit_code) {
  const auto page = std::make_shared<std::string>();
  const Command command =
      app.add_subcommand("docs", "Write the tables of a page that is made of the program's own");
  command.hide();
  command.add_option("page", *page, "The page, which has marks for them").required();
  command.callback([page, exit_code] {
    const base::Status status = Fill(*page);
    *exit_code = status.ok() ? 0 : Fail(status);
  });
}

}  // namespace forebay::cli
