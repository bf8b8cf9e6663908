#!/usr/bin/env python3
"""Whole simulated jobs: the layout that --layout auto takes against each that could have been forced.

  bench/layout_grid.py build/release/forebay [--cell DEVICE,MODEL,REQUESTS,PROMPT+OUTPUT]... [--least PART]
  bench/layout_grid.py build/release/forebay --runs FILE [--page bench/results/layout_auto.md] [--minutes M] [--again]

A cell is a job on eight simulated devices. Beside `auto` run all cuts of the devices into replicas, stages and tensor parallel ranks, those of
several replicas also with weights that they share (pool=auto; of a model with experts these in one stage, expert-size=auto). Flags are
those of bench/pool_grid.py.
"""
import itertools
import re
import sys

import pool_grid

MODELS = ("Qwen3-32B", "Llama-3.1-70B", "Qwen3-30B-A3B")
EXPERTS = ("Qwen3-30B-A3B", "DeepSeek-R1-FP8")
HEAD = ("| devices, model, requests, lengths | auto: layout | s | expected s | dp=8 s | best forced | s | auto's part |\n"
        "|---|---|---|---|---|---|---|---|")
PAGE = """# --layout auto on whole jobs

    bench/layout_grid.py build/release/forebay --runs runs.jsonl --page bench/results/layout_auto.md

Whole simulated jobs on eight devices, in virtual time: requests of prompt + output tokens, outputs lognormal around their mean (sigma .5). Beside `auto` were forced all cuts of
the devices into replicas (dp), stages (pp) and tensor parallel ranks (tp), those of several replicas also with weights that they share (`striped` and `by_layer` with
`pool=auto`; of a model with experts `by_expert` with `expert-size=auto`, in one stage). `expected` is what the forecast said before the run. The last column is the best forced
job's seconds over those of `auto`; below 1, another layout would have been sooner done.

![auto's part of the best forced layout, cell by cell](layout_auto.svg)

"""


def grid():
    """Cheap cells first."""
    for requests, lengths in itertools.product((16, 100), ("1024+256", "2048+2048")):
        for device, model in itertools.product(pool_grid.DEVICES, MODELS):
            yield f"{device},{model},{requests},{lengths}"
    for device in ("h200", "b200"):
        yield f"{device},DeepSeek-R1-FP8,100,1024+256"
    for device, model in itertools.product(pool_grid.DEVICES, MODELS):
        yield f"{device},{model},400,1024+256"


def layouts(model):
    """Of eight devices."""
    for tp, pp in itertools.product((1, 2, 4, 8), (1, 2, 4, 8)):
        dp, rest = divmod(8, tp * pp)
        if rest:
            continue
        cut = f"dp={dp},tp={tp},pp={pp}"
        yield cut
        if dp > 1 and (pp == 1 or model not in EXPERTS):
            shared = ("experts=by_expert,expert-size=auto",) if model in EXPERTS else ("weights=striped", "weights=by_layer")
            yield from (f"{cut},{how}" for how in shared)


def run(forebay, cell, layout):
    """The job's seconds, the layout and what was expected; None: the model does not fit, or cannot be cut so."""
    done = pool_grid.simulate(forebay, cell, layout, "auto")
    if done is None:
        return None
    told, log = done
    chosen = re.search(r"--layout auto: groups=1,(.*),pool-attention=off(.*)", log)
    taken = chosen.group(1).replace(",weights=replicated,pool=auto", "") + chosen.group(2) if chosen else layout
    return {"seconds": told["elapsed_time"], "chosen": taken, "expected": 1e-3 * told["mode_counters"]["expected_ms"]}


def compare(runs, cell):
    """The cell's line of the table, the part of the best forced layout that `auto` reaches, and that of copies (None: they do not fit)."""
    auto = runs.get(cell, "auto")
    forced = {layout: runs.get(cell, layout) for layout in layouts(cell.split(",")[1])}
    forced = {layout: result["seconds"] for layout, result in forced.items() if result}
    best = min(forced, key=forced.get)
    part, copies = forced[best] / auto["seconds"], forced.get("dp=8,tp=1,pp=1")
    line = (f"| {cell.replace(',', ', ')} | {auto['chosen']} | {auto['seconds']:.1f} | {auto['expected']:.1f} | "
            f"{f'{copies:.1f}' if copies else 'does not fit'} | {best} | {forced[best]:.1f} | {part:.3f} |")
    return line, part, copies / auto["seconds"] if copies else None


if __name__ == "__main__":
    sys.exit(pool_grid.measure(__doc__, run, compare, grid, PAGE, HEAD, "--layout auto", 0.97))
