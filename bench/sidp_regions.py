#!/usr/bin/env python3
"""Where SiDP's claims hold: whole simulated jobs of other lengths, sizes, tails and links than the rows of `forebay repro sidp` assume.

  bench/sidp_regions.py build/release/forebay [--runs FILE] [--minutes M]

Each job runs on eight simulated devices as copies (TP1DP8, TP2DP4, TP4DP2), as WaS (all FFNs pooled by layer, pulled), as WaS+CaS (the
same with --mode auto) and striped (--mode auto). Prints a table of output tokens a second and which claims of the paper hold.
"""
import argparse
import json
import math
import os
import sys
import tempfile

import pool_grid

COPIES = ("dp=8", "dp=4,tp=2", "dp=2,tp=4")
PAPER = {"Qwen3-32B": 5040, "Llama-3.1-70B": 2760}  # output tokens a second of vLLM, figure 13
HEAD = ("| model, requests, lengths, sigma, link | TP1DP8 | TP2DP4 | TP4DP2 | WaS | WaS+CaS | striped | steps that pull | holds |\n"
        "|---|---|---|---|---|---|---|---|---|")


def grid():
    """Model, requests, lengths, sigma of the outputs, times the link's rate: one at a time beside the first, which is the job that rows assume."""
    llama = "Llama-3.1-70B"
    yield llama, 400, "3584+512", 0.5, 1
    for lengths in ("2048+2048", "512+3584"):
        yield llama, 400, lengths, 0.5, 1
    for requests in (100, 1600):
        yield llama, requests, "3584+512", 0.5, 1
    for sigma in (0, 1):
        yield llama, 400, "3584+512", sigma, 1
    for link in (2, 4):
        yield llama, 400, "3584+512", 0.5, link
    yield llama, 400, "512+3584", 0.5, 2
    for lengths in ("3584+512", "512+3584"):
        yield "Qwen3-32B", 400, lengths, 0.5, 1


def run(forebay, model, requests, lengths, sigma, link, layout, mode):
    """Output tokens a second and the part of the steps that pull; None: the model does not fit."""
    with tempfile.TemporaryDirectory() as folder:
        device = "h20"
        if link != 1:
            source = os.path.join(os.path.dirname(__file__), "..", "src", "cost", "profiles", "h20.json")
            with open(source, encoding="utf-8") as file:
                profile = json.load(file)
            profile["numbers"]["link_bytes_per_s"]["value"] *= link
            device = os.path.join(folder, "linked.json")
            with open(device, "w", encoding="utf-8") as file:
                json.dump(profile, file)
        done = pool_grid.simulate(forebay, f"{device},{model},{requests},{lengths}", layout, mode, sigma)
    if done is None:
        return None
    told = done[0]
    steps = told["mode_counters"]
    return {"rate": told["output_tokens_per_second"], "pulls": steps.get("steps_pull", 0) / told["engine"]["steps"]}


def line_of(runs, job):
    copies = [runs.get(*job, layout, "auto") for layout in COPIES]
    pooled = f"pool={pool_grid.LAYERS[job[0]]}"
    was = runs.get(*job, f"dp=8,weights=by_layer,{pooled}", "pull")
    cas = runs.get(*job, f"dp=8,weights=by_layer,{pooled}", "auto")
    striped = runs.get(*job, f"dp=8,weights=striped,{pooled}", "auto")
    rates = [each["rate"] if each else 0 for each in (*copies, was, cas, striped)]
    vllm = rates[0] or rates[1]
    holds = {"WaS+CaS over WaS": rates[4] > rates[3], "WaS over vLLM": rates[3] > vllm,
             "SiDP over DP+TP": max(rates[4:]) > max(rates[:3]), "most steps pull": cas["pulls"] > 0.9,
             "vLLM's rate": vllm > PAPER[job[0]]}
    cells = " | ".join(f"{rate:.0f}" if rate else "-" for rate in rates)
    return (f"| {job[0]}, {job[1]}, {job[2]}, {job[3]}, {job[4]} | {cells} | {100 * cas['pulls']:.0f} % | "
            f"{'; '.join(name for name, holds_so in holds.items() if holds_so) or 'none'} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forebay")
    parser.add_argument("--runs", help="each run as a JSON line, so that the next call goes on where this one ended")
    parser.add_argument("--minutes", type=float, default=math.inf, help="no run is begun after so many")
    args = parser.parse_args()
    runs = pool_grid.Runs(run, args.forebay, args.runs, args.minutes, False)
    print(HEAD)
    for job in grid():
        try:
            print(line_of(runs, job), flush=True)
        except TimeoutError:
            print(f"not run: {', '.join(map(str, job))}")


if __name__ == "__main__":
    sys.exit(main())
