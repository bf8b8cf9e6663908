#include "kernels/cuda/testing/launcher.h"

#include "kernels/cuda/testing/emulated_launch.h"

namespace forebay::kernels::cuda::testing {
namespace {

class EmulatedLauncher final : public Launcher {
 public:
  int launches() const override { return 8; }
  bool fast() const override { return false; }
  base::Status Run(int launch,
                   const std::function<void(const device::LaunchContext&)>& enqueue) override {
    const EmulatedLaunch context(static_cast<uint64_t>(launch));
    enqueue(context);
    return context.status();
  }
};

Launcher* chosen = nullptr;

}  // namespace

void SetLauncher(Launcher* launcher) { chosen = launcher; }

Launcher& TheLauncher() {
  static EmulatedLauncher emulated;
  return chosen != nullptr ? *chosen : emulated;
}

}  // namespace forebay::kernels::cuda::testing
