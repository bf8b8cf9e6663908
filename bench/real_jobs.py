#!/usr/bin/env python3
"""Six jobs on two real ranks of this CPU: what `--layout auto` takes beside each setting that could have been forced.

usage: real_jobs.py FOREBAY [--jobs NAME,...] [--rounds N] [--out FILE]
Jobs: summarise (long prompts), write (long answers), chat, few (four requests), experts, short (copies leave KV cache for a third of the requests).
Weights are random; shapes are those of Qwen3-0.6B and Qwen3-30B-A3B with fewer layers, so that a run takes 3 to 15 s on two cores, and one round of all some ten minutes. Forced are copies, tp, pp, sp, and
copies that share their weights (striped, or by expert) in each mode. Settings run in turns, who begins changes from round to round, and seconds are the job's
(`elapsed_time`), medians of the rounds. A part is the best forced setting's seconds over those of `auto`; wanted: 0.95 in each job. The first job measures
this CPU where no built-in profile fits (some 20 s, kept in ~/.cache/forebay).
"""
import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile

from shapes import QWEN3_06B, QWEN3_30B_A3B
from turns import machine

WANTED = 0.95
DENSE = QWEN3_06B | {"num_hidden_layers": 8}
EXPERTS = QWEN3_30B_A3B | {"num_hidden_layers": 2}
MODES = ("auto", "ship", "pull")
CUTS = [["dp=2"], ["tp=2"], ["pp=2"], ["sp=2"]]
FORCED = {
    "dense": [*CUTS, *(["dp=2,weights=striped,pool=auto", "--mode", mode] for mode in MODES)],
    "experts": [*CUTS, *(["dp=2,experts=by_expert", "--mode", mode] for mode in MODES)],
}
# name: shape, requests, prompt and output tokens, memory
JOBS = {
    "summarise": ("dense", 12, 512, 8, "8GiB"),
    "write": ("dense", 32, 32, 64, "8GiB"),
    "chat": ("dense", 16, 256, 48, "8GiB"),
    "few": ("dense", 4, 256, 96, "8GiB"),
    "experts": ("experts", 16, 128, 32, "14GiB"),
    "short": ("dense", 32, 256, 64, "1600MiB"),
}


class Job:
    def __init__(self, forebay, folder, name):
        self.shape, requests, prompt, output, memory = JOBS[name]
        config = {"dense": DENSE, "experts": EXPERTS}[self.shape]
        model, self.lines, self.out, self.summary = (os.path.join(folder, f"{name}{end}") for end in ("", ".jsonl", ".out", ".json"))
        os.makedirs(model)
        with open(os.path.join(model, "config.json"), "w") as file:
            json.dump(config, file)
        draw = random.Random(1)
        with open(self.lines, "w") as file:
            for _ in range(requests):
                ids = [draw.randrange(config["vocab_size"]) for _ in range(prompt)]
                file.write(json.dumps({"prompt": ids, "max_tokens": output, "ignore_eos": True, "temperature": 0}) + "\n")
        self.command = [forebay, "run", "-m", model, "--random-weights", "--skip-tokenizer-init", "-i", self.lines, "-o", self.out, "--summary", self.summary,
                        "--devices", "2xcpu", "--memory", memory, "--layout"]

    def run(self, setting):
        """The summary, with the layout that `auto` took, or None where the setting is refused."""
        if os.path.exists(self.out):
            os.remove(self.out)
        done = subprocess.run(self.command + setting, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            print(f"  {' '.join(setting)}: refused: {done.stderr.strip().splitlines()[-1][:160]}", file=sys.stderr, flush=True)
            return None
        took = re.search(r"--layout auto: (\S+)", done.stderr)
        with open(self.summary) as file:
            return json.load(file) | {"took": took and ",".join(part for part in took[1].split(",") if not part.endswith("=1"))}


def measure(job, rounds):
    """{setting: seconds of each round}, of those that run; what `auto` took; the instruction set."""
    settings = [["auto"], *FORCED[job.shape]]
    first = {tuple(setting): job.run(setting) for setting in settings}  # not counted: finds what is refused, measures this CPU
    runs = [setting for setting in first if first[setting]]
    seconds = {setting: [] for setting in runs}
    for i in range(rounds):
        for setting in runs[i % len(runs):] + runs[:i % len(runs)]:
            seconds[setting].append(job.run(list(setting))["elapsed_time"])
    auto = first[("auto",)]
    return seconds, auto["took"], auto["isa"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forebay")
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out")
    args = parser.parse_args()
    rows = ["| job | auto took | s | best forced | s | part | met | all, s |", "|---|---|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        for name in args.jobs.split(","):
            seconds, took, isa = measure(Job(os.path.abspath(args.forebay), folder, name), args.rounds)
            medians = {" ".join(setting): statistics.median(each) for setting, each in seconds.items()}
            auto = medians.pop("auto")
            best = min(medians, key=medians.get)
            part = medians[best] / auto
            every = "; ".join(f"{setting} {median:.2f}" for setting, median in sorted(medians.items(), key=lambda each: each[1]))
            rows.append(f"| {name} | {took} | {auto:.2f} | {best} | {medians[best]:.2f} | {part:.3f} | {'yes' if part >= WANTED else 'no'} | {every} |")
            print(rows[-1], file=sys.stderr, flush=True)
    rows = [f"{machine()}; {isa}; medians of {args.rounds} rounds", "", *rows]
    print("\n".join(rows))
    if args.out:
        with open(args.out, "w") as file:
            print("\n".join(rows), file=file)


if __name__ == "__main__":
    main()
