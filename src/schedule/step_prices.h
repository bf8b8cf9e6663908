// What a step takes, as far as a policy cares: seconds by rows and by the positions that they see.
// Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace forebay::schedule {

// Rows of a step. A context is a sum over rows of the positions that each sees.
struct StepRows {
  int64_t rows = 0;
  int64_t sampled = 0;  // rows of which a token is drawn
  int64_t decode_context = 0, prompt_context = 0;

  // `count` rows of one choice from position `begin` on, and whether the last one's token is drawn.
  StepRows With(int64_t begin, int64_t count, bool samples) const {
    StepRows sum = *this;
    sum.rows += count;
    sum.sampled += samples ? 1 : 0;
    (count == 1 ? sum.decode_context : sum.prompt_context) +=
        count * begin + count * (count + 1) / 2;
    return sum;
  }
};

// The price of a step of `rows` rows, all of one prompt and from its beginning, of which one is
// drawn.
struct RowPrice {
  int64_t rows = 0;
  double seconds = 0;
};

// What rows cost beside that.
struct RowSlopes {
  double sampled_row = 0;                     // seconds of one more row that is drawn
  double decode_token = 0, prompt_token = 0;  // of one more position of a context
};

class StepPrices {
 public:
  // Each price is of the mode that such a step takes. REQUIRES: at least one, by ascending rows.
  StepPrices(std::vector<RowPrice> prices, const RowSlopes& slopes);

  // Between two numbers of rows in proportion.
  double Seconds(const StepRows& rows) const;
  // The fewest rows of a step that keeps .99 of the rows a second that the best step has.
  int64_t rate_rows() const { return rate_rows_; }

 private:
  std::vector<RowPrice> prices_;
  RowSlopes slopes_;
  int64_t rate_rows_ = 1;
};

// How many times as long as their prices steps take: a mean over the last 16 or so.
class PriceFactor {
 public:
  void Observe(double priced, double measured);
  double value() const { return value_; }

 private:
  double value_ = 1;
  int64_t steps_ = 0;
};

}  // namespace forebay::schedule
