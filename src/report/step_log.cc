#include "report/step_log.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/json_writer.h"
#include "schedule/step_mode.h"

namespace forebay::report {
namespace {

constexpr size_t kWriteBytes = 1 << 20;

}  // namespace

void AppendStepLine(const StepRecord& record, std::string* out) {
  base::JsonWriter writer(out);
  writer.BeginObject();
  writer.Key("replica").Int(record.replica).Key("step").Int(record.step);
  writer.Key("role").String(Name(record.role));
  writer.Key("begin").Double(record.begin_seconds).Key("end").Double(record.end_seconds);
  writer.Key("mode").String(schedule::Name(record.mode));
  writer.Key("sp").Int(record.mode.degrees.sp).Key("tp").Int(record.mode.degrees.tp);
  writer.Key("decode_rows").Int(record.decode_rows).Key("prefill_rows").Int(record.prefill_rows);
  if (record.interactive_decode_rows + record.interactive_prefill_rows > 0) {
    writer.Key("interactive_decode_rows").Int(record.interactive_decode_rows);
    writer.Key("interactive_prefill_rows").Int(record.interactive_prefill_rows);
  }
  writer.Key("context_tokens").Int(record.context_tokens).Key("kv_tokens").Int(record.kv_tokens);
  writer.Key("logit_rows").Int(record.logit_rows);
  writer.Key("running").Int(record.running).Key("waiting").Int(record.waiting);
  writer.Key("admitted")
      .Int(record.admitted)
      .Key("preempted")
      .Int(record.preempted)
      .Key("finished")
      .Int(record.finished);
  writer.Key("kv_blocks").Int(record.kv_blocks_used);
  writer.Key("bytes_pulled").UInt(record.bytes_pulled).Key("wait").Double(record.waits.total());
  writer.Key("waits").BeginObject();
  for (int cause = 0; cause < kNumWaitCauses; ++cause)
    writer.Key(Name(static_cast<WaitCause>(cause)))
        .Double(record.waits.by_cause[static_cast<size_t>(cause)]);
  writer.EndObject();
  if (record.kv_blocks_down + record.kv_blocks_up + record.kv_stream_limit > 0) {
    writer.Key("kv_blocks_down").Int(record.kv_blocks_down);
    writer.Key("kv_blocks_up").Int(record.kv_blocks_up);
    writer.Key("kv_blocks_streamed").Int(record.kv_blocks_streamed);
    writer.Key("kv_stream_limit").Int(record.kv_stream_limit);
  }
  if (record.rows_routed > 0) {
    writer.Key("rows_routed").Int(record.rows_routed);
    writer.Key("experts_touched").Int(record.experts_touched);
    writer.Key("expert_busiest_rows").Int(record.expert_busiest_rows);
    writer.Key("expert_imbalance").Double(record.expert_imbalance);
  }
  writer.Key("taken").BeginArray();
  for (const int64_t line : record.taken) writer.Int(line);
  writer.EndArray();
  writer.Key("plan").String(fmt::format("{:016x}", record.plan_hash));
  writer.EndObject();
  out->push_back('\n');
}

base::Result<std::unique_ptr<StepLog>> StepLog::Open(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  std::unique_ptr<StepLog> log(new StepLog(path, file));
  if (!file) return log->Failed("open", errno);
  std::setvbuf(file, nullptr, _IONBF, 0);
  return log;
}

StepLog::~StepLog() { static_cast<void>(Close()); }

void StepLog::OnStep(const StepRecord& record) {
  if (!status_.ok()) return;
  AppendStepLine(record, &buffer_);
  if (buffer_.size() >= kWriteBytes) Write();
}

void StepLog::Write() {
  if (status_.ok() && std::fwrite(buffer_.data(), 1, buffer_.size(), file_) != buffer_.size())
    status_ = Failed("write", errno);
  buffer_.clear();
}

base::Status StepLog::Close() {
  if (!file_) return status_;
  Write();
  if (std::fclose(std::exchange(file_, nullptr)) != 0 && status_.ok())
    status_ = Failed("write", errno);
  return status_;
}

base::Status StepLog::Failed(const char* what, int error) const {
  return base::Status(base::kIoError, fmt::format("{}: cannot {} the step log: {}", path_, what,
                                                  std::strerror(error)));
}

}  // namespace forebay::report
