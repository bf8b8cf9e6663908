#include "repro/row_format.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/json_writer.h"

namespace forebay::repro {
namespace {

constexpr std::string_view kKindNames[] = {"exact", "band", "points", "order"};

std::string KindText(const Claim& claim) {
  if (claim.kind == Kind::kPoints) return fmt::format("within {:g}", claim.band);
  if (claim.kind != Kind::kBand) return std::string(kKindNames[static_cast<int>(claim.kind)]);
  return fmt::format("band {:.0f} %", 100 * claim.band);
}

// Beside an exact claim as many digits as it prints; else one more, so that the difference shows.
std::string Ours(const Claim& claim, const ClaimedValue& value, double ours) {
  const bool same = AgreesAtPrintedDigits(ours, value.printed) && claim.kind == Kind::kExact;
  return FormatLike(ours, value.printed, same ? 0 : 1);
}

// Four digits, of counts all.
std::string TermText(const Term& term) {
  return term.value >= 1000 ? fmt::format("{} {:.0f}", term.name, term.value)
                            : fmt::format("{} {:.4g}", term.name, term.value);
}

std::string AccountText(const RowResult& row, size_t i) {
  std::string text;
  for (const Term& term : row.findings[i].account)
    text += (text.empty() ? "" : ", ") + TermText(term);
  return fmt::format("  account of {}: {}\n", row.claim.values[i].label,
                     text.empty() ? "none" : text);
}

void WriteValue(const RowResult& row, size_t i, base::JsonWriter* writer) {
  const ClaimedValue& value = row.claim.values[i];
  const Finding& finding = row.findings[i];
  writer->BeginObject().Key("label").String(value.label).Key("claimed").String(value.printed);
  const bool reached = finding.not_reached.empty();
  writer->Key("calibrated");
  reached ? writer->Double(finding.calibrated) : writer->Null();
  writer->Key("uncalibrated");
  finding.uncalibrated ? writer->Double(*finding.uncalibrated) : writer->Null();
  writer->Key("verdict").String(Name(row.verdicts[i]));
  if (!reached) writer->Key("not_reached").String(finding.not_reached);
  if (!value.contradiction.why.empty()) {
    writer->Key("contradiction").String(value.contradiction.why);
    writer->Key("corrected").String(value.contradiction.corrected);
  }
  writer->Key("account").BeginObject();
  for (const Term& term : finding.account) writer->Key(term.name).Double(term.value);
  writer->EndObject().EndObject();
}

}  // namespace

std::string RowText(const RowResult& row) {
  const Claim& claim = row.claim;
  std::string text = fmt::format("{}  {} ({}; {}): {}\n", claim.id, claim.what, claim.source,
                                 KindText(claim), Name(row.verdict));
  if (!row.shortened.empty()) text += fmt::format("  shortened: {}\n", row.shortened);
  text += fmt::format("  {:<32}{:>10}{:>12}{:>14}  {}\n", "", "claimed", "ours", "uncalibrated",
                      "verdict");
  for (size_t i = 0; i < claim.values.size(); ++i) {
    const ClaimedValue& value = claim.values[i];
    const Finding& finding = row.findings[i];
    text += fmt::format("  {:<32}{:>10}{:>12}{:>14}  {}\n", value.label, value.printed,
                        finding.not_reached.empty() ? Ours(claim, value, finding.calibrated) : "-",
                        finding.uncalibrated ? Ours(claim, value, *finding.uncalibrated) : "-",
                        Name(row.verdicts[i]));
  }
  if (!claim.assumed.empty()) text += fmt::format("  assumed: {}\n", claim.assumed);
  for (size_t i = 0; i < claim.values.size(); ++i) {
    const ClaimedValue& value = claim.values[i];
    if (!value.contradiction.why.empty() && row.verdicts[i] >= Verdict::kContradiction) {
      text += fmt::format("  contradiction in {}: {}; corrected {}\n", value.label,
                          value.contradiction.why, value.contradiction.corrected);
    }
    if (!row.findings[i].not_reached.empty())
      text += fmt::format("  not reached in {}: {}\n", value.label, row.findings[i].not_reached);
    if (row.verdicts[i] == Verdict::kNotReproduced || claim.account_all)
      text += AccountText(row, i);
  }
  return text;
}

namespace {

// "2 reproduced, 1 within band": the rows that `take(row)` takes by verdict.
template <typename Take>
std::string CountsText(std::span<const RowResult> rows, Take take) {
  std::string text;
  for (const Verdict verdict :
       {Verdict::kReproduced, Verdict::kWithinBand, Verdict::kContradiction, Verdict::kNotJudged,
        Verdict::kNotReached, Verdict::kNotReproduced}) {
    const auto count = std::ranges::count_if(
        rows, [&](const RowResult& row) { return take(row) && row.verdict == verdict; });
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, Name(verdict));
  }
  return text;
}

}  // namespace

std::string TotalsText(std::span<const RowResult> rows) {
  const auto own =
      std::ranges::count_if(rows, [](const RowResult& row) { return IsOwn(row.claim); });
  const auto published = static_cast<int64_t>(rows.size()) - own;
  std::string text = fmt::format("{} rows: {}", rows.size(),
                                 CountsText(rows, [](const RowResult&) { return true; }));
  if (own == 0 || published == 0) return text;
  return text +
         fmt::format(
             "\nof the {} published claims: {}\nof the {} comparisons and bounds of ours: {}",
             published, CountsText(rows, [](const RowResult& row) { return !IsOwn(row.claim); }),
             own, CountsText(rows, [](const RowResult& row) { return IsOwn(row.claim); }));
}

std::string RowsJson(std::span<const RowResult> rows) {
  std::string json;
  base::JsonWriter writer(&json);
  writer.BeginObject().Key("rows").BeginArray();
  for (const RowResult& row : rows) {
    const Claim& claim = row.claim;
    writer.BeginObject()
        .Key("id")
        .String(claim.id)
        .Key("source")
        .String(claim.source)
        .Key("claim")
        .String(claim.what);
    writer.Key("assumed")
        .String(claim.assumed)
        .Key("kind")
        .String(kKindNames[static_cast<int>(claim.kind)]);
    if (!row.shortened.empty()) writer.Key("shortened").String(row.shortened);
    writer.Key("band")
        .Double(claim.band)
        .Key("verdict")
        .String(Name(row.verdict))
        .Key("values")
        .BeginArray();
    for (size_t i = 0; i < claim.values.size(); ++i) WriteValue(row, i, &writer);
    writer.EndArray().EndObject();
  }
  writer.EndArray().EndObject();
  return json;
}

}  // namespace forebay::repro
