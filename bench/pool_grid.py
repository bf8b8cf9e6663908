#!/usr/bin/env python3
"""Whole simulated jobs: what pool=auto chooses against what could have been forced.

  bench/pool_grid.py build/release/forebay [--cell DEVICE,MODEL,REQUESTS,PROMPT+OUTPUT,LAYOUT]... [--least PART]
  bench/pool_grid.py build/release/forebay --runs FILE [--cells PATTERN] [--page bench/results/pool_auto.md] [--minutes M] [--again]

A cell is a job on eight simulated devices. Beside `auto` run none, a quarter, half, three quarters and all layers pooled, each pulling
alone and with --mode auto. Prints a table and the worst part of the best forced setting that `auto` reaches; with --least fails where
that is lower. Without --cell all of the grid is run, the cheap cells first. --runs keeps each run as a JSON line, so that the next call
goes on where this one ended (--again: but for `auto`, which a change of the forecast may change); --page writes what is there as a page
and the plot beside it; --minutes: no run is begun after so many.
"""
import argparse
import fnmatch
import itertools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time

LAYERS = {"Qwen3-32B": 64, "Llama-3.1-70B": 80}
DEVICES = ("h20", "h200", "b200")
REFUSED = ("memory_too_small", "all_lines_failed", "layout_heads", "layout_leaves", "layout_layers", "layout_experts", "mode_not_taken")
SIGMA = 0.5  # outputs are lognormal around their mean
HEAD = ("| devices, model, requests, lengths, layout | auto: layers | s | expected s | no layer s | best forced: layers, mode | s | auto's part |\n"
        "|---|---|---|---|---|---|---|---|")
PAGE = """# pool=auto on whole jobs

    bench/pool_grid.py build/release/forebay --runs runs.jsonl --page bench/results/pool_auto.md

Whole simulated jobs on eight devices, in virtual time: requests of prompt + output tokens, outputs lognormal around their mean (sigma .5). Beside `auto` none, a
quarter, half, three quarters and all layers were forced, each pulling alone and with `--mode auto`. `expected` is what the forecast said before the run. The last
column is the best forced job's seconds over those of `auto`; above 1, `auto` is better than all that were forced.

![auto's part of the best forced setting, cell by cell](pool_auto.svg)

"""
LEFT, SCALE, BAR, LEAST = 430, 1200, 9, 0.9  # of the plot: pixels a whole part, from LEAST on
STYLE = """text { font: 11px system-ui, sans-serif; fill: #24292f } .us { fill: #1a7f64 } .low { fill: #c2410c } line { stroke: #9aa4b0 }
@media (prefers-color-scheme: dark) { text { fill: #d0d7de } .us { fill: #3fb68b } .low { fill: #fb923c } }"""


def grid():
    """Cheap cells first."""
    striped = "dp=8 weights=striped"
    for requests, lengths in itertools.product((16, 100), ("1024+256", "2048+2048")):
        for device, model in itertools.product(DEVICES, LAYERS):
            yield f"{device},{model},{requests},{lengths},{striped}"
    for layout in ("dp=4 tp=2 weights=striped", "dp=8 weights=by_layer"):
        for device, model in itertools.product(DEVICES, LAYERS):
            yield f"{device},{model},100,1024+256,{layout}"
    for lengths in ("1024+256", "2048+2048"):
        for device, model in itertools.product(DEVICES, LAYERS):
            yield f"{device},{model},400,{lengths},{striped}"
    yield f"h200,Qwen3-32B,3200,1024+256,{striped}"
    yield f"b200,Llama-3.1-70B,3200,1024+256,{striped}"


def simulate(forebay, cell, layout, mode, sigma=SIGMA, flags=()):
    """The job's summary and what was said of it; None: the model does not fit, or cannot be cut so."""
    device, model, requests, lengths = cell.split(",")[:4]
    prompt, output = map(int, lengths.split("+"))
    location = math.log(output) - sigma ** 2 / 2
    with tempfile.TemporaryDirectory() as folder:
        summary = os.path.join(folder, "summary.json")
        done = subprocess.run(
            [forebay, "run", "-m", f"builtin:{model}", "--devices", f"sim:8x{device}", "--layout", layout, "--mode", mode, *flags,
             "--trace", f"synthetic:n={requests},prompt={prompt},output=lognormal({location},{sigma})", "--summary", summary],
            capture_output=True, text=True, check=False)
        if done.returncode != 0:
            if any(f"[{code}]" in done.stderr for code in REFUSED):
                return None
            sys.exit(done.stderr)
        with open(summary, encoding="utf-8") as file:
            return json.load(file), done.stderr


def run(forebay, cell, pool, mode):
    """The job's seconds, the chosen layers and what was expected; None: the model does not fit."""
    layout = cell.split(",", 4)[4].replace(" ", ",")
    done = simulate(forebay, cell, f"{layout},pool={pool}", mode)
    if done is None:
        return None
    told, log = done
    chosen = re.search(r"pool=auto: (\d+) of", log)
    expected = re.search(r"expected of this job: ([\d.]+) s", log)
    return {"seconds": told["elapsed_time"], "chosen": int(chosen.group(1)) if chosen else pool,
            "expected": float(expected.group(1)) if expected else None}


class Runs:
    """What was run before, and what is run now by `run`, up to a time."""

    def __init__(self, run, forebay, path, minutes, again):
        self.run, self.forebay, self.path, self.end = run, forebay, path, time.monotonic() + 60 * minutes
        self.known = {}
        if path and os.path.exists(path):
            for line in open(path, encoding="utf-8"):
                key, result = json.loads(line)
                self.known[tuple(key)] = result
        if again:
            self.known = {key: result for key, result in self.known.items() if key[1] != "auto"}

    def get(self, cell, *forced):
        key = (cell, *forced)
        if key not in self.known:
            if time.monotonic() > self.end:
                raise TimeoutError
            self.known[key] = self.run(self.forebay, *key)
            if self.path:
                with open(self.path, "a", encoding="utf-8") as file:
                    file.write(json.dumps([key, self.known[key]]) + "\n")
        return self.known[key]


def compare(runs, cell):
    """The cell's line of the table, the part of the best forced setting that `auto` reaches, and that of no layer (None: it does not fit)."""
    layers = LAYERS[cell.split(",")[1]]
    auto = runs.get(cell, "auto", "auto")
    forced = {}
    for part, mode in itertools.product(range(5), ("pull", "auto")):
        if part == 0 and mode == "auto":
            continue  # nothing is pooled
        result = runs.get(cell, layers * part // 4, mode)
        if result:
            forced[layers * part // 4, mode] = result["seconds"]
    if not forced:
        return f"| {cell.replace(',', ', ')} | the model fits with no number of layers | | | | | | |", None, None
    best = min(forced, key=forced.get)
    part, none = forced[best] / auto["seconds"], forced.get((0, "pull"))
    expected = f"{auto['expected']:.1f}" if auto["expected"] else "-"
    line = (f"| {cell.replace(',', ', ')} | {auto['chosen']} | {auto['seconds']:.1f} | {expected} | "
            f"{f'{none:.1f}' if none else 'does not fit'} | {best[0]}, {best[1]} | {forced[best]:.1f} | {part:.3f} |")
    return line, part, none / auto["seconds"] if none else None


def draw(parts, auto):
    """A bar a cell, from LEAST on; the line is where `auto` is as fast as the best that was forced."""
    shapes, y = [], 20
    for cell, part in parts.items():
        length = SCALE * (min(part, LEAST + 0.25) - LEAST)
        shapes.append(f'<text x="{LEFT - 8}" y="{y + 8}" text-anchor="end">{cell.replace(",", ", ")}</text>'
                      f'<rect class="{"us" if part >= 0.98 else "low"}" x="{LEFT}" y="{y}" width="{max(1, length):.0f}" height="{BAR}"/>'
                      f'<text x="{LEFT + max(1, length) + 6:.0f}" y="{y + 8}">{part:.3f}</text>')
        y += BAR + 5
    one = LEFT + SCALE * (1 - LEAST)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {y + 6}" width="800" height="{y + 6}" role="img">\n'
            f"<title>Seconds of the best forced setting over those of {auto}, by cell; bars begin at {LEAST}</title>\n<style>{STYLE}</style>\n"
            f'<line x1="{one:.0f}" x2="{one:.0f}" y1="12" y2="{y}"/><text x="{one:.0f}" y="9" text-anchor="middle">1</text>\n'
            + "\n".join(shapes) + "\n</svg>\n")


def write_page(path, begin, lines, parts, missing, auto, least):
    low = [f"{cell} ({part:.3f})" for cell, part in parts.items() if part < least]
    end = f"\n{len(parts)} cells. `{auto}` reaches {least:.2f} of the best forced setting in {len(parts) - len(low)}"
    end += f"; not in {'; '.join(low)}.\n" if low else ".\n"
    if missing:
        end += f"\nNot run, {len(missing)} cells: {'; '.join(missing)}.\n"
    with open(path, "w", encoding="utf-8") as file:
        file.write(begin + "\n" + "\n".join(lines) + "\n" + end)
    with open(os.path.splitext(path)[0] + ".svg", "w", encoding="utf-8") as file:
        file.write(draw(parts, auto))


def measure(text, run, compare, grid, page, head, auto, wanted):
    """Runs the cells that are asked for and writes what came out; returns the exit code. `wanted`: the part that `auto` should reach."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forebay")
    parser.add_argument("--cell", action="append", help="as the table has it, without blanks behind commas")
    parser.add_argument("--cells", default="*", help="a part of the grid: a pattern, as 'h200,*,16,*'")
    parser.add_argument("--least", type=float, default=0, help="fail where auto reaches a smaller part of the best forced setting")
    parser.add_argument("--runs")
    parser.add_argument("--page")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--again", action="store_true")
    args = parser.parse_args()
    runs = Runs(run, args.forebay, args.runs, args.minutes, args.again)
    print(head, flush=True)
    lines, parts, missing, worst = [], {}, [], 10.0
    for cell in args.cell or fnmatch.filter(grid(), args.cells):
        try:
            line, part, none = compare(runs, cell)
        except TimeoutError:
            missing.append(cell)
            continue
        lines.append(line)
        print(line, flush=True)
        if part is not None:
            parts[cell] = part
            worst = min(worst, part, none or part)
    if args.page:
        write_page(args.page, page + head, lines, parts, missing, auto, wanted)
    print(f"\nworst: {worst:.3f}")
    return 1 if worst < args.least else 0


if __name__ == "__main__":
    sys.exit(measure(__doc__, run, compare, grid, PAGE, HEAD, "pool=auto", 0.98))
