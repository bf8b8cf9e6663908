// forebay profile: measures the machine at hand for the cost model.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "cli/commands.h"
#include "cli/outcome.h"
#include "cost/profile_writer.h"
#include "job/files/output_check.h"
#include "profile/profile_device.h"
#include "runtime/real/real_runtime.h"

namespace forebay::cli {
namespace {

struct ProfileFlags {
  profile::ProfileOptions options;
  std::string devices = "cpu";
  std::string output;
};

base::Status Write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file.good()) return base::Status::Ok();
  return base::Status(base::kIoError, fmt::format("{}: cannot be written", path));
}

int Profile(ProfileFlags& flags) {
  const auto devices = layout::ParseDevices(flags.devices);
  if (!devices.ok()) return Fail(devices.status());
  flags.options.devices = *devices;
  // A folder that is not there is found out before minutes of measurements. A profile that is there
  // stays until another one is measured.
  const job::NamedPath output{"--output-file", flags.output};
  if (const base::Status status = job::CheckOutputs({&output, 1}, {}); !status.ok())
    return Fail(status);
  const std::string name =
      flags.output.empty() ? devices->name : std::filesystem::path(flags.output).stem().string();
  const std::unique_ptr<runtime::Runtime> runtime = runtime::CreateRealRuntime();
  const runtime::TimeNs begin = runtime->Now();
  const auto progress = [&](std::string_view line) {
    std::fprintf(stderr, "%6.1f s  %.*s\n", runtime::SecondsOf(runtime->Now() - begin),
                 static_cast<int>(line.size()), line.data());
  };
  const auto profile = profile::ProfileDevice(*runtime, flags.options, name, progress);
  if (!profile.ok()) return Fail(profile.status());
  const std::string text = cost::WriteProfile(*profile);
  if (const auto read = cost::ParseProfile(text, "what was measured"); !read.ok())
    return Fail(read.status());
  if (flags.output.empty()) {
    std::fputs(text.c_str(), stdout);
    return 0;
  }
  if (const base::Status status = Write(flags.output, text); !status.ok()) return Fail(status);
  progress(fmt::format("written to {}: run a job on it with --devices sim:{}", flags.output,
                       flags.output));
  return 0;
}

}  // namespace

void AddProfileCommand(Command app, int* exit_code) {
  auto flags = std::make_shared<ProfileFlags>();
  const Command command = app.add_subcommand(
      "profile", "Measure this machine for the simulator: writes a device profile");
  command.add_option("-o,--output-file", flags->output,
                     "Profile to write, named by its file (default: standard output)");
  command.add_option("--devices", flags->devices, "What to measure: cpu, cuda or cuda:K")
      .capture_default_str();
  command.add_option("--threads", flags->options.threads,
                     "Worker threads (default: all usable cores)");
  command
      .add_option("--isa", flags->options.isa,
                  "Instruction set: auto, amx, avx512bf16, avx512f, avx2; on GPUs pair, mma")
      .capture_default_str();
  command
      .add_option("--numerics", flags->options.numerics,
                  "Numerics class: auto, pair, amx_*, amx_*_p1024, mma_k16f25")
      .capture_default_str();
  command.add_flag("--quick", flags->options.quick, "Fewer points and shorter samples");
  command.callback([flags, exit_code] { *exit_code = Profile(*flags); });
}

}  // namespace forebay::cli
