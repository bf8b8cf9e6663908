#include "runtime/parallel_for.h"

#include <thread>
#include <vector>

namespace forebay::runtime {

void ParallelFor(int num_threads, const std::function<void(Tickets&)>& body) {
  Tickets tickets;
  std::vector<std::thread> threads;
  for (int i = 1; i < num_threads; ++i) threads.emplace_back([&] { body(tickets); });
  body(tickets);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace forebay::runtime
