#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kv/tier/file_store.h"
#include "profile/cases.h"
#include "runtime/parallel_for.h"

namespace forebay::profile {

base::Status MeasureDisk(Bench& bench, const std::string& path, cost::DeviceProfile* profile) {
  const uint64_t bytes = bench.grid().disk_bytes;
  FB_ASSIGN_OR_RETURN(const auto file, kv::OpenBlockFile(path, bytes, kv::FileLife::kJob));
  const auto aligned = [] {
    return std::unique_ptr<void, decltype(&std::free)>(
        std::aligned_alloc(kv::kFileAlignment, kv::kRequestBytes), &std::free);
  };
  FB_CHECK(bench.data().bytes >= kv::kRequestBytes, "{} bytes of data", bench.data().bytes);
  const auto written = aligned();
  const std::span<std::byte> data(static_cast<std::byte*>(written.get()), kv::kRequestBytes);
  FB_RETURN_IF_ERROR(bench.device().Read(data.data(), bench.data().data, data.size()));
  const int threads = kv::FileOptions().threads;
  for (const bool write : {true, false}) {
    std::vector<base::Status> status(static_cast<size_t>(threads));
    const runtime::TimeNs begin = bench.runtime().Now();
    std::atomic<int> thread{0};
    runtime::ParallelFor(threads, [&](runtime::Tickets& tickets) {
      base::Status& mine = status[static_cast<size_t>(thread++)];
      // What is read goes where nobody looks.
      const auto read = aligned();
      for (uint64_t at = static_cast<uint64_t>(tickets.Next()) * data.size();
           at < bytes && mine.ok(); at = static_cast<uint64_t>(tickets.Next()) * data.size()) {
        mine = write ? file->Write(at, data)
                     : file->Read(at, {static_cast<std::byte*>(read.get()), data.size()});
      }
    });
    const double seconds = runtime::SecondsOf(bench.runtime().Now() - begin);
    for (const base::Status& each : status) FB_RETURN_IF_ERROR(each);
    SetNumber(profile, write ? "disk_write_bytes_per_s" : "disk_read_bytes_per_s",
              static_cast<double>(bytes) / std::max(seconds, 1e-9), cost::Mark::kMeasured,
              "requests of 2 MiB past the page cache, two threads, in the folder of the run");
  }
  return base::Status::Ok();
}

}  // namespace forebay::profile
