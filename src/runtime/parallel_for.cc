#include "runtime/parallel_for.h"

#include <system_error>
#include <thread>
#include <vector>

#include "runtime/topology.h"

namespace forebay::runtime {

void ParallelFor(int num_threads, const std::function<void(Tickets&)>& body) {
  if (num_threads == 0) num_threads = ReadTopology().usable_cores;
  Tickets tickets;
  std::vector<std::thread> threads;
  try {
    for (int i = 1; i < num_threads; ++i) threads.emplace_back([&] { body(tickets); });
  } catch (const std::system_error&) {
    // The system gives no more threads; those that are there take all tickets.
  }
  body(tickets);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace forebay::runtime
