#!/usr/bin/env python3
"""People beside a batch on two real ranks of a core each: sp=2 in each of its modes and in the cheaper one, in turns, and what the simulator says of it.

usage: traffic.py FOREBAY [--rounds 5] [--seconds 120] [--layers 28] [--profile FILE] [--tier 2GiB] [--quick] [--out FILE]

A client asks every --gap seconds (512 + 24 tokens), a burst of 16 such requests comes every 20 s, and a batch of 200 (512 + 128) lies beneath. Two tables:
as fast as the ranks meet, and *paced*, where a meeting takes as long as over the slow link of bench/shift.py. Figures are medians over rounds; the run
is ended after --seconds. `sim` is the simulator's figure by the profile of a core that was measured before. Needs a machine with nothing beside it.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import tempfile

from machine import Machine
from shift import MODES, Bench

FIGURES = [("median TTFT ms", "interactive_median_ttft_ms"), ("mean TPOT ms", "interactive_mean_tpot_ms"), ("p95 ITL ms", "interactive_p95_itl_ms"),
           ("batch tok/s", "batch_output_tokens_per_second")]


class Traffic(Bench):
    def people(self):
        path = self.at("people.csv")
        arrivals = [i * self.args.gap for i in range(int(self.args.seconds / self.args.gap))]
        arrivals += [second for second in range(10, int(self.args.seconds), 20) for _ in range(16)]
        with open(path, "w") as file:
            file.write("arrival,prompt,output\n")
            file.writelines(f"{at:.3f},512,24\n" for at in sorted(arrivals))
        return path

    def summary(self, mode, flags):
        """Of a run that is ended after so many seconds: SIGINT twice, which leaves the summary."""
        summary = self.at("summary.json")
        tier = ["--kv-offloading-size", self.args.tier] if self.args.tier else []
        command = [self.args.forebay, "run", "-m", self.model, "--trace", self.people(), "--batch-trace", "synthetic:n=200,prompt=512,output=128",
                   "--layout", "sp=2", "--shift-mode", mode, "--random-weights", "--skip-tokenizer-init", "--quiet", "--no-enable-prefix-caching",
                   "--max-model-len", "2048", "--memory", "6GiB", "--scheduling-policy", "interactive", "--summary", summary, *tier, *flags]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            process.wait(self.args.seconds if not any("sim:" in flag for flag in flags) else None)
        except subprocess.TimeoutExpired:
            for _ in range(2):
                process.send_signal(signal.SIGINT)
            process.wait(60)
        with open(summary) as file:
            return json.load(file)


def row(name, figures, counters):
    steps = {key: value for key, value in counters.items() if key.startswith("steps_sp")}
    share = {key: 100 * value / max(1, sum(steps.values())) for key, value in steps.items()}
    shown = [f"{figures[key]:.4g}" for _, key in FIGURES]
    return f"| {name} | " + " | ".join([*shown, str(counters.get("shift_switches", 0)), f"{share.get('steps_sp1tp2', 0):.1f}"]) + " |"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("forebay")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--gap", type=float, default=3)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--profile")
    parser.add_argument("--tier")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out")
    args = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Traffic(args, folder)
        core, paced, gbps = bench.profiles()
        reads = [Machine(args.forebay).rates()[1]]
        for title, flags, profile in [("as they meet", ["--device-profile", core], core),
                                      ("paced", ["--device-profile", paced, "--link-gbps", f"{gbps:.6g}"], paced)]:
            runs = {mode: [] for _, mode in MODES}
            for _ in range(args.rounds):
                for _, mode in MODES:
                    runs[mode].append(bench.summary(mode, ["--devices", "2xcpu", *flags]))
            lines += [f"{title}:", "", "| mode | " + " | ".join([name for name, _ in FIGURES] + ["switches", "% of steps in 1x2"]) + " |", "|---" * 7 + "|"]
            for name, mode in MODES:
                medians = {key: statistics.median(run[key] for run in runs[mode]) for _, key in FIGURES}
                lines.append(row(name, medians, runs[mode][-1]["mode_counters"]))
                simulated = bench.summary(mode, bench.simulated(profile, reads))
                lines.append(row(f"{name}, sim", simulated, simulated["mode_counters"]))
            lines.append("")
    text = "\n".join(lines)
    print(text)
    if args.out:
        with open(args.out, "w") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    main()
