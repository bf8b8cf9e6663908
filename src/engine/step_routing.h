// Which experts the rows of a replica's steps go to, as far as somebody outside the devices says or
// is told: a recorded routing is told which rows a step has, a log gets what they chose.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/choices/choices.h"
#include "engine/rank.h"
#include "model/recorded_routing.h"

namespace forebay::engine {

class StepRouting {
 public:
  // `replica`: the number among the job's. Both may be null.
  StepRouting(int replica, std::shared_ptr<const model::Routing> source,
              std::shared_ptr<model::RoutingLog> log)
      : replica_(replica), source_(std::move(source)), log_(std::move(log)) {}

  // Before the step is agreed on: what it will have. model::kRoutingInvalid: the source does not
  // know a row.
  base::Status Tell(int64_t step, std::span<const ChoiceRows> rows);
  // After the step's end on all ranks. base::kIoError.
  base::Status Record(std::span<const std::unique_ptr<Rank>> ranks, int flight,
                      std::span<const ChoiceRows> rows);

 private:
  const int replica_;
  const std::shared_ptr<const model::Routing> source_;
  const std::shared_ptr<model::RoutingLog> log_;
  // Kept for their capacity.
  std::vector<model::NamedRows> named_;
  std::vector<uint16_t> chosen_;
};

}  // namespace forebay::engine
