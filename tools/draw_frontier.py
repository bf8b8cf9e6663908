#!/usr/bin/env python3
"""Draws docs/frontier.svg, DWDP's and DEP's output rate of a GPU by a user's, from the last table of bench/results/dwdp.md.

usage: draw_frontier.py [--check]    with --check: exit 1 unless the file is what would be drawn
"""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "bench", "results", "dwdp.md")
PICTURE = os.path.join(ROOT, "docs", "frontier.svg")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 56, 16, 34, 44
STYLE = """text { font: 12px system-ui, sans-serif; fill: #24292f } .rule { stroke: #d0d7de }
.dep { fill: #9aa4b0; stroke: #9aa4b0 } .dwdp { fill: #1a7f64; stroke: #1a7f64 } path { fill: none !important; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) { text { fill: #d0d7de } .rule { stroke: #30363d } }"""
# Columns of the table: a user's rate and a GPU's.
SERIES = {"dep": ("DEP", 6, 7), "dwdp": ("DWDP", 9, 10)}


def read_points():
    """{series: [(tokens/s of a user, output tokens/s of a GPU)]}"""
    points, inside = {name: [] for name in SERIES}, False
    for line in open(RESULTS, encoding="utf-8"):
        inside = line.startswith("| tokens/s and user |") or (inside and line.startswith("|"))
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not inside or not cells[0].isdigit() or not cells[1]:
            continue
        for name, (_, user, gpu) in SERIES.items():
            points[name].append((float(cells[user]), float(cells[gpu])))
    return points


def draw(points):
    every = [point for series in points.values() for point in series]
    most_user = 20 * (int(max(user for user, _ in every) / 20) + 1)
    most_gpu = 100 * (int(max(gpu for _, gpu in every) / 100) + 1)
    x = lambda user: LEFT + user / most_user * (WIDTH - LEFT - RIGHT)
    y = lambda gpu: HEIGHT - BOTTOM - gpu / most_gpu * (HEIGHT - TOP - BOTTOM)
    shapes = []
    for user in range(0, most_user + 1, 20):
        shapes.append(f'<line class="rule" x1="{x(user):.0f}" x2="{x(user):.0f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        shapes.append(f'<text x="{x(user):.0f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{user}</text>')
    for gpu in range(0, most_gpu + 1, 100):
        shapes.append(f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(gpu):.0f}" y2="{y(gpu):.0f}"/>')
        shapes.append(f'<text x="{LEFT - 6}" y="{y(gpu) + 4:.0f}" text-anchor="end">{gpu}</text>')
    for i, (name, (label, _, _)) in enumerate(SERIES.items()):
        series = sorted(points[name])
        path = "L".join(f"{x(user):.1f} {y(gpu):.1f}" for user, gpu in series)
        shapes.append(f'<path class="{name}" d="M{path}"/>')
        shapes += [f'<circle class="{name}" cx="{x(user):.1f}" cy="{y(gpu):.1f}" r="3.5"/>' for user, gpu in series]
        shapes.append(f'<circle class="{name}" cx="{LEFT + 8 + 90 * i}" cy="16" r="4"/>')
        shapes.append(f'<text x="{LEFT + 18 + 90 * i}" y="20">{label}</text>')
    shapes.append(f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">tokens a second and user</text>')
    shapes.append(f'<text x="{WIDTH - RIGHT}" y="20" text-anchor="end">output tokens a second and GPU, context and generation</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">\n'
            f"<title>DeepSeek-R1 on simulated GB200s: context by DEP and by DWDP before one generation group</title>\n<style>{STYLE}</style>\n"
            + "\n".join(shapes) + "\n</svg>\n")


def main():
    picture = draw(read_points())
    if "--check" not in sys.argv[1:]:
        open(PICTURE, "w", encoding="utf-8").write(picture)
    elif not os.path.exists(PICTURE) or open(PICTURE, encoding="utf-8").read() != picture:
        print("docs/frontier.svg is not what tools/draw_frontier.py draws: run it")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
