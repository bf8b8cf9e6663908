#!/usr/bin/env python3
"""Whole simulated jobs: what pool=auto chooses against what could have been forced.

  bench/pool_grid.py build/release/forebay [--cell DEVICE,MODEL,REQUESTS,PROMPT+OUTPUT,LAYOUT]... [--least PART]
  bench/pool_grid.py build/release/forebay --runs FILE [--cells PATTERN] [--page bench/results/pool_auto.md] [--minutes M] [--again]

A cell is a job on eight simulated devices. Beside `auto` run none, a quarter, half, three quarters and all layers pooled, each pulling
alone and with --mode auto. Prints a table and the worst part of the best forced setting that `auto` reaches; with --least fails where
that is lower. Without --cell all of the grid is run, the cheap cells first. --runs keeps each run as a JSON line, so that the next call
goes on where this one ended or was killed (--again: but for `auto`, which a change of the forecast may change); --page writes what is
there as a page and the plot beside it, after each cell, and takes the cells that the page has already as they are (--again: runs them
anew); --minutes: no run is begun after so many.
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
REFUSED = ("memory_too_small", "all_lines_failed", "layout_heads", "layout_leaves", "layout_layers", "layout_experts", "layout_pool", "mode_not_taken")
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
DOES_NOT_FIT = "does not fit"
ERROR = 0.03  # of a forecast
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
            with open(path, encoding="utf-8") as file:
                lines = file.readlines()
            for line in lines:
                try:
                    key, result = json.loads(line)
                except ValueError:
                    continue  # it was killed while it wrote
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
                    file.write("\n" * self.is_torn() + json.dumps([key, self.known[key]]) + "\n")
        return self.known[key]

    def is_torn(self):
        """Whether the file's last line lacks its end."""
        with open(self.path, "rb") as file:
            return file.seek(0, os.SEEK_END) > 0 and file.seek(-1, os.SEEK_END) >= 0 and file.read() != b"\n"


def figure(value, otherwise="-"):
    """Of seconds, four digits."""
    return f"{value:.{max(0, 3 - math.floor(math.log10(value)))}f}" if value else otherwise


def compare(runs, cell):
    """The cell's line of the table."""
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
        return f"| {cell.replace(',', ', ')} | {DOES_NOT_FIT} | | | | | | |"
    best = min(forced, key=forced.get)
    return (f"| {cell.replace(',', ', ')} | {auto['chosen']} | {figure(auto['seconds'])} | {figure(auto['expected'])} | "
            f"{figure(forced.get((0, 'pull')), DOES_NOT_FIT)} | {best[0]}, {best[1]} | {figure(forced[best])} | {forced[best] / auto['seconds']:.3f} |")


class Line:
    """What a line of the table says of its cell."""

    def __init__(self, line):
        cells = [cell.strip() for cell in line.strip("|\n").split("|")]
        number = lambda text: float(text) if re.fullmatch(r"[\d.]+", text) else None
        self.cell = re.sub(r", (?=[^ ])", ",", cells[0])
        self.part, seconds = number(cells[-1]), number(cells[2])  # of the best forced setting; None: the model does not fit
        expected, none = number(cells[3]), number(cells[4])
        self.part_of_none = none / seconds if none else None  # None: it does not fit
        self.error = expected / seconds - 1 if expected else None


def lines_of(page):
    """The lines of the table that a page has, by cell."""
    if not page or not os.path.exists(page):
        return {}
    with open(page, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file if re.match(r"\| \w+, [^|]+, \d+, \d+\+\d+", line)]
    return {Line(line).cell: line for line in lines}


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


def verdict(lines, auto, least, none):
    """What the lines come to, a sentence a bar. `none`: what the fourth column is."""
    def bar(text, low, of):
        return f"{text} in {of - len(low)} of {of}" + (f"; not in {'; '.join(low)}." if low else ".")

    run = [line for line in map(Line, lines) if line.part]
    sure, compared = [line for line in run if line.error is not None], [line for line in run if line.part_of_none]
    return " ".join((
        bar(f"`{auto}` reaches {least:.2f} of the best forced setting", [f"{line.cell} ({line.part:.3f})" for line in run if line.part < least], len(run)),
        bar(f"It is no slower than {none}, where that fits,",
            [f"{line.cell} ({line.part_of_none:.3f})" for line in compared if line.part_of_none < 0.9995], len(compared)),
        bar(f"The forecast is within {100 * ERROR:.0f} % of the simulation",
            [f"{line.cell} ({100 * line.error:+.1f} %)" for line in sure if abs(line.error) > ERROR], len(sure))))


def not_run(missing, all_cells):
    """The cells' names; jobs of which none has run as one."""
    job = lambda cell: cell.split(",", 2)[2]
    left, whole = [job(cell) for cell in missing], [job(cell) for cell in all_cells]
    names = [f"all {left.count(each)} of {each.replace(',', ' x ', 1)}" for each in dict.fromkeys(left) if left.count(each) == whole.count(each)]
    return names + [cell for cell in missing if left.count(job(cell)) < whole.count(job(cell))]


def write_page(path, begin, lines, all_cells, auto, least, none):
    """`lines`: by cell."""
    done = [lines[cell] for cell in all_cells if cell in lines]
    missing = [cell for cell in all_cells if cell not in lines]
    parts = {line.cell: line.part for line in map(Line, done) if line.part}
    end = f"\n{len(done)} of {len(all_cells)} cells have run"
    if len(parts) < len(done):
        end += f"; in {len(done) - len(parts)} of them the model fits in no setting"
    end += f". {verdict(done, auto, least, none)}\n"
    if missing:
        end += f"\nNot run, {len(missing)} cells: {'; '.join(not_run(missing, all_cells))}.\n"
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(begin + "\n" + "\n".join(done) + "\n" + end)
    os.replace(path + ".new", path)
    with open(os.path.splitext(path)[0] + ".svg", "w", encoding="utf-8") as file:
        file.write(draw(parts, auto))


def measure(text, run, compare, grid, page, head, auto, wanted, none):
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
    asked, lines = args.cell or fnmatch.filter(grid(), args.cells), lines_of(args.page)
    print(head, flush=True)
    known = {} if args.again else dict(lines)
    for cell in asked:
        if cell not in known:
            try:
                lines[cell] = compare(runs, cell)
            except TimeoutError:
                continue
            if args.page:
                write_page(args.page, page + head, lines, list(grid()), auto, wanted, none)
        print(lines[cell], flush=True)
    if args.page:
        write_page(args.page, page + head, lines, list(grid()), auto, wanted, none)
    done = [Line(lines[cell]) for cell in asked if cell in lines]
    worst = min((min(line.part, line.part_of_none or line.part) for line in done if line.part), default=10)
    print(f"\n{verdict([lines[cell] for cell in asked if cell in lines], auto, wanted, none)}\nworst: {worst:.3f}")
    return 1 if worst < args.least else 0


if __name__ == "__main__":
    sys.exit(measure(__doc__, run, compare, grid, PAGE, HEAD, "pool=auto", 0.98, "no layer"))
