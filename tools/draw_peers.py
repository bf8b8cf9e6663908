#!/usr/bin/env python3
"""Draws docs/peers.svg, throughput beside other engines, from bench/results/peers-avx512bf16.md.

usage: draw_peers.py [--check]    with --check: exit 1 unless the file is what would be drawn
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "bench", "results", "peers-avx512bf16.md")
PICTURE = os.path.join(ROOT, "docs", "peers.svg")
PEERS = ["vLLM", "OpenVINO", "llama.cpp"]
ROWS = {
    "prefill of 512": "prompts of 512 tokens",
    "one request, 1 + 128": "one request, 128 tokens out",
    "128 requests of 128 + 128": "128 requests of 128 + 128 tokens",
    "ShareGPT lengths / 8, first 100": "100 requests of ShareGPT's lengths, an eighth of each",
}
LEFT, SCALE, BAR, GAP, WIDTH = 96, 420, 15, 26, 760
STYLE = """text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600 } .note { font-size: 11px } .us { fill: #1a7f64 } .peer { fill: #9aa4b0 }
@media (prefers-color-scheme: dark) { text { fill: #d0d7de } .us { fill: #3fb68b } .peer { fill: #6e7781 } }"""


def read_pairs():
    """{row: {peer: (our tok/s, the peer's)}}; the last of the tables that has a pair counts, since it is the newest."""
    pairs = {row: {} for row in ROWS}
    for line in open(RESULTS, encoding="utf-8"):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) < 6 or cells[0] not in pairs or cells[1] not in PEERS:
            continue
        rates = [re.match(r"([\d.]+)(?: \(.*\))? tok/s$", cell) for cell in cells[3:5]]
        if all(rates):
            pairs[cells[0]][cells[1]] = tuple(float(rate.group(1)) for rate in rates)
    return pairs


def draw(pairs):
    shapes, y = [], 24

    def bar(label, kind, share, note):
        nonlocal y
        shapes.append(f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{label}</text>')
        shapes.append(f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{share * SCALE:.0f}" height="{BAR}" rx="2"/>')
        shapes.append(f'<text class="note" x="{LEFT + share * SCALE + 8:.0f}" y="{y + 12}">{note}</text>')
        y += BAR + 4

    for row, title in ROWS.items():
        shapes.append(f'<text class="title" x="0" y="{y}">{title}</text>')
        y += 10
        bar("Forebay", "us", 1, "")
        for peer in PEERS:
            if peer in pairs[row]:
                ours, theirs = pairs[row][peer]
                bar(peer, "peer", theirs / ours, f"{theirs / ours:.2f}: {theirs:.0f} tok/s where Forebay has {ours:.0f}")
        y += GAP
    shapes.append(f'<text class="note" x="{LEFT}" y="{y - 6}">tokens a second as a share of Forebay\'s, medians of pairs; a model of '
                  "Qwen3-0.6B's shape in bfloat16, two cores of an AMD EPYC (Zen 5)</text>")
    height = y + 4
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">\n'
            f"<title>Throughput of other engines beside Forebay's, measured in pairs</title>\n<style>{STYLE}</style>\n"
            + "\n".join(shapes) + "\n</svg>\n")


def main():
    picture = draw(read_pairs())
    if "--check" not in sys.argv[1:]:
        open(PICTURE, "w", encoding="utf-8").write(picture)
    elif not os.path.exists(PICTURE) or open(PICTURE, encoding="utf-8").read() != picture:
        print("docs/peers.svg is not what tools/draw_peers.py draws: run it")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
