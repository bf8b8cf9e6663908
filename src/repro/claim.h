// What papers (and our own table of models) say, as data: one table, in claims.cc. Nothing here is an input of a scenario.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace forebay::repro {

enum class Kind : uint8_t {
  kExact,  // every printed digit
  kBand,   // within a part of the claimed figure
  kPoints, // within so much of the claimed figure
  kOrder,  // above or below a bound: "> 1"
};

struct ClaimedValue {
  std::string_view label;               // "B = 64", "FFN, %"
  std::string_view printed;             // "76.8", "3.43e-15", of an order "> 1"
  std::string_view contradiction = "";  // why the source cannot be right here
};

struct Claim {
  std::string_view id;       // "SI4.DP8"
  std::string_view source;   // "SiDP, Figure 1(b)"
  std::string_view what;     // one line, with the unit
  std::string_view assumed;  // what the source does not say and the scenario had to choose
  Kind kind;
  double band;               // kBand: 0.2 is 20 %; kPoints: in the unit of the values
  std::vector<ClaimedValue> values;
  bool account_all = false;  // the account of every value is shown, not only of those that are not reproduced
};

// All of them, in the order in which they are shown. Ids are unique.
std::span<const Claim> Claims();

}  // namespace forebay::repro
