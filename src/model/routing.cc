#include "model/routing.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "model/recorded_routing.h"

namespace forebay::model {
namespace {

using Draw = kernels::RoutingSource::Draw;

// Rounds what is expected of each expert so that the sum stands: one draw shifts all borders.
// `borders`: where the experts' shares of `total` end before it.
void Round(double shift, const std::vector<double>& borders, int64_t total,
           std::span<int32_t> counts) {
  int64_t before = 0;
  for (size_t expert = 0; expert < counts.size(); ++expert) {
    const auto border =
        expert + 1 < counts.size()
            ? std::min(total, static_cast<int64_t>(shift + borders[expert]))  // none is negative
            : total;
    counts[expert] = static_cast<int32_t>(border - before);
    before = border;
  }
}

// A law says what each expert can expect; this rounds it, otherwise in each step of each rank.
class Law : public Routing {
 public:
  explicit Law(uint64_t seed) : seed_(seed), kept_(kKept) {}

  void Count(const Draw& draw, std::span<int32_t> counts) const override {
    const int64_t total = draw.rows * draw.experts_per_token;
    const uint64_t key = base::Combine64(base::Combine64(Key(draw.layer), draw.rank),
                                         draw.step + static_cast<uint64_t>(draw.first_row));
    const std::lock_guard lock(mutex_);
    Round(base::ToUnitDouble(key), Borders(draw, counts.size()), total, counts);
  }

 protected:
  uint64_t Key(int64_t layer) const { return base::Combine64(seed_, static_cast<uint64_t>(layer)); }
  // Rows of each expert: the sum is that of all slots, and none has more than there are rows. By
  // the layer, the number of rows and how many experts each has alone.
  virtual void Expect(const Draw& draw, std::vector<double>* expected) const = 0;

 private:
  // What is expected is the same in all steps of all ranks, and dear to reckon: a power an expert.
  struct Kept {
    int64_t layer = -1, rows = 0, experts_per_token = 0;
    std::vector<double> borders;
  };
  // Steps of decoding differ by few rows, and each rank asks for all ranks of all layers: 2 KiB
  // each with 256 experts.
  static constexpr size_t kKept = 1024;

  // REQUIRES the lock, for as long as the result is used.
  const std::vector<double>& Borders(const Draw& draw, size_t experts) const {
    const uint64_t at =
        base::Combine64(static_cast<uint64_t>(draw.layer), static_cast<uint64_t>(draw.rows));
    Kept& kept = kept_[at % kKept];
    if (kept.layer != draw.layer || kept.rows != draw.rows ||
        kept.experts_per_token != draw.experts_per_token || kept.borders.size() != experts) {
      kept = {draw.layer, draw.rows, draw.experts_per_token, std::move(kept.borders)};
      kept.borders.resize(experts);
      Expect(draw, &kept.borders);
      std::partial_sum(kept.borders.begin(), kept.borders.end(), kept.borders.begin());
    }
    return kept.borders;
  }

  const uint64_t seed_;
  mutable std::mutex mutex_;
  mutable std::vector<Kept> kept_;
};

class Balanced final : public Law {
 public:
  using Law::Law;

 private:
  void Expect(const Draw& draw, std::vector<double>* expected) const override {
    std::ranges::fill(*expected, static_cast<double>(draw.rows * draw.experts_per_token) /
                                     static_cast<double>(expected->size()));
  }
};

class PowerLaw final : public Law {
 public:
  PowerLaw(double exponent, uint64_t seed) : Law(seed), exponent_(exponent) {}

 private:
  void Expect(const Draw& draw, std::vector<double>* expected) const override {
    const auto rows = static_cast<double>(draw.rows);
    const double total = rows * static_cast<double>(draw.experts_per_token);
    const double most = std::max(2.0, .8 * rows), power = 1 - exponent_;
    double sum = 0;
    for (size_t expert = 0; expert < expected->size(); ++expert) {
      const double u = base::ToUnitDouble(base::Combine64(Key(draw.layer), expert));
      (*expected)[expert] = std::abs(power) < 1e-9
                                ? std::pow(most, u)
                                : std::pow((std::pow(most, power) - 1) * u + 1, 1 / power);
      sum += (*expected)[expert];
    }
    // Who would get more rows than there are gets all, and the others what that leaves.
    double left = total, scale = left / sum;
    std::vector<bool> full(expected->size());
    for (bool again = true; again;) {
      again = false;
      for (size_t expert = 0; expert < expected->size(); ++expert) {
        if (full[expert] || (*expected)[expert] * scale <= rows) continue;
        full[expert] = again = true;
        sum -= (*expected)[expert];
        left -= rows;
      }
      scale = sum > 0 ? left / sum : 0;
    }
    for (size_t expert = 0; expert < expected->size(); ++expert)
      (*expected)[expert] = full[expert] ? rows : (*expected)[expert] * scale;
  }

  const double exponent_;
};

}  // namespace

base::Result<std::shared_ptr<const Routing>> ParseRouting(std::string_view text, uint64_t seed) {
  using Source = std::shared_ptr<const Routing>;
  constexpr std::string_view kPower = "power:";
  if (text == "balanced") return Source(std::make_shared<Balanced>(seed));
  if (text.starts_with(kPower)) {
    const std::string_view digits = text.substr(kPower.size());
    double exponent = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    if (error == std::errc() && end == digits.data() + digits.size() && exponent > 0 &&
        exponent <= 10)
      return Source(std::make_shared<PowerLaw>(exponent, seed));
  }
  const std::string path(text);
  if (!std::filesystem::is_regular_file(path)) {
    return base::Status(
        kRoutingInvalid,
        fmt::format("--routing {}: expected balanced, power:A with 0 < A <= 10, or a file that "
                    "--record-routing wrote",
                    text));
  }
  FB_ASSIGN_OR_RETURN(auto recorded, ReadRouting(path));
  return Source(std::move(recorded));
}

std::unique_ptr<kernels::RoutingCounters> RoutingCountersOf(const ModelConfig& config) {
  if (!config.moe || std::ranges::count(config.moe->has_experts, 1) == 0) return nullptr;
  return std::make_unique<kernels::RoutingCounters>(config.moe->num_experts);
}

}  // namespace forebay::model
