#include "weights/formats/mapped_fault.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

namespace forebay::weights {
namespace {

// A handler has no other way to the mappings: begin and end of each, 0 where a slot is free. More
// files than the largest models have shards.
struct Slot {
  std::atomic<uintptr_t> begin{0}, end{0};
};
std::array<Slot, 2048> slots;
uintptr_t page_bytes = 0;
using SignalAction = struct sigaction;
SignalAction previous;

// Calls nothing but what a handler may: mmap is a bare system call.
void HandleFault(int number, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Slot& slot : slots) {
    const uintptr_t begin = slot.begin.load(), end = slot.end.load();
    if (begin == 0 || address < begin || address >= end) continue;
    void* page = reinterpret_cast<void*>(address / page_bytes * page_bytes);
    if (mmap(page, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page) {
      errno = saved_errno;
      return;
    }
  }
  errno = saved_errno;
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr)
    return previous.sa_sigaction(number, info, context);
  signal(number, SIG_DFL);
  raise(number);
}

void InstallHandler() {
  page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  SignalAction action{};
  action.sa_sigaction = HandleFault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGBUS, &action, &previous);
}

}  // namespace

MappedFaultGuard::MappedFaultGuard(std::span<const std::byte> bytes) {
  static std::once_flag installed;
  std::call_once(installed, InstallHandler);
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].begin.load() != 0) continue;
    const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
    slots[i].end = begin + bytes.size();
    // The begin comes last: a handler that sees it sees the end, too.
    slots[i].begin = begin;
    slot_ = static_cast<int>(i);
    return;
  }
}

MappedFaultGuard::~MappedFaultGuard() {
  if (slot_ >= 0) slots[static_cast<size_t>(slot_)].begin = 0;
}

}  // namespace forebay::weights
