#include "repro/scenario.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <string>

namespace forebay::repro {
namespace {

// What precedes the dot of "model.Qwen3-32B".
std::string_view Group(std::string_view id) { return id.substr(0, id.find('.')); }

bool IsLetterOrDigit(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }
char Lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

bool IsSame(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, Lower, Lower);
}

// "SiDP, Figure 1(b)": sidp, figure, 1, b.
std::vector<std::string> WordsOf(std::string_view text) {
  std::vector<std::string> words;
  bool inside = false;
  for (const char c : text) {
    const bool is_in = IsLetterOrDigit(c);
    if (is_in && !inside) words.emplace_back();
    if (is_in) words.back() += Lower(c);
    inside = is_in;
  }
  return words;
}

bool IsOfSource(std::string_view row, std::string_view source) {
  const std::vector<std::string> words = WordsOf(source), wanted = WordsOf(row);
  return wanted.size() > 1 && std::ranges::all_of(wanted, [&](const std::string& word) {
           return std::ranges::count(words, word) > 0;
         });
}

bool Names(std::string_view row, const Paper& paper, const Claim& claim) {
  return IsSame(row, claim.id) || IsSame(row, Group(claim.id)) || IsSame(row, paper.name) ||
         IsOfSource(row, claim.source);
}

// Each group once, in the order of the papers.
std::string KnownRows() {
  std::vector<std::string_view> groups;
  for (const Paper& paper : Papers()) {
    for (const Claim& claim : paper.claims) {
      const std::string_view group = Group(claim.id);
      if (std::ranges::count(groups, group) == 0) groups.push_back(group);
    }
  }
  return fmt::format("{}", fmt::join(groups, ", "));
}

}  // namespace

base::Result<std::vector<const Claim*>> SelectClaims(std::span<const std::string> rows) {
  std::vector<const Claim*> selected;
  std::vector<bool> known(rows.size());
  for (const Paper& paper : Papers()) {
    for (const Claim& claim : paper.claims) {
      bool named = rows.empty();
      for (size_t i = 0; i < rows.size(); ++i) {
        if (!Names(rows[i], paper, claim)) continue;
        named = known[i] = true;
      }
      if (named) selected.push_back(&claim);
    }
  }
  if (const auto unknown = std::ranges::find(known, false); unknown != known.end()) {
    return base::Status(
        kRowUnknown,
        fmt::format(
            "row \"{}\" is unknown; expected one of {}, or what --list shows, as an id or as "
            "words of its source (\"Shift Figure 9\")",
            rows[static_cast<size_t>(unknown - known.begin())], KnownRows()));
  }
  return selected;
}

Claim Reduced(const Claim& claim) {
  Claim reduced = claim;
  if (claim.kind == Kind::kOrder) reduced.values = {claim.values.front()};
  if (claim.kind == Kind::kBand && claim.values.size() > 2)
    reduced.values = {claim.values.front(), claim.values.back()};
  return reduced;
}

base::Result<RowResult> RunRow(const Claim& claim, Lab& lab) {
  RowResult row{.claim = lab.quick() ? Reduced(claim) : claim};
  if (row.claim.values.size() < claim.values.size())
    row.shortened = fmt::format("{} of {} values", row.claim.values.size(), claim.values.size());
  bool less = false;
  lab.TakeSubstituted();
  for (const ClaimedValue& value : row.claim.values) {
    FindingOr finding = value.measure(lab);
    if (!finding.ok()) return finding.status().WithContext(claim.id);
    less = less || finding->shortened;
    if (lab.substitutes()) {
      row.verdicts.push_back(Verdict::kNotJudged);
      row.findings.push_back({.calibrated = finding->calibrated,
                              .uncalibrated = finding->uncalibrated,
                              .not_reached = std::move(finding->not_reached)});
      continue;
    }
    row.verdicts.push_back(finding->shortened ? Verdict::kNotJudged
                           : !finding->not_reached.empty()
                               ? Verdict::kNotReached
                               : Judge(claim, value, finding->calibrated));
    row.verdict = std::max(row.verdict, row.verdicts.back());
    if (finding->more && !lab.quick() &&
        (row.verdicts.back() == Verdict::kNotReproduced || claim.account_all))
      FB_RETURN_IF_ERROR(finding->more(&finding->account).WithContext(claim.id));
    row.findings.push_back(*std::move(finding));
  }
  if (lab.substitutes()) {
    row.reached = lab.TakeSubstituted();
    row.setting = row.reached
                      ? "ours is with --set, the claim is of the paper's setting"
                      : "--set does not reach this row: ours is of the paper's setting, too";
    row.verdict = Verdict::kNotJudged;
  }
  if (less) row.shortened += (row.shortened.empty() ? "" : ", ") + std::string("parts of each");
  if (!row.shortened.empty()) row.verdict = std::max(row.verdict, Verdict::kNotJudged);
  return row;
}

}  // namespace forebay::repro
