#!/usr/bin/env python3
"""Writes src/text/unicode/unicode_tables.h: general categories of Unicode 16 and full case mapping.

  python3 -m venv v && v/bin/pip install unicodedata2==16.0.0 && v/bin/python tools/make_unicode_tables.py

Categories come from unicodedata2. Case mapping comes from this Python's str methods (its own, older Unicode); the
letters that came later are paired by their names (X CAPITAL LETTER Y, X SMALL LETTER Y), so any Python from 3.11 on
writes the same file.
"""
import pathlib
import unicodedata

import unicodedata2

assert unicodedata2.unidata_version == "16.0.0", unicodedata2.unidata_version
LAST = 0x10FFFF
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn").split()
CATEGORY = [unicodedata2.category(chr(c)) for c in range(LAST + 1)]


def later_letters():
    """Code points with a case that this Python does not know -> their partner."""
    partner = {}
    for c in range(LAST + 1):
        if CATEGORY[c] not in ("Lu", "Ll") or unicodedata.category(chr(c)) != "Cn":
            continue
        name = unicodedata2.name(chr(c))
        words = (" CAPITAL ", " SMALL ") if CATEGORY[c] == "Lu" else (" SMALL ", " CAPITAL ")
        try:
            other = ord(unicodedata2.lookup(name.replace(*words)))
        except KeyError:
            continue
        if other != c:
            partner[c], partner[other] = other, c
    return partner


LATER = later_letters()


def mapped(c, method):
    if c in LATER:
        wanted = "Ll" if method == "lower" else "Lu"
        return [LATER[c]] if CATEGORY[c] != wanted else [c]
    if 0xD800 <= c <= 0xDFFF:
        return [c]
    return [ord(x) for x in getattr(chr(c), method)()]


def is_new(c):
    return CATEGORY[c] != "Cn" and unicodedata.category(chr(c)) == "Cn"


def is_cased(c):
    if is_new(c):
        return CATEGORY[c] in ("Lu", "Ll", "Lt")
    return (chr(c) + "a").title().endswith("a")


def is_case_ignorable(c):
    if is_new(c):
        return CATEGORY[c] in ("Mn", "Me", "Cf", "Lm", "Sk")
    final = "\u03c2"
    return ("a" + chr(c) + "\u03a3").lower().endswith(final) and not (chr(c) + "\u03a3").lower().endswith(final)


def ranges(predicate):
    out = []
    for c in range(LAST + 1):
        if predicate(c):
            if out and out[-1][1] == c - 1:
                out[-1][1] = c
            else:
                out.append([c, c])
    return out


def case_runs(pairs):
    """Sorted (from, to) -> [first, last, stride, delta] with equal deltas at a stride of 1 or 2."""
    runs = []
    for c, to in pairs:
        delta = to - c
        if runs and runs[-1][3] == delta:
            first, last, stride, _ = runs[-1]
            gap = c - last
            if gap in (1, 2) and (first == last or gap == stride):
                runs[-1][1:3] = [c, gap]
                continue
        runs.append([c, c, 1, delta])
    return runs


def emit(out, declaration, entries):
    out.append(declaration + " = {")
    line = "   "
    for entry in entries:
        if len(line) + len(entry) + 2 > 112:
            out.append(line)
            line = "   "
        line += " " + entry + ","
    out += [line, "};", ""]


def main():
    out = [
        "// Written by tools/make_unicode_tables.py from Unicode 16.0.0; unicode.cc alone includes it.",
        "#pragma once", "", "#include <cstdint>", "", "namespace forebay::text::tables {", "",
        "// Runs of equal general category: first code point << 5 | Category (unicode.h); a run ends where the next begins.",
    ]
    runs = [c << 5 | CATEGORIES.index(CATEGORY[c]) for c in range(LAST + 1) if c == 0 or CATEGORY[c] != CATEGORY[c - 1]]
    emit(out, "inline constexpr uint32_t kCategoryRuns[]", [f"0x{r:x}" for r in runs])

    out += ["// Code points first, first + stride, ..., last map to themselves plus delta.",
            "struct CaseRun {", "  uint32_t first, last, stride;", "  int32_t delta;", "};", "",
            "// Mappings to more than one code point; unused places are 0.",
            "struct CaseExpansion {", "  uint32_t from, to[3];", "};", ""]
    kinds = {"upper": {}, "lower": {}, "title": {}}
    for c in range(LAST + 1):
        upper = mapped(c, "upper")
        for kind, table in kinds.items():
            to = upper if kind == "upper" else mapped(c, kind)
            if to != (upper if kind == "title" else [c]):
                table[c] = to
    for kind, table in kinds.items():
        if kind == "title":
            out += ["// Only where title case differs from upper case.", ""]
        simple = case_runs([(c, to[0]) for c, to in table.items() if len(to) == 1])
        expanded = [(c, (to + [0, 0])[:3]) for c, to in table.items() if len(to) > 1]
        name = kind.capitalize()
        emit(out, f"inline constexpr CaseRun k{name}Runs[]",
             ["{0x%x, 0x%x, %d, %d}" % tuple(r) for r in simple])
        emit(out, f"inline constexpr CaseExpansion k{name}Expansions[]",
             ["{0x%x, {0x%x, 0x%x, 0x%x}}" % (c, *to) for c, to in expanded])

    out += ["struct CodePointRange {", "  uint32_t first, last;", "};", ""]
    for name, predicate in (("Cased", is_cased), ("CaseIgnorable", is_case_ignorable)):
        emit(out, f"inline constexpr CodePointRange k{name}[]", ["{0x%x, 0x%x}" % tuple(r) for r in ranges(predicate)])
    out += ["}  // namespace forebay::text::tables", ""]
    path = pathlib.Path(__file__).resolve().parent.parent / "src/text/unicode/unicode_tables.h"
    path.write_text("\n".join(out), encoding="ascii")


main()
