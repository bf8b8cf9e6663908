// `--steps FILE`: one JSON line a step (docs/formats/steps.md).
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "forebay/engine.h"

namespace forebay::report {

// Appends the record's line, LF included.
void AppendStepLine(const StepRecord& record, std::string* out);

// Writes to an emptied file, in large pieces. An error stops the writing and is told by Close.
class StepLog final : public StepObserver {
 public:
  static base::Result<std::unique_ptr<StepLog>> Open(const std::string& path);
  ~StepLog() override;

  void OnStep(const StepRecord& record) override;
  // Writes what is left; kIoError names the file. Once.
  base::Status Close();

 private:
  StepLog(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  void Write();
  base::Status Failed(const char* what, int error) const;

  const std::string path_;
  std::FILE* file_;
  std::string buffer_;
  base::Status status_;
};

// Tells several observers.
class StepFanout final : public StepObserver {
 public:
  // `observer` may be null: then nobody is added.
  void Add(StepObserver* observer) {
    if (observer) observers_.push_back(observer);
  }
  bool empty() const { return observers_.empty(); }
  void OnStep(const StepRecord& record) override {
    for (StepObserver* observer : observers_) observer->OnStep(record);
  }

 private:
  std::vector<StepObserver*> observers_;
};

}  // namespace forebay::report
