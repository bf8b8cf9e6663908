// A job's input with real text as the source of a run without results.
#pragma once

#include <atomic>
#include <vector>

#include "job/files/job_file.h"
#include "job/line_order.h"
#include "job/request_builder.h"
#include "trace/counted_source.h"
#include "trace/output_lengths.h"

namespace forebay::trace {

// Reads and tokenizes as the engine asks. What would end an answer by its content is taken out of
// the requests: an answer has the length that `lengths` gives, or else as many tokens as the
// request may generate. Lines with errors are counted, and the first few reported. All must
// outlive the source.
class LineSource final : public CountedSource {
 public:
  LineSource(const job::JobFile& file, job::RequestRules rules, job::TextPipeline& text,
             const Engine& engine, const OutputLengths& lengths, const RunControl& control,
             const job::LineOrdering& order)
      : file_(file),
        builder_(file, std::move(rules), text, &engine),
        lengths_(lengths),
        control_(control) {
    auto ordinals = job::OrderLines(file, order);
    if (ordinals.ok()) order_ = *std::move(ordinals);
    status_ = ordinals.status();
  }

  std::optional<Request> Next(bool wait) override;
  int64_t remaining() const override { return static_cast<int64_t>(file_.size() - next_); }
  bool ended() const override {
    return next_ == file_.size() || !status_.ok() || control_.drain || control_.abort;
  }
  int64_t lines() const override { return static_cast<int64_t>(file_.size()); }
  int64_t refused() const override { return refused_; }
  const job::FailureTally& failures() const override { return failures_; }
  base::Status status() const override { return status_; }

 private:
  void Refuse(size_t ordinal, const job::LineError& error);

  const job::JobFile& file_;
  job::RequestBuilder builder_;
  const OutputLengths& lengths_;
  const RunControl& control_;
  std::vector<uint32_t> order_;  // of the file's ordinals; empty: as they are
  std::atomic<size_t> next_{0};
  int64_t refused_ = 0;
  job::FailureTally failures_;
  base::Status status_;
};

}  // namespace forebay::trace
