// What papers (and our own table of models) say, as data: a table a paper, in its folder's
// claims.cc. Nothing that a claim prints is an input of the scenario that computes our figure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace forebay::repro {

class Lab;

enum class Kind : uint8_t {
  kExact,   // every printed digit
  kBand,    // within a part of the claimed figure
  kPoints,  // within so much of the claimed figure
  kOrder,   // above or below a bound: "> 1"
};

// A part of the account of a figure: "step ms".
struct Term {
  std::string name;
  double value = 0;
};
using Account = std::vector<Term>;

// Appends `terms`; the first is named after what all of them are of: "DP: tp".
inline void Append(std::string_view of, Account terms, Account* account) {
  if (!terms.empty()) terms.front().name.insert(0, of);
  for (Term& term : terms) account->push_back(std::move(term));
}

// Our figure for one of a claim's values.
struct Finding {
  double calibrated = 0;
  // The roofline's figure, without measured kernels, where prices matter.
  std::optional<double> uncalibrated;
  Account account;         // what the figure is made of
  bool shortened = false;  // a quick run's: of less than the claim asks for
  // Not empty: the scenario does not come to what the claim is about, and there is no figure; what
  // it comes to.
  std::string not_reached = {};
  // Appends what takes runs of its own: called where the account is shown, while the claim lasts.
  std::function<base::Status(Account*)> more = {};
};
using FindingOr = base::Result<Finding>;

// Why a source cannot be right about a value, and what follows from its own other figures, or from
// arithmetic. Ours has to agree with that, or the value counts as not reproduced.
struct Contradiction {
  std::string_view why = "";
  std::string_view corrected = "";  // a number: where the claim is of an order, what is ordered
};

struct ClaimedValue {
  std::string label;         // "B = 64", "FFN, %"; for readers alone
  std::string_view printed;  // "76.8", "3.43e-15", of an order "> 1"
  Contradiction contradiction = {};
  // Computes our figure. What several rows run is in the lab.
  std::function<FindingOr(Lab&)> measure = {};
};

struct Claim {
  std::string_view id;       // "SI4.DP8"
  std::string_view source;   // "SiDP, Figure 1(b)"
  std::string_view what;     // one line, with the unit
  std::string_view assumed;  // what the source does not say and the scenario had to choose
  Kind kind;
  double band = 0;  // kBand: 0.2 is 20 %; kPoints: in the unit of the values
  std::vector<ClaimedValue> values = {};
  // The account of every value is shown, not only of those that are not reproduced.
  bool account_all = false;
};

// Computes the figure that `key` stands for. `claimed` is what the paper prints; it may only be
// stated in the account.
template <typename Key>
using Scenario = FindingOr (*)(const Key& key, double claimed, Lab& lab);

// Sources of rows that are no paper's claims: a comparison of ours, or a bound that ours must keep.
inline constexpr std::string_view kBeyondThePaper = "beyond the paper";
inline constexpr std::string_view kBoundOfOurs = "a bound of ours";
inline constexpr std::string_view kRooflineOfOurs = "a roofline of ours";
inline bool IsOwn(const Claim& claim) {
  return claim.source == kBeyondThePaper || claim.source == kBoundOfOurs ||
         claim.source == kRooflineOfOurs;
}

// One value of a row of a paper's table.
template <typename Key>
struct Keyed {
  std::string label;
  std::string_view printed;
  Key key = {};
  Contradiction contradiction = {};
};

// The number that a claim prints: of "> 1" its bound.
double PrintedNumber(std::string_view printed);

// A row of a paper's table: the claim, its scenario, and a key for each of its values.
template <typename Key>
Claim Row(Claim claim, Scenario<Key> scenario, std::vector<Keyed<Key>> values) {
  for (Keyed<Key>& value : values) {
    claim.values.push_back(
        {std::move(value.label), value.printed, value.contradiction,
         [scenario, key = std::move(value.key), claimed = PrintedNumber(value.printed)](Lab& lab) {
           return scenario(key, claimed, lab);
         }});
  }
  return claim;
}

// A paper's table, and the name by which all its rows are asked for.
struct Paper {
  std::string_view name;
  std::vector<Claim> claims;
};

// All papers, in the order in which they are shown. Ids of claims are unique.
std::span<const Paper> Papers();

std::vector<Claim> ModelClaims();
std::vector<Claim> SidpClaims();
std::vector<Claim> DwdpClaims();
std::vector<Claim> VasukiClaims();
std::vector<Claim> ShiftClaims();

}  // namespace forebay::repro
