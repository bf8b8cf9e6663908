#!/usr/bin/env python3
"""The simulator's prediction against real runs: profile, run, profile; one command.

usage: prediction.py FOREBAY [--rounds 3] [--triples 3] [--quick] [--operations] [--out FILE] [--check]
                     [--prefix COMMAND] [--before PROFILE]

Six jobs on two shapes, and two on one with experts (random weights), run on this machine and on a simulation of it, whose profile is measured just before
and just after. Probes of the peak and of the stream rate (limits_probe, beside FOREBAY's bench/) stand around each run and each
profile: a run with another rate than the first profile's is repeated, and where that does not help the triple is thrown away
and counted, as is one whose two profiles price some job more than 5 % apart: the machine changed meanwhile. Steps, blocks and
preemptions must be equal. No number of a profile comes from these jobs.
Each job's requests come twice, and the time is that of the second half of its steps: by then all pages of the KV cache have
been touched once, which on virtual machines may cost milliseconds a page and is in no profile.
Experts that a real run chose are recorded and laid on the simulated one, so that as many rows reach as many experts in both.
--check: exit 1 where counts differ, or where the shape error exceeds 15 % in --triples accepted triples.
--operations: also print seconds by operation, real and simulated.
"""
import argparse
import json
import math
import os
import random
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile

from machine import Changed, Machine
from shapes import QWEN3_06B, QWEN3_30B_A3B, SMOLLM2_135M

CASES = ["prefill-heavy", "decode-heavy", "mixed", "prefix-shared", "preempting", "batch 1"]
# Of Qwen3-30B-A3B as many experts and layers as fit beside a KV cache; ids of requests stay below the vocabulary.
FEW_EXPERTS = QWEN3_30B_A3B | {"num_hidden_layers": 2, "num_experts": 32, "vocab_size": 40960, "max_position_embeddings": 4096}
# (name, config, requests and tokens relative to the smallest shape's, jobs)
SHAPES = [("SmolLM2-135M", SMOLLM2_135M, 1.0, CASES), ("Qwen3-0.6B", QWEN3_06B | {"max_position_embeddings": 4096}, 0.5, CASES),
          ("Qwen3-30B-A3B cut", FEW_EXPERTS, 0.5, ["decode-heavy", "mixed"])]
LARGEST_DISAGREEMENT = 0.05
AIM_SHAPE, AIM_RAW, FAILED_SHAPE = 0.05, 0.07, 0.15
EXACT = ["steps", "preemptions", "recomputed_tokens", "computed_tokens", "cached_prompt_tokens", "kv_blocks_total",
         "kv_blocks_used_peak"]
EXACT_OF_EXPERTS = ["rows_routed", "experts_touched", "expert_groups", "expert_busiest_rows"]


def requests_of(case, scale, rng):
    """[(prompt ids, output tokens)], half of a job, and flags. Batch 1 and mixed lie on the memory's side of the knee, the rest beyond."""
    ids = lambda n: [rng.randrange(1000, 40000) for _ in range(n)]
    many = lambda n: max(1, round(n * scale))
    if case == "prefill-heavy":
        return [(ids(480), 2) for _ in range(many(8))], []
    if case == "decode-heavy":
        return [(ids(8), many(24)) for _ in range(64)], ["--max-num-seqs", "64"]
    if case == "mixed":
        return [(ids(rng.randrange(16, 320)), rng.randrange(4, many(64))) for _ in range(12)], ["--max-num-seqs", "10"]
    if case == "prefix-shared":
        shared = ids(256)
        return [(shared + ids(16), many(24)) for _ in range(14)], ["--max-num-seqs", "12"]
    if case == "preempting":
        return [(ids(40), 64) for _ in range(14)], ["--num-kv-blocks-override", "28", "--max-num-batched-tokens", "256"]
    return [(ids(32), many(32)) for _ in range(2)], ["--max-num-seqs", "1"]


class Run:
    def __init__(self, folder, shape, case, prefix, forebay):
        self.shape, config, scale, _ = shape
        name = self.shape
        self.name = f"{name}, {case}"
        self.prefix, self.forebay, self.folder = prefix, forebay, folder
        self.model = os.path.join(folder, name)
        os.makedirs(self.model, exist_ok=True)
        with open(os.path.join(self.model, "config.json"), "w") as f:
            json.dump(config, f)
        rng = random.Random(f"{name} {case}")
        requests, flags = requests_of(case, scale, rng)
        requests += requests_of(case, scale, rng)[0]
        # The first step is one prompt's, whatever else has been read by then (it has the longest output, and those go first); from
        # the second on all requests are there.
        opening = 256 if case == "preempting" else 512  # a step's rows
        requests.insert(0, ([rng.randrange(1000, 40000) for _ in range(opening)], 1 + max(output for _, output in requests)))
        self.jobs = os.path.join(folder, f"{name}-{case}.jsonl".replace(" ", "-"))
        with open(self.jobs, "w") as f:
            for i, (prompt, output) in enumerate(requests):
                f.write(json.dumps({"custom_id": str(i), "prompt": prompt, "max_tokens": output, "ignore_eos": True,
                                    "temperature": 0}) + "\n")
        self.flags = ["-m", self.model, "-i", self.jobs, "--random-weights", "--skip-tokenizer-init", "--memory", "3GiB",
                      "--touch-kv", "3GiB", "--quiet", *flags]
        self.routing = self.at(f"{name}-{case}.routing".replace(" ", "-")) if "num_experts" in config else None
        # As many blocks as are used, so that the second half finds none that was never touched.
        if case != "preempting":
            peak = self.simulate("zen4")[0]["engine"]["kv_blocks_used_peak"]
            self.flags += ["--num-kv-blocks-override", str(peak + 2)]
        if case != "prefix-shared":
            self.flags += ["--no-enable-prefix-caching"]

    def at(self, name):
        return os.path.join(self.folder, name)

    def run(self, flags):
        for name in ("results.jsonl", "summary.json", "steps.jsonl"):
            if os.path.exists(self.at(name)):
                os.remove(self.at(name))
        prefix = self.prefix if "-o" in flags else []  # of what is measured
        command = [*prefix, self.forebay, "run", *self.flags, *flags, "--summary", self.at("summary.json"), "--steps",
                   self.at("steps.jsonl")]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{self.name}: exit code {done.returncode}\n{done.stderr}")
        summary = json.load(open(self.at("summary.json")))
        steps = [json.loads(line) for line in open(self.at("steps.jsonl"))]
        summary["second_half"] = steps[-1]["end"] - steps[len(steps) // 2 - 1]["end"]
        return summary, [step["plan"] for step in steps], done.stderr

    def measure(self, flags=()):
        record = ["--record-routing", self.routing] if self.routing else []
        return self.run(["-o", self.at("results.jsonl"), *record, *flags])

    def simulate(self, profile, flags=()):
        replay = ["--routing", self.routing] if self.routing and os.path.exists(self.routing) else []
        return self.run(["--devices", f"sim:{profile}", *replay, *flags])


def counters(summary):
    routed = {key: summary["mode_counters"][key] for key in EXACT_OF_EXPERTS if key in summary["mode_counters"]}
    return {key: summary["engine"][key] for key in EXACT} | routed


def operations(stderr):
    """{label: seconds} of the table that --profile prints."""
    found = {}
    for line in stderr.splitlines():
        words = line.split()
        if len(words) >= 6 and words[1].isdigit() and words[3].endswith("%"):
            found[words[0]] = float(words[2])
    return found


def print_operations(run, profile):
    real, simulated = operations(run.measure(["--profile"])[2]), operations(run.simulate(profile, ["--profile"])[2])
    print(f"\n{run.name}, seconds by operation\n{'':16} {'real':>8} {'simulated':>10} {'error':>7} {'of all':>7}")
    total = sum(real.values())
    for label, seconds in real.items():
        other = simulated.get(label, 0)
        print(f"{label:16} {seconds:8.3f} {other:10.3f} {100 * (other / max(seconds, 1e-9) - 1):6.1f}% "
              f"{100 * (other - seconds) / total:6.1f}%")


def real_time_prefix():
    """What keeps other programs off the cores, where this user may: else nothing."""
    prefix = ["chrt", "-f", "10"]
    try:
        return prefix if subprocess.run([*prefix, "true"], stderr=subprocess.DEVNULL).returncode == 0 else []
    except FileNotFoundError:
        return []


def profile(args, prefix, path):
    quick = ["--quick"] if args.quick else []
    done = subprocess.run([*prefix, args.forebay, "profile", "-o", path, *quick], stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"forebay profile failed\n{done.stderr}")


def triple(args, runs, prefix, folder):
    """A shape's profile, runs, profile. Returns the largest disagreement of the two profiles and the runs repeated; raises Changed."""
    before, after = os.path.join(folder, "before.json"), os.path.join(folder, "after.json")
    machine = Machine(args.forebay, prefix)
    if args.before:
        shutil.copy(args.before, before)
    else:
        machine.steady(lambda: profile(args, prefix, before))
    for run in runs:
        run.real, run.predicted, run.wrong = [], [], []
    for _ in range(args.rounds):
        for run in runs:
            summary, plans, _ = machine.steady(run.measure)
            run.real.append(summary["second_half"])
            run.counted, run.plans = counters(summary), plans
    machine.steady(lambda: profile(args, prefix, after))
    disagreement = 0
    for run in runs:
        for path in (before, after):
            summary, plans, _ = run.simulate(path)
            run.predicted.append(summary["second_half"])
            run.wrong += [f"{key}: {counters(summary)[key]} simulated, {value} real" for key, value in run.counted.items()
                          if counters(summary)[key] != value]
            if plans != run.plans:
                run.wrong.append("step plans differ")
        disagreement = max(disagreement, abs(math.log(run.predicted[0] / run.predicted[1])))
    return math.expm1(disagreement), machine.repeated


def rows(runs):
    """A shape's lines of Markdown, its common speed factor, and the largest shape error."""
    predicted = [math.sqrt(run.predicted[0] * run.predicted[1]) for run in runs]
    real = [statistics.median(run.real) for run in runs]
    factor = math.exp(statistics.mean(math.log(r / p) for r, p in zip(real, predicted)))
    lines, worst = [], 0
    for run, r, p in zip(runs, real, predicted):
        spread, raw, shape = (max(run.real) - min(run.real)) / r, p / r - 1, factor * p / r - 1
        worst = max(worst, abs(shape))
        met = abs(shape) <= AIM_SHAPE and abs(raw) <= max(AIM_RAW, spread)
        lines.append(f"| {run.name} | {run.counted['steps']} | {run.counted['preemptions']} | {r:.3f} | {100 * spread:.1f} % "
                     f"| {p:.3f} | {100 * raw:+.1f} % | {100 * shape:+.1f} % | {'' if met else 'over the aim'} |")
    return lines, factor, worst


def predict(args, runs, prefix, folder):
    """Lines of Markdown about a shape, after as many triples as it takes; whether one was accepted, and whether none was near."""
    thrown_away, accepted, failures = 0, 0, 0
    table, note = [], ""
    for _ in range(args.triples):
        try:
            disagreement, repeated = triple(args, runs, prefix, folder)
        except Changed as rates:
            thrown_away += 1
            print(f"{runs[0].shape}: the machine changed ({rates}): thrown away", flush=True)
            continue
        finally:
            args.before = None
        wrong = [f"{run.name}: {what}" for run in runs for what in run.wrong]
        if wrong:
            sys.exit("counts differ\n" + "\n".join(wrong))
        table, factor, worst = rows(runs)
        thrown_away += disagreement > LARGEST_DISAGREEMENT
        note = (f"{runs[0].shape}: common speed factor {factor:.3f}, largest shape error {100 * worst:.1f} %; profiles at most "
                f"{100 * disagreement:.1f} % apart, runs repeated: {repeated}, triples thrown away: {thrown_away}")
        if disagreement > LARGEST_DISAGREEMENT:
            print("\n".join(table + [note, "thrown away"]), flush=True)
            continue
        accepted += 1
        failures += worst > FAILED_SHAPE
        if not args.check or worst <= FAILED_SHAPE:
            break
    if accepted == 0:
        return [], f"{runs[0].shape}: skipped, no two profiles of {args.triples} agreed", False
    return table, note, failures == args.triples


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forebay")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--triples", type=int, default=3, help="triples to try before giving up")
    parser.add_argument("--quick", action="store_true", help="quick profiles")
    parser.add_argument("--operations", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", default="", help="jobs whose name holds this")
    parser.add_argument("--before", help="the first triple's first profile, measured just now")
    parser.add_argument("--prefix", default="", help="what each measurement is run with")
    parser.add_argument("--out")
    args = parser.parse_args()
    args.forebay = os.path.abspath(args.forebay)
    prefix = [*shlex.split(args.prefix), *real_time_prefix()]
    lines = ["| job | steps | preemptions | real s | spread | simulated s | raw error | shape error | |",
             "|---|---|---|---|---|---|---|---|---|"]
    notes, failed = [], False
    with tempfile.TemporaryDirectory() as folder:
        for shape in SHAPES:
            runs = [Run(folder, shape, case, prefix, args.forebay) for case in shape[3] if args.only in f"{shape[0]}, {case}"]
            if not runs:
                continue
            table, note, wrong = predict(args, runs, prefix, folder)
            lines += table
            notes.append(note)
            failed |= wrong
            if args.operations and table:
                for run in runs:
                    print_operations(run, os.path.join(folder, "before.json"))
    lines += ["", *notes, f"{'With' if prefix else 'Without'} real-time priority."]
    print("\n".join(lines))
    if args.out:
        with open(args.out, "w") as f:
            f.write("\n".join(lines) + "\n")
    return 1 if args.check and failed else 0


if __name__ == "__main__":
    sys.exit(main())
