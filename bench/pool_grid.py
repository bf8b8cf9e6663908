#!/usr/bin/env python3
"""Whole simulated jobs: what pool=auto chooses against what could have been forced.

  bench/pool_grid.py build/release/forebay [--cell DEVICE,MODEL,REQUESTS,PROMPT+OUTPUT,LAYOUT]...

A cell is a job on eight simulated devices; without --cell all of the grid is run, which takes hours. Beside `auto` run none,
a quarter, half, three quarters and all layers pooled, each pulling alone and with --mode auto. Prints a table and the worst part
of the best forced setting that `auto` reaches; with --least fails where that is lower.
"""
import argparse
import itertools
import json
import math
import os
import re
import subprocess
import sys
import tempfile

LAYERS = {"Qwen3-32B": 64, "Llama-3.1-70B": 80}
SIGMA = 0.5  # outputs are lognormal around their mean


def grid():
    for device, model, requests, lengths in itertools.product(("h20", "h200", "b200"), LAYERS, (16, 100, 400),
                                                              ("1024+256", "2048+2048")):
        yield f"{device},{model},{requests},{lengths},dp=8 weights=striped"


def run(forebay, cell, pool, mode):
    """The job's seconds, the chosen layers and what was expected; None: the model does not fit."""
    device, model, requests, lengths, layout = cell.split(",", 4)
    prompt, output = map(int, lengths.split("+"))
    location = math.log(output) - SIGMA ** 2 / 2
    with tempfile.TemporaryDirectory() as folder:
        summary = os.path.join(folder, "summary.json")
        done = subprocess.run(
            [forebay, "run", "-m", f"builtin:{model}", "--devices", f"sim:8x{device}", "--layout",
             layout.replace(" ", ",") + f",pool={pool}", "--mode", mode, "--trace",
             f"synthetic:n={requests},prompt={prompt},output=lognormal({location},{SIGMA})", "--summary", summary],
            capture_output=True, text=True, check=False)
        if done.returncode != 0:
            if "memory_too_small" in done.stderr:
                return None
            sys.exit(done.stderr)
        with open(summary, encoding="utf-8") as file:
            told = json.load(file)
    chosen = re.search(r"pool=auto: (\d+) of", done.stderr)
    expected = re.search(r"expected of this job: ([\d.]+) s", done.stderr)
    return {"seconds": told["elapsed_time"], "chosen": int(chosen.group(1)) if chosen else pool,
            "expected": float(expected.group(1)) if expected else None}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forebay")
    parser.add_argument("--cell", action="append", help="device,model,requests,prompt+output,layout (keys separated by blanks)")
    parser.add_argument("--least", type=float, default=0, help="fail where auto reaches a smaller part of the best forced setting")
    args = parser.parse_args()
    print("| devices, model, requests, lengths, layout | auto: layers | s | expected s | no layer s | best forced | s | auto's part |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    worst = 10.0
    for cell in args.cell or grid():
        layers = LAYERS[cell.split(",")[1]]
        auto = run(args.forebay, cell, "auto", "auto")
        forced = {}
        for part, mode in itertools.product(range(5), ("pull", "auto")):
            if part == 0 and mode == "auto":
                continue  # nothing is pooled
            result = run(args.forebay, cell, layers * part // 4, mode)
            if result:
                forced[layers * part // 4, mode] = result["seconds"]
        best = min(forced, key=forced.get)
        part = forced[best] / auto["seconds"]
        none = forced.get((0, "pull"))
        worst = min(worst, part, none / auto["seconds"] if none else part)
        expected = f"{auto['expected']:.1f}" if auto["expected"] else "-"
        print(f"| {cell.replace(',', ', ')} | {auto['chosen']} | {auto['seconds']:.1f} | {expected} | "
              f"{f'{none:.1f}' if none else 'does not fit'} | {best[0]}, {best[1]} | {forced[best]:.1f} | {part:.3f} |", flush=True)
    print(f"\nworst: {worst:.3f}")
    return 1 if worst < args.least else 0


if __name__ == "__main__":
    sys.exit(main())
