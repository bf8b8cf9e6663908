#!/usr/bin/env python3
"""Steps of two ranks of a core each that cut rows (SP), cut weights (TP), or take whichever is cheaper by price, by rows of a step.

usage: shift.py FOREBAY [--rounds 3] [--prompts 8] [--layers 28] [--quick] [--out FILE]

A step is that of one prompt of so many tokens, so attention is the same in all modes. Modes take turns within a round; figures are medians
over all steps of all rounds, with the range of the rounds' medians. Bytes are what ranks read from each other in linear layers, of a row and layer:
the counters of the run, which tests hold to the closed forms. It shows which mode is ahead where on this machine; it proves no gain on another.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile

from pooling import CONFIG

ROWS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
MODES = [("SP", "2x1"), ("TP", "1x2"), ("auto", "auto")]


def run(forebay, folder, args, mode, rows):
    """Milliseconds of the steps of so many rows, the degrees that they took, and bytes by row and layer."""
    steps, summary = os.path.join(folder, "steps.jsonl"), os.path.join(folder, "summary.json")
    command = [forebay, "run", "-m", os.path.join(folder, "model"), "--trace", f"synthetic:n={args.prompts},prompt={rows},output=1",
               "--devices", "2xcpu", "--layout", "sp=2", "--shift-mode", mode, "--random-weights", "--skip-tokenizer-init", "--quiet",
               "--no-enable-prefix-caching", "--max-model-len", "2048", "--max-num-seqs", "1", "--max-num-batched-tokens", "1024",
               "--memory", "6GiB", "--steps", steps, "--summary", summary]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    taken = [json.loads(line) for line in open(steps)]
    taken = [step for step in taken if step["prefill_rows"] + step["decode_rows"] == rows]
    if len(taken) != args.prompts:
        sys.exit(f"{mode}, {rows} rows: {len(taken)} steps of {args.prompts}")
    counters = json.load(open(summary))["mode_counters"]
    moved = counters.get("bytes_all_reduce", 0) + counters.get("bytes_all_to_all", 0)
    times = [1e3 * (step["end"] - step["begin"]) for step in taken[1:] or taken]  # the first finds cold caches
    return {"ms": times, "mode": f"{taken[-1]['sp']}x{taken[-1]['tp']}", "bytes": moved / args.prompts / rows / args.layers}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("forebay")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--layers", type=int, default=CONFIG["num_hidden_layers"])
    parser.add_argument("--quick", action="store_true", help="fewer rows: shows that it works")
    parser.add_argument("--out")
    args = parser.parse_args()
    args.forebay = os.path.abspath(args.forebay)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(os.path.join(folder, "model"))
        with open(os.path.join(folder, "model", "config.json"), "w") as file:
            json.dump(CONFIG | {"num_hidden_layers": args.layers}, file)
        for _ in range(args.rounds):
            for rows in ROWS[:5:2] if args.quick else ROWS:
                for name, mode in MODES:
                    found.setdefault((rows, name), []).append(run(args.forebay, folder, args, mode, rows))
    lines = [f"{os.cpu_count()} cores, {platform.processor() or platform.machine()}; Qwen3-0.6B's layers, {args.layers} of them, vocabulary 32,768, two ranks of a core; load at the end {os.getloadavg()[0]:.1f}", "",
             "| rows | SP, ms | TP, ms | SP by TP | auto, ms | it takes | SP, bytes | TP, bytes |", "|---|---|---|---|---|---|---|---|"]
    for rows in sorted({rows for rows, _ in found}):
        cells, medians = {}, {}
        for name, _ in MODES:
            rounds = [statistics.median(one["ms"]) for one in found[rows, name]]
            medians[name] = statistics.median(t for one in found[rows, name] for t in one["ms"])
            cells[name] = f"{medians[name]:.2f} ({min(rounds):.2f} to {max(rounds):.2f})"
        lines.append(f"| {rows} | {cells['SP']} | {cells['TP']} | {medians['SP'] / medians['TP']:.2f} | {cells['auto']} | {found[rows, 'auto'][-1]['mode']} | "
                     f"{found[rows, 'SP'][-1]['bytes']:.0f} | {found[rows, 'TP'][-1]['bytes']:.0f} |")
    text = "\n".join(lines) + "\n"
    print(text)
    if args.out:
        with open(args.out, "w") as file:
            file.write(text)


if __name__ == "__main__":
    main()
