#include "runtime/topology.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string_view>

namespace forebay::runtime {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The number at the beginning of `text`; none for "max", "-1" and an unreadable file.
std::optional<uint64_t> ParseNumber(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} ? std::optional(value) : std::nullopt;
}

// The number after `key` at the beginning of a line.
std::optional<uint64_t> FindNumber(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key)) return ParseNumber(std::string_view(line).substr(key.size()));
  }
  return std::nullopt;
}

// Takes a cgroup's folder and all those above it, whose limits bind as well.
class CgroupFolders {
 public:
  CgroupFolders(std::string mount, std::string path) : mount_(std::move(mount)) {
    for (;; path.resize(path.find_last_of('/'))) {
      folders_.push_back(mount_ + path + "/");
      if (path.find_last_of('/') == std::string::npos) break;
    }
  }
  auto begin() const { return folders_.begin(); }
  auto end() const { return folders_.end(); }

 private:
  std::string mount_;
  std::vector<std::string> folders_;
};

// The own path in the hierarchy of `controller` ("" is version 2), from lines "4:memory:/path" or
// "0::/path".
std::string CgroupPath(const std::string& root, std::string_view controller) {
  std::istringstream lines(ReadFile(root + "/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers.find("," + std::string(controller) + ",") == std::string::npos) continue;
    std::string path = line.substr(second + 1);
    if (path.ends_with('/')) path.pop_back();
    return path;
  }
  return "";
}

struct CgroupNames {
  const char *limit, *usage, *reclaimable;
};

// Lowers the memory figures to what each cgroup leaves: its limit, and limit - (usage - page cache
// that can go).
void LimitMemory(const CgroupFolders& folders, const CgroupNames& names, Topology& topology) {
  for (const std::string& folder : folders) {
    const auto limit = ParseNumber(ReadFile(folder + names.limit));
    if (!limit) continue;
    const uint64_t usage = ParseNumber(ReadFile(folder + names.usage)).value_or(0);
    const uint64_t reclaimable =
        FindNumber(ReadFile(folder + "memory.stat"), names.reclaimable).value_or(0);
    const uint64_t held = usage > reclaimable ? usage - reclaimable : 0;
    topology.total_memory = std::min(topology.total_memory, *limit);
    topology.available_memory =
        std::min(topology.available_memory, *limit > held ? *limit - held : 0);
  }
}

void LimitCores(std::optional<uint64_t> quota, std::optional<uint64_t> period, Topology& topology) {
  if (!quota || !period || *period == 0) return;
  const auto cores =
      static_cast<int>(std::min<uint64_t>((*quota + *period - 1) / *period, 1 << 20));
  topology.usable_cores = std::clamp(cores, 1, topology.usable_cores);
}

void LimitCores(const std::string& root, Topology& topology) {
  for (const std::string& folder : CgroupFolders(root + "/sys/fs/cgroup", CgroupPath(root, ""))) {
    const std::string max = ReadFile(folder + "cpu.max");  // "QUOTA PERIOD" or "max PERIOD", in us
    const size_t space = max.find(' ');
    if (space != std::string::npos)
      LimitCores(ParseNumber(max), ParseNumber(max.substr(space)), topology);
  }
  for (const std::string& folder :
       CgroupFolders(root + "/sys/fs/cgroup/cpu", CgroupPath(root, "cpu"))) {
    LimitCores(ParseNumber(ReadFile(folder + "cpu.cfs_quota_us")),
               ParseNumber(ReadFile(folder + "cpu.cfs_period_us")), topology);
  }
}

std::vector<int> AffinityCores() {
  cpu_set_t mask;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return {0};
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &mask)) cores.push_back(core);
  }
  return cores;
}

}  // namespace

Topology ReadTopology(const std::string& root) {
  constexpr uint64_t kKiB = 1024;
  Topology topology;
  topology.cores = AffinityCores();
  topology.usable_cores = std::max<int>(1, topology.cores.size());
  LimitCores(root, topology);

  const std::string meminfo = ReadFile(root + "/proc/meminfo");
  topology.total_memory = FindNumber(meminfo, "MemTotal:").value_or(0) * kKiB;
  topology.available_memory = FindNumber(meminfo, "MemAvailable:").value_or(0) * kKiB;
  LimitMemory(CgroupFolders(root + "/sys/fs/cgroup", CgroupPath(root, "")),
              {"memory.max", "memory.current", "inactive_file "}, topology);
  LimitMemory(CgroupFolders(root + "/sys/fs/cgroup/memory", CgroupPath(root, "memory")),
              {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "}, topology);
  return topology;
}

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  std::string line, family, model, name;
  while (std::getline(file, line) && !line.empty()) {
    const std::string value = line.substr(std::min(line.size(), line.find(':') + 2));
    if (line.starts_with("cpu family")) family = value;
    if (line.starts_with("model\t")) model = value;
    if (line.starts_with("model name")) name = value;
  }
  return fmt::format("{} (family {}, model {})", name, family, model);
}

}  // namespace forebay::runtime
