// Which experts the rows of a run chose, in a file (docs/formats/routing.md): what --record-routing
// writes, and --routing lays on devices of shapes. A row's experts do not depend on what runs
// beside it, so the file holds for any layout and any batch.
#pragma once

#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "model/routing.h"

namespace forebay::model {

// The model that a file is of: a run of another one is refused.
struct RoutingShape {
  uint32_t num_experts = 0, experts_per_token = 0;
  uint32_t hidden_size = 0, num_layers = 0, vocab_size = 0;
  std::vector<uint32_t> layers;  // those with experts, ascending

  static RoutingShape Of(const ModelConfig& config);
  size_t slots() const { return layers.size() * experts_per_token; }
  bool operator==(const RoutingShape&) const = default;
};

// Appends rows as steps end. Any thread.
class RoutingLog {
 public:
  // Empties the file. base::kIoError.
  static base::Result<std::unique_ptr<RoutingLog>> Create(const std::string& path,
                                                          const ModelConfig& config);
  ~RoutingLog() { (void)std::fclose(file_); }
  RoutingLog(const RoutingLog&) = delete;
  RoutingLog& operator=(const RoutingLog&) = delete;

  const RoutingShape& shape() const { return shape_; }
  // experts [rows.count, layers with experts, experts of a token].
  void Append(const NamedRows& rows, std::span<const uint16_t> experts);
  // Writes the buffer to the file. base::kIoError: this or an Append could not write.
  base::Status Flush();

 private:
  RoutingLog(std::string path, RoutingShape shape, FILE* file)
      : path_(std::move(path)), shape_(std::move(shape)), file_(file) {}

  const std::string path_;
  const RoutingShape shape_;
  std::mutex mutex_;
  FILE* const file_;
  bool failed_ = false;
};

// A file's routing. kRoutingInvalid: it is none, is cut off, has an expert that the model does not
// have, or says two things of one row; the message names the place.
base::Result<std::shared_ptr<const Routing>> ReadRouting(const std::string& path);
base::Result<std::shared_ptr<const Routing>> ParseRecordedRouting(std::string text,
                                                                  const std::string& name);

}  // namespace forebay::model
