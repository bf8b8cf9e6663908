#!/usr/bin/env python3
"""Whole simulated jobs: what --layout auto takes against each setting that could have been forced.

  bench/layout_grid.py build/release/forebay [--cell DEVICE,MODEL,REQUESTS,PROMPT+OUTPUT]... [--least PART]
  bench/layout_grid.py build/release/forebay --runs FILE [--cells PATTERN] [--page bench/results/layout_auto.md] [--minutes M] [--again]

A cell is a job on eight simulated devices. The grid has 120: four machines, five models, and six pairs of answers and requests. Beside
`auto` run all cuts of the devices into replicas, stages, sequence and tensor parallel ranks; those of several replicas also with weights
that they share, in each mode, and those of sequence parallel ranks with weights that these share; and all of them again with an eighth of
the default rows of a step and small slots. Flags are those of bench/pool_grid.py.
"""
import itertools
import re
import sys

import pool_grid

DEVICES = ("h20", "h100", "h200", "b200")
EXPERTS = ("Qwen3-30B-A3B", "DeepSeek-R1-FP8")
MODELS = ("Llama-3-8B", "Qwen3-32B", "Llama-3.1-70B", *EXPERTS)
# Requests and their lengths: few and many of each.
JOBS = ((16, "1024+256"), (100, "1024+32"), (16, "2048+2048"), (400, "1024+32"), (100, "2048+2048"), (400, "1024+256"))
FEW_ROWS, SMALL_SLOTS = "--max-num-batched-tokens 2048", "--pool-look-ahead 1 --pool-parts matrix"
HEAD = ("| devices, model, requests, lengths | auto | s | expected s | dp=8 s | best forced | s | auto's part |\n"
        "|---|---|---|---|---|---|---|---|")
PAGE = """# --layout auto on whole jobs

    bench/layout_grid.py build/release/forebay --runs runs.jsonl --page bench/results/layout_auto.md

A call goes on where the last one ended: this page keeps the cells, and `runs.jsonl` the runs of a cell that is not finished.

Whole simulated jobs on eight devices, in virtual time: requests of prompt + output tokens, outputs lognormal around their mean (sigma 0.5). Beside `auto` were
forced all cuts of the devices into replicas (dp), stages (pp), sequence (sp) and tensor parallel ranks (tp), those of several replicas also with weights that
they share (`striped` and `by_layer` with `pool=auto`, of a model with experts `by_expert` with `expert-size=auto`), in `--mode auto`, `ship` and `pull`, those of
sequence parallel ranks with weights that these share (`striped`, `by_expert`), and each of these again with 2,048 rows a step and, where weights are shared, small
slots: 104 settings of a dense model, 74 of one with experts. `expected` is what the forecast said before the run. The last column is the best forced job's seconds over those of `auto`; below 1, another setting would have been sooner done.
Wanted: 0.97 of the best forced setting in every cell, no cell below copies (`dp=8`), and the forecast within 3 % of the simulation in 95 % of the cells.

![auto's part of the best forced setting, cell by cell](layout_auto.svg)

"""


def grid():
    """Cheap cells first."""
    for (requests, lengths), device, model in itertools.product(JOBS, DEVICES, MODELS):
        yield f"{device},{model},{requests},{lengths}"


def layouts(model):
    """Of eight devices, and the modes of each."""
    sizes = (1, 2, 4, 8)
    for tp, pp in itertools.product(sizes, sizes):
        dp, rest = divmod(8, tp * pp)
        if rest:
            continue
        cut = f"dp={dp},tp={tp},pp={pp}"
        yield cut, ("auto",)
        if dp > 1:
            shared = ("experts=by_expert,expert-size=auto",) if model in EXPERTS else ("weights=striped", "weights=by_layer")
            yield from ((f"{cut},{how}", ("auto", "ship", "pull")) for how in shared)
    for tp, sp in itertools.product(sizes, sizes[1:]):
        if tp * sp <= 8:
            cut = f"dp={8 // (tp * sp)},sp={sp},tp={tp}"
            yield cut, ("auto",)
            yield cut + (",experts=by_expert" if model in EXPERTS else ",weights=striped"), ("auto",)


def settings(model):
    """All that is forced: a layout, a mode and flags."""
    for layout, modes in layouts(model):
        shares = "weights=" in layout or "experts=" in layout
        for mode, flags in itertools.product(modes, ("", f"{FEW_ROWS} {SMALL_SLOTS}" if shares else FEW_ROWS)):
            if not (shares and flags and mode == "ship"):  # ships with the fewest slots already
                yield layout, mode, flags


def run(forebay, cell, layout, mode="auto", flags=""):
    """The job's seconds, the setting and what was expected; None: the model does not fit, or cannot be cut so."""
    done = pool_grid.simulate(forebay, cell, layout, mode, flags=flags.split())
    if done is None:
        return None
    told, log = done
    chosen = re.search(r"--layout auto: groups=1,(.*),pool-attention=off(.*)", log)
    taken = chosen.group(1).replace(",weights=replicated,pool=auto", "") + chosen.group(2) if chosen else layout
    return {"seconds": told["elapsed_time"], "chosen": taken, "expected": 1e-3 * told["mode_counters"]["expected_ms"],
            "failed": told["num_failed"]}


def compare(runs, cell):
    """The cell's line of the table."""
    auto = runs.get(cell, "auto")
    forced = {setting: runs.get(cell, *setting) for setting in settings(cell.split(",")[1])}
    forced = {setting: result["seconds"] for setting, result in forced.items() if result and not result["failed"]}
    name, figure = cell.replace(",", ", "), pool_grid.figure
    if not auto or not forced:
        return f"| {name} | {pool_grid.DOES_NOT_FIT} | | | | | | |"
    best = min(forced, key=forced.get)
    layout, mode, flags = best
    said = " ".join(filter(None, (layout, "" if mode == "auto" else f"--mode {mode}", flags)))
    return (f"| {name} | {auto['chosen']} | {figure(auto['seconds'])} | {figure(auto['expected'])} | "
            f"{figure(forced.get(('dp=8,tp=1,pp=1', 'auto', '')), pool_grid.DOES_NOT_FIT)} | {said} | {figure(forced[best])} | "
            f"{forced[best] / auto['seconds']:.3f} |")


if __name__ == "__main__":
    sys.exit(pool_grid.measure(__doc__, run, compare, grid, PAGE, HEAD, "--layout auto", 0.97, "copies"))
