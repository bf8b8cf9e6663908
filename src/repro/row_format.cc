#include "repro/row_format.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/json_writer.h"
#include "report/svg_chart.h"

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
  if (!row.setting.empty()) text += fmt::format("  {}\n", row.setting);
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
  if (!row.setting.empty()) return text;
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

namespace {

std::string CsvField(std::string_view text) {
  if (text.find_first_of(",\"\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c;
    if (c == '"') quoted += '"';
  }
  return quoted + '"';
}

constexpr double kBarLeft = 260, kBarWidth = 420, kBarHeight = 11, kTextRise = 9;  // pixels

}  // namespace

std::string RowsCsv(std::span<const RowResult> rows) {
  std::string csv = "row,source,claim,value,claimed,ours,uncalibrated,verdict\n";
  const auto number = [](double value) { return fmt::format("{}", value); };
  for (const RowResult& row : rows) {
    for (size_t i = 0; i < row.findings.size(); ++i) {
      const ClaimedValue& value = row.claim.values[i];
      const Finding& finding = row.findings[i];
      csv += fmt::format("{},{},{},{},{},{},{},{}\n", row.claim.id, CsvField(row.claim.source),
                         CsvField(row.claim.what), CsvField(value.label), CsvField(value.printed),
                         finding.not_reached.empty() ? number(finding.calibrated) : "",
                         finding.uncalibrated ? number(*finding.uncalibrated) : "",
                         Name(row.verdicts[i]));
    }
  }
  return csv;
}

std::string RowsSvg(std::span<const RowResult> rows) {
  std::string drawn;
  double y = 10;
  const auto text = [&](double x, std::string_view what, std::string_view style) {
    drawn += fmt::format("<text x=\"{:g}\" y=\"{:g}\"{}>{}</text>\n", x, y + kTextRise, style,
                         report::EscapeHtml(what));
  };
  for (const RowResult& row : rows) {
    text(10, fmt::format("{}: {} ({})", row.claim.id, row.claim.what, row.claim.source),
         " font-weight=\"bold\"");
    y += 18;
    double most = 0;
    for (size_t i = 0; i < row.findings.size(); ++i) {
      most = std::max({most, std::abs(PrintedNumber(row.claim.values[i].printed)),
                       std::abs(row.findings[i].calibrated)});
    }
    for (size_t i = 0; i < row.findings.size(); ++i) {
      const ClaimedValue& value = row.claim.values[i];
      const Finding& finding = row.findings[i];
      text(10, value.label, "");
      const auto bar = [&](double length, std::string_view colour, std::string_view shown) {
        drawn += fmt::format(
            "<rect x=\"{:g}\" y=\"{:g}\" width=\"{:.1f}\" height=\"{:g}\" fill=\"{}\"/>\n",
            kBarLeft, y, most > 0 ? kBarWidth * std::abs(length) / most : 0, kBarHeight - 1,
            colour);
        text(kBarLeft + kBarWidth + 8, shown, "");
        y += kBarHeight;
      };
      bar(PrintedNumber(value.printed), "#9aa3ad", fmt::format("claimed {}", value.printed));
      if (finding.not_reached.empty()) {
        bar(finding.calibrated, "#2f6fb3",
            fmt::format("ours {}", Ours(row.claim, value, finding.calibrated)));
      } else {
        bar(0, "#2f6fb3", "not reached");
      }
      y += 6;
    }
    y += 10;
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"{0:g}\" viewBox=\"0 0 860 "
      "{0:g}\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"860\" height=\"{0:g}\" "
      "fill=\"#fff\"/>\n{1}</svg>\n",
      y, drawn);
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
