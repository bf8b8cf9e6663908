#!/usr/bin/env python3
"""Makes src/text/unicode/reference_ranges.h: asks PyPI tokenizers 0.23.3 about every code point.

    pip install tokenizers==0.23.3 && tools/make_reference_ranges.py && clang-format -i src/text/unicode/reference_ranges.h
"""
import pathlib

from tokenizers import normalizers, pre_tokenizers

HEAD = '''// Sets of characters as tokenizers 0.23.3 has them, whose tables are of Unicode 8 and 9; found by
// trying every code point (tools/make_reference_ranges.py).
#pragma once

#include <algorithm>
#include <iterator>

namespace forebay::text {

struct CharRange {
  char32_t first, last;
};

template <size_t kCount>
bool IsInRanges(const CharRange (&ranges)[kCount], char32_t c) {
  const auto it = std::upper_bound(std::begin(ranges), std::end(ranges), c,
                                   [](char32_t x, const CharRange& range) { return x < range.first; });
  return it != std::begin(ranges) && c <= std::prev(it)->last;
}

'''


def ranges(holds):
    found = []
    for c in range(0x110000):
        if 0xd800 <= c < 0xe000 or not holds(chr(c)):
            continue
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def main():
    def bert(**on):
        options = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False,
                       lowercase=False)
        return normalizers.BertNormalizer(**{**options, **on})

    strip, marks, clean = normalizers.StripAccents(), bert(strip_accents=True), bert(clean_text=True)
    split = pre_tokenizers.BertPreTokenizer()
    sets = [
        ('kCombiningMarks', 'What StripAccents drops.',
         lambda c: strip.normalize_str('a' + c) == 'a'),
        ('kNonspacingMarks',
         'What BertNormalizer drops where it strips accents, after decomposition.',
         lambda c: marks.normalize_str('a' + c) == 'a'),
        ('kBertControls', 'What BertNormalizer drops where it cleans.',
         lambda c: clean.normalize_str('a' + c + 'b') == 'ab'),
        ('kBertPunctuation', 'What BertPreTokenizer and Punctuation cut off.',
         lambda c: len(split.pre_tokenize_str('a' + c + 'b')) == 3),
    ]
    text = HEAD
    for name, what, holds in sets:
        items = ', '.join('{0x%x, 0x%x}' % tuple(pair) for pair in ranges(holds))
        text += '// %s\ninline constexpr CharRange %s[] = {\n%s};\n' % (what, name, items)
    path = pathlib.Path(__file__).resolve().parent.parent / 'src/text/unicode/reference_ranges.h'
    path.write_text(text + '\n}  // namespace forebay::text\n')


if __name__ == '__main__':
    main()
