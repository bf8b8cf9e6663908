#include "base/file_kind.h"

#include <fmt/core.h>
#include <strings.h>

#include <algorithm>

namespace forebay::base {
namespace {

struct Kind {
  std::string_view begin;
  const char* is;
};

constexpr char kGzip[] = "\x1F\x8B", kZstd[] = "\x28\xB5\x2F\xFD";
constexpr Kind kKinds[] = {
    {"version https://git-lfs.github.com/spec/",
     "is a Git LFS pointer, not the file itself; fetch the file with `git lfs pull`"},
    {kGzip, "is compressed (gzip); unpack it first"},
    {kZstd, "is compressed (zstd); unpack it first"},
    {"\xFD"
     "7zXZ",
     "is compressed (xz); unpack it first"},
    {"BZh", "is compressed (bzip2); unpack it first"},
    {"PK\x03\x04", "is a zip archive (PyTorch's pickles are too); expected the file itself"},
    {"PAR1", "is a Parquet table: forebay.run_table (Python) reads tables"},
    {"ARROW1", "is an Arrow table: forebay.run_table (Python) reads tables"},
    {"\xFF\xFE", "is UTF-16; expected UTF-8 (iconv -f UTF-16 -t UTF-8)"},
    {"\xFE\xFF", "is UTF-16; expected UTF-8 (iconv -f UTF-16 -t UTF-8)"},
};

// HTML comes where a download was answered by a page: of an error, or of a login.
bool IsHtml(std::string_view begin) {
  const size_t text = begin.find_first_not_of(" \t\r\n");
  if (text == std::string_view::npos) return false;
  begin.remove_prefix(text);
  return std::ranges::any_of(std::initializer_list<std::string_view>{"<!doctype html", "<html"},
                             [&](std::string_view tag) {
                               return begin.size() >= tag.size() &&
                                      ::strncasecmp(begin.data(), tag.data(), tag.size()) == 0;
                             });
}

// Text without a mark in front whose every other byte is zero.
bool IsUnmarkedUtf16(std::string_view begin) {
  constexpr size_t kPairs = 4;
  if (begin.size() < 2 * kPairs) return false;
  for (const size_t zero : {0, 1}) {
    bool all = true;
    for (size_t i = 0; i < 2 * kPairs; ++i) all &= (begin[i] == '\0') == (i % 2 == zero);
    if (all) return true;
  }
  return false;
}

}  // namespace

std::optional<std::string> ForeignKind(std::string_view begin) {
  for (const Kind& kind : kKinds) {
    if (begin.starts_with(kind.begin)) return kind.is;
  }
  if (IsHtml(begin)) return "is an HTML page, as a failed download leaves it; download it again";
  if (IsUnmarkedUtf16(begin)) return "is UTF-16; expected UTF-8 (iconv -f UTF-16 -t UTF-8)";
  return std::nullopt;
}

Status CheckKind(const std::string& path, std::string_view begin) {
  const std::optional<std::string> kind = ForeignKind(begin);
  return kind ? Status(kFileKindWrong, fmt::format("{}: {}", path, *kind)) : Status::Ok();
}

}  // namespace forebay::base
