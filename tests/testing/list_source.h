// Runs a list of requests through an engine and collects the results.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "forebay/engine.h"

namespace forebay::testing_support {

class ListSource : public RequestSource {
 public:
  explicit ListSource(std::vector<Request> requests) : requests_(std::move(requests)) {}
  std::optional<Request> Next(bool) override {
    if (ended()) return std::nullopt;
    return requests_[next_++];
  }
  bool ended() const override { return next_ == requests_.size(); }
  int64_t remaining() const override { return static_cast<int64_t>(requests_.size() - next_); }

 private:
  std::vector<Request> requests_;
  size_t next_ = 0;
};

class ListSink : public ResultSink {
 public:
  bool Finish(RequestResult result) override {
    results.push_back(std::move(result));
    return true;
  }
  std::vector<RequestResult> results;  // in completion order
};

inline std::vector<RequestResult> RunAll(Engine& engine, std::vector<Request> requests) {
  ListSource source(std::move(requests));
  ListSink sink;
  RunControl control;
  engine.Run(source, sink, control);
  return std::move(sink.results);
}

}  // namespace forebay::testing_support
