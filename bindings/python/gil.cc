#include "gil.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace forebay::python {
namespace {

// How many threads are within an Entry, and which one alone may still come in.
std::atomic<int> inside{0};
std::atomic<bool> ending{false};
std::atomic<std::thread::id> main_thread;

}  // namespace

Entry::Entry() {
  // Counted first: SendToSleep sees either the count, or this thread its flag.
  ++inside;
  if (!ending || main_thread.load() == std::this_thread::get_id()) return;
  --inside;
  for (;;) pause();
}

Entry::~Entry() { --inside; }

void Entry::SendToSleep() {
  main_thread = std::this_thread::get_id();
  ending = true;
  // Those who are inside need the GIL to get on.
  PyThreadState* const state = PyEval_SaveThread();
  while (inside != 0) std::this_thread::yield();
  PyEval_RestoreThread(state);
}

void Entry::ForgetOthersInChildren() {
  pthread_atfork(nullptr, nullptr, [] {
    inside = 0;
    ending = false;
  });
}

}  // namespace forebay::python
