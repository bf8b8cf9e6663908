#!/usr/bin/env python3
"""Experts on one CPU: two ranks of a core each that ship rows (DEP), pull all experts (DWDP) or those with rows (routed), let the
load decide (auto) or meet before they pull (FSDP), and one rank of both cores that holds everything as the ceiling.

usage: experts.py FOREBAY [--rounds 3] [--steps 256,2048] [--cvs 0,.2,.4] [--modes DEP,routed,...] [--prompt-steps 4] [--output 8]
                  [--small] [--out FILE] [--profile FILE] [--prefix COMMAND]

Prompts' lengths deviate by a part of their mean (CV), and steps have at most so many rows; each rank has work for so many steps of prompts.
Modes take turns within a round; figures are medians of the rounds. The simulator runs the same job, with the routing that the ceiling's last
run recorded, on two devices of a profile of one core; its ratio of each mode to DWDP stands beside the real one. Copies take a core's time and the one memory here, so that no pull hides: what
this shows is bytes, waiting, memory and whether the ratio was foreseen, not a gain over DEP.
"""
import json
import os
import random
import shlex
import statistics
import sys
import tempfile

import pooling
from machine import Machine, share_memory
from pooling import counter, median
from shapes import QWEN3_30B_A3B_CUT

# Qwen3-30B-A3B in 4 of its 48 layers: 6.2 GB.
CONFIG = QWEN3_30B_A3B_CUT | {"max_position_embeddings": 4096}
SMALL = {**CONFIG, "vocab_size": 4096, "hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 128, "num_experts": 32,
         "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32, "eos_token_id": 0}
RANK_MIB, SMALL_RANK_MIB = 5632, 128
STEPS, CVS = (256, 2048), (0, .2, .4)
POOLED = ["--layout", "dp=2,experts=by_expert", "--pool-look-ahead", "1", "--mode"]
BASE, CEILING = "DWDP", "one rank, both cores"
# name, layout flags; all of two ranks but the ceiling
MODES = [("DEP", [*POOLED, "ship"]), ("DWDP", [*POOLED, "pull"]), ("DWDP merged", [*POOLED, "pull", "--expert-merge", "--memory-per-rank", "6400MiB"]),
         ("routed", [*POOLED, "routed"]), ("auto", [*POOLED, "auto"]), ("FSDP", [*POOLED, "gather"]), (CEILING, None)]
HEADER = ["mode", "GB a rank", "tok/s", "spread", "GB pulled", "GB shipped", "copy core-s", "s of waits for peers", "exposed pull", "over DWDP", "simulated tok/s",
          "over DWDP", "error of the ratio"]


class Bench(pooling.Bench):
    def write_requests(self, rows, cv, prompt_steps, output):
        rng = random.Random(7)
        mean = min(rows // 2, 256)
        count = 2 * prompt_steps * rows // mean
        with open(self.at("requests.jsonl"), "w") as f:
            for i in range(count):
                tokens = max(1, min(2 * mean, round(rng.gauss(mean, cv * mean))))
                f.write(json.dumps({"custom_id": str(i), "prompt": [rng.randrange(4000) for _ in range(tokens)], "max_tokens": output,
                                    "ignore_eos": True, "temperature": 0}) + "\n")
        self.common = ["--random-weights", "--skip-tokenizer-init", "--quiet", "--no-enable-prefix-caching", "--max-model-len", "1024",
                       "--max-num-seqs", "64", "--max-num-batched-tokens", str(rows)]


def tokens_per_s(summary):
    return (summary["prompt_tokens"] + summary["output_tokens"]) / summary["elapsed_time"]


def rows_of(real, simulated):
    base, rows = median(real[BASE], tokens_per_s), []
    for name, runs in real.items():
        rates = [tokens_per_s(s) for s in runs]
        rate = statistics.median(rates)
        row = [name, f"{runs[0]['weight_bytes'] * 1e-9 / (1 if name == CEILING else 2):.2f}", f"{rate:.1f}",
               f"{100 * (max(rates) - min(rates)) / rate:.1f} %", f"{median(runs, counter('bytes_pulled', 1e-9)):.2f}",
               f"{median(runs, counter('bytes_shipped', 1e-9)):.3f}", f"{median(runs, counter('copy_core_us', 1e-6)):.2f}",
               f"{median(runs, counter('waited_peer_us', 1e-6)):.2f}", f"{median(runs, counter('waited_pull_us', 1e-6)):.2f}",
               f"{rate / base:.3f}"]
        if name in simulated:
            ratio = tokens_per_s(simulated[name]) / tokens_per_s(simulated[BASE])
            row += [f"{tokens_per_s(simulated[name]):.1f}", f"{ratio:.3f}", f"{100 * (ratio / (rate / base) - 1):+.1f} %"]
        rows.append(row + [""] * (len(HEADER) - len(row)))
    return rows


def cell(bench, machine, profile, modes, args, rows, cv):
    """The lines of a table."""
    bench.write_requests(rows, cv, args.prompt_steps, args.output)
    real, routing, common = {name: [] for name, _ in modes}, bench.at("routing.jsonl"), bench.common
    if os.path.exists(routing):
        os.remove(routing)
    for each in range(args.rounds):
        for name, layout in modes:
            records = layout is None and each == args.rounds - 1
            bench.common = [*common, "--record-routing", routing] if records else common
            real[name].append(machine.beside(lambda: bench.run(layout, "cpu" if layout is None else "2xcpu")))
    bench.common = [*common, "--routing", routing]
    path = share_memory(profile, [read for _, read in machine.seen], bench.at("shared.json"))
    simulated = {name: bench.run(layout, f"sim:2x{path}", True) for name, layout in modes if layout is not None}
    lines = [f"Steps of at most {rows} rows; prompts of a CV of {cv}, {args.prompt_steps} steps a rank; {args.output} tokens each:", "",
             "| " + " | ".join(HEADER) + " |", "|---" * len(HEADER) + "|"]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows_of(real, simulated)), ""]


def main():
    parser = pooling.parser_of(__doc__)
    parser.add_argument("--small", action="store_true", help="a model of a few MB, one cell and a quick profile: to try that it runs")
    parser.add_argument("--steps", default=",".join(map(str, STEPS)))
    parser.add_argument("--cvs", default=",".join(map(str, CVS)))
    parser.add_argument("--modes", help=f"of {', '.join(name for name, _ in MODES)}; {BASE} and the last always run")
    parser.add_argument("--prompt-steps", type=int, default=4)
    parser.add_argument("--output", type=int, default=8, help="tokens of each answer")
    args = parser.parse_args()
    wanted = [name for name, _ in MODES] if args.modes is None else [*args.modes.split(","), BASE, CEILING]
    if args.output < 2:
        parser.error("--output: at least 2 tokens, so that steps decode")
    if unknown := set(wanted) - {name for name, _ in MODES}:
        parser.error(f"--modes: no {', '.join(sorted(unknown))}; there are {', '.join(name for name, _ in MODES)}")
    modes = [mode for mode in MODES if mode[0] in wanted]
    steps, cvs = [int(each) for each in args.steps.split(",")], [float(each) for each in args.cvs.split(",")]
    config, mib = (SMALL, SMALL_RANK_MIB) if args.small else (CONFIG, RANK_MIB)
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(os.path.abspath(args.forebay), folder, shlex.split(args.prefix), config, mib)
        machine = Machine(bench.forebay, bench.prefix)
        with open(args.profile or bench.profile_a_core(args.small)) as f:
            profile = json.load(f)
        for rows in steps[:1] if args.small else steps:
            for cv in cvs[-1:] if args.small else cvs:
                lines += cell(bench, machine, profile, modes, args, rows, cv)
                print("\n".join(lines[-len(modes) - 5:]), flush=True)
    lines.append(f"{mib} MiB a rank (merged: 6,400). {pooling.probes([read for _, read in machine.seen])}.")
    print(lines[-1])
    if args.out:
        with open(args.out, "w") as f:
            f.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
