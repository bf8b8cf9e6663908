#include "cli/outcome.h"

#include <cstdio>

#include "base/log.h"
#include "job/exit_code.h"

namespace forebay::cli {

int Fail(const base::Status& status) {
  return Fail(status, static_cast<int>(job::ExitCodeOf(status)));
}

int Fail(const base::Status& status, int exit_code) {
  base::Log(base::LogLevel::kError, status.ToString());
  return exit_code;
}

void PrintLine(std::string_view line) {
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fputc('\n', stdout);
}

int FinishOutput() {
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && !std::ferror(stdout)) return 0;
  return Fail(base::Status(base::kIoError, "standard output: not all lines could be written"));
}

}  // namespace forebay::cli
