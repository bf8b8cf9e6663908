#!/usr/bin/env python3
"""People beside a batch on two real ranks of a core each: what each of the two gets, mode by mode, and what gives way costs.

usage: traffic.py FOREBAY [--parts modes,paced,beside,burst,parked] [--rounds 5] [--seconds 120] [--layers 28] [--profile FILE] [--quick] [--out FILE]

Qwen3-0.6B's layers, requests of 512 + 24 tokens of people and of 512 + 128 of a batch of 200. Runs of a part take turns within a round, and are ended
after --seconds; figures are medians over rounds, those of the batch are its rows of steps up to there. Each part prints a table and its bars.

modes   a client that asks each 3 s, and the same with a burst of 16 each 20 s, beside the batch: sp=2 in each mode and in the cheaper one
paced   the same where a meeting takes as long as over the slow link of bench/shift.py. `sim` in both is the simulator by the same prices
beside  four clients that ask again and again: beside the batch, alone, the batch alone, and beside it under the policy `continuous`
burst   sixteen people at once into a batch that has all 32 places, and into an empty engine
parked  the same burst where what gives way is computed again, and where it is parked in memory

All parts take about three hours of a machine with nothing beside it. --quick shows in minutes that everything runs; its figures mean nothing.
"""
import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile

from machine import Machine
from shift import MODES, Bench

TTFT, TPOT, ITL, TARGET = ("interactive_median_ttft_ms", "interactive_mean_tpot_ms", "interactive_p95_itl_ms", "interactive_target_itl_ms")
P95_TTFT, LAST_TTFT = "interactive_p95_ttft_ms", "interactive_p99_ttft_ms"
POLICY = ["--scheduling-policy", "interactive"]
STARTUP = 30  # seconds, at most, before a run's first step


class Traffic(Bench):
    def __init__(self, args, folder):
        super().__init__(args, folder)
        self.seconds = args.seconds
        prompt, output = (32, 4) if args.quick else (512, 24)
        self.person = f"{prompt},{output}"
        self.clients = f"synthetic:n=100000,prompt={prompt},output={output},service=interactive"
        self.batch = f"synthetic:n=200,prompt={prompt},output={4 * output if args.quick else 128},service=batch"

    def people(self, name, arrivals):
        path = self.at(f"{name}.csv")
        with open(path, "w") as file:
            file.write("arrival,prompt,output,service\n")
            file.writelines(f"{at:.3f},{self.person},interactive\n" for at in sorted(arrivals))
        return path

    def run_until(self, seconds, flags):
        """The figures of a run that is ended once `seconds` of it are over."""
        steps, summary = self.at("steps.jsonl"), self.at("summary.json")
        for path in (steps, summary):
            if os.path.exists(path):
                os.remove(path)
        command = [self.args.forebay, "run", "-m", self.model, "--random-weights", "--skip-tokenizer-init", "--quiet", "--no-enable-prefix-caching",
                   "--max-model-len", "2048", "--max-num-batched-tokens", "1024", "--memory", "6GiB", "--steps", steps, "--summary", summary, *flags]
        simulated = any(flag.startswith("sim:") for flag in flags)
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            _, errors = process.communicate(timeout=None if simulated else seconds + self.startup)
        except subprocess.TimeoutExpired:
            # The first ends what is asked for, the second what runs; both leave the summary.
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=120)
        if not os.path.exists(summary):
            sys.exit(f"{' '.join(command)}\n{errors}")
        with open(summary) as file:
            figures = json.load(file)
        figures |= {key: figures["engine"][key] for key in ("preemptions", "recomputed_tokens")}
        with open(steps) as file:
            figures["steps_taken"] = [step for step in map(json.loads, file) if step["end"] <= seconds]
        of_batch = [step for step in figures["steps_taken"] if batch_rows(step) > 0]
        figures["batch_rows_per_second"] = sum(map(batch_rows, of_batch)) / of_batch[-1]["end"] if of_batch else 0
        return figures

    @property
    def startup(self):
        return 2 if self.args.quick else STARTUP

    def rounds(self, runs):
        """The figures of each of the named runs, a list by round; `runs` are (seconds, flags)."""
        found = {name: [] for name in runs}
        for _ in range(self.args.rounds):
            for name, (seconds, flags) in runs.items():
                found[name].append(self.run_until(seconds, flags))
        return found

    def modes(self, real, profile):
        """People beside a batch in each mode, and the simulator's figures."""
        chat = [i * 3 for i in range(int(self.seconds / 2 / 3))]
        bursts = [i * 3 for i in range(int(self.seconds / 3))] + [at for at in range(10, int(self.seconds), 20) for _ in range(16)]
        loads = {"chat": (self.seconds / 2, self.people("chat", chat)), "bursts": (self.seconds, self.people("bursts", bursts))}

        def flags(mode, path):
            return ["--trace", path, "--batch-trace", self.batch, "--layout", "sp=2", "--shift-mode", mode, *POLICY]
        runs = {(load, name): (seconds, [*flags(mode, path), *real]) for load, (seconds, path) in loads.items() for name, mode in MODES}
        machine = Machine(self.args.forebay)
        found = machine.beside(lambda: self.rounds(runs))
        simulated_ranks = self.simulated(profile, [read for _, read in machine.seen])
        lines = ["| load | mode | median TTFT, ms | sim | mean TPOT, ms | sim | p95 ITL, ms | rows/s in bursts | sim | switches | % of steps in 1x2 |",
                 "|---" * 11 + "|"]
        real_of, sim_of = {}, {}
        for load, (seconds, path) in loads.items():
            for name, mode in MODES:
                simulated = self.run_until(seconds, [*flags(mode, path), *simulated_ranks])
                sim_of[load, name] = {key: simulated[key] for key in (TTFT, TPOT)} | {"burst": burst_rows(simulated)}
                one = found[load, name]
                real_of[load, name] = {key: median(one, key) for key in (TTFT, TPOT, ITL)} | {"burst": statistics.median(map(burst_rows, one))}
                ours, sim, counters = real_of[load, name], sim_of[load, name], one[-1]["mode_counters"]
                steps = {key: value for key, value in counters.items() if key.startswith("steps_sp")}
                share = 100 * steps.get("steps_sp1tp2", 0) / max(1, sum(steps.values()))
                lines.append(f"| {load} | {name} | {ours[TTFT]:.0f} | {sim[TTFT]:.0f} | {ours[TPOT]:.1f} | {sim[TPOT]:.1f} | {ours[ITL]:.1f} | "
                             f"{ours['burst']:.0f} | {sim['burst']:.0f} | {counters.get('shift_switches', 0)} | {share:.1f} |")

        def over(of, load, key, name):
            return of[load, "auto"][key] / of[load, name][key] if of[load, name][key] else float("nan")
        better = max(("SP", "TP"), key=lambda name: real_of["bursts", name]["burst"])
        bars = [("between bursts, auto's TPOT over TP's", "<= 1.05", "chat", TPOT, "TP"), ("its TTFT over SP's", "<= 1.05", "chat", TTFT, "SP"),
                (f"in bursts, its rows/s over {better}'s, the better", ">= 0.97", "bursts", "burst", better)]
        lines.append("")
        for what, wanted, load, key, name in bars:
            ours, sim = over(real_of, load, key, name), over(sim_of, load, key, name)
            lines.append(f"- {what} (wanted {wanted}): {ours:.3f}; simulated {sim:.3f}, {100 * abs(ours / sim - 1):.0f} % apart (wanted <= 15)")
        return lines

    def beside(self, ranks):
        clients = ["--trace", self.clients, "--max-concurrency", "4"]
        both = [*clients, "--batch-trace", self.batch]
        found = self.rounds({"beside it": (self.seconds, [*both, *POLICY, *ranks]),
                             "people alone": (self.seconds, [*clients, *POLICY, *ranks]),
                             "batch alone": (self.seconds, ["--trace", self.batch, *POLICY, *ranks]),
                             "under continuous": (self.seconds, [*both, "--scheduling-policy", "continuous", *ranks])})
        lines = ["| four clients | p95 TTFT, ms | p95 ITL, ms | batch, rows/s |", "|---|---|---|---|"]
        lines += [f"| {name} | {median(runs, P95_TTFT):.0f} | {median(runs, ITL):.1f} | {median(runs, 'batch_rows_per_second'):.0f} |"
                  for name, runs in found.items()]
        ours, alone, batch, blind = found.values()
        target = median(ours, TARGET)
        lines.append("")
        for name, runs in (("interactive", ours), ("continuous", blind)):
            ttft = median(runs, P95_TTFT) / median(alone, P95_TTFT)
            rate = median(runs, "batch_rows_per_second") / max(1e-9, median(batch, "batch_rows_per_second"))
            lines.append(f"- {name}: p95 ITL over the target of {target:.1f} ms {median(runs, ITL) / target:.2f} (wanted <= 1.2), p95 TTFT over that alone "
                         f"{ttft:.2f} (<= 2), the batch's rate over that alone {rate:.2f} (>= 0.5)")
        return lines

    def burst_flags(self, more):
        return ["--trace", self.people("burst", [10.0] * 16), "--max-num-seqs", "32", *POLICY, *more]

    def burst(self, ranks):
        seconds = self.seconds / 2
        found = self.rounds({"a full batch": (seconds, self.burst_flags(["--batch-trace", self.batch, *ranks])),
                             "an empty engine": (seconds, self.burst_flags(ranks))})
        last = {name: median(runs, LAST_TTFT) for name, runs in found.items()}
        lines = ["| a burst of 16 into | last first token, ms | preemptions |", "|---|---|---|"]
        lines += [f"| {name} | {last[name]:.0f} | {median(runs, 'preemptions'):.0f} |" for name, runs in found.items()]
        return [*lines, "", f"- into a full batch over an empty engine (wanted <= 1.2): {last['a full batch'] / last['an empty engine']:.2f}"]

    def parked(self, ranks):
        seconds = self.seconds / 2
        beside = self.burst_flags(["--batch-trace", self.batch, *ranks])
        found = self.rounds({"computed again": (seconds, beside),
                             "parked": (seconds, [*beside, "--kv-offloading-size", "2GiB", "--kv-preempt", "park"])})
        lines = ["| what gives way is | last first token, ms | p95 ITL, ms | batch, rows/s | preemptions | tokens computed again |", "|---" * 6 + "|"]
        return lines + [f"| {name} | {median(runs, LAST_TTFT):.0f} | {median(runs, ITL):.1f} | {median(runs, 'batch_rows_per_second'):.0f} | "
                        f"{median(runs, 'preemptions'):.0f} | {median(runs, 'recomputed_tokens'):.0f} |" for name, runs in found.items()]


def batch_rows(step):
    return step["decode_rows"] + step["prefill_rows"] - step.get("interactive_decode_rows", 0) - step.get("interactive_prefill_rows", 0)


def burst_rows(figures):
    """Rows a second of all steps that end within eight seconds of a burst."""
    rows = sum(step["decode_rows"] + step["prefill_rows"] for step in figures["steps_taken"] if step["end"] % 20 > 10 and step["end"] % 20 <= 18)
    return rows / max(1e-9, sum(step["end"] - step["begin"] for step in figures["steps_taken"] if 10 < step["end"] % 20 <= 18))


def median(runs, key):
    """Of what the runs have. A run of one service has its latencies without the service's name."""
    values = [run.get(key, run.get(key.removeprefix("interactive_"))) for run in runs]
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forebay")
    parser.add_argument("--parts", default="modes,paced,beside,burst,parked", help="those that are made")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=120, help="of a run")
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--profile", help="a profile of one core that was measured before")
    parser.add_argument("--quick", action="store_true", help="a round of short runs: shows that it works")
    parser.add_argument("--out")
    args = parser.parse_args()
    args.forebay = os.path.abspath(args.forebay)
    if args.quick:
        args.rounds, args.layers, args.seconds = 1, 2, 24
    with tempfile.TemporaryDirectory() as folder:
        bench = Traffic(args, folder)
        core, paced, gbps = bench.profiles()
        ranks = ["--devices", "2xcpu", "--device-profile", core]
        slow = ["--devices", "2xcpu", "--device-profile", paced, "--link-gbps", f"{gbps:.9f}"]
        two = ["--layout", "sp=2", *ranks]
        parts = {"modes": lambda: bench.modes(ranks, core), "paced": lambda: [f"{gbps:.3f} GB/s to a rank", "", *bench.modes(slow, paced)],
                 "beside": lambda: bench.beside(two), "burst": lambda: bench.burst(two), "parked": lambda: bench.parked(two)}
        lines = [f"{os.cpu_count()} cores, {platform.processor() or platform.machine()}; {args.layers} of Qwen3-0.6B's layers, two ranks of a core, "
                 f"{args.rounds} rounds of {args.seconds:g} s"]
        for name in args.parts.split(","):
            lines += ["", f"*{name}*", "", *parts[name]()]
            print(f"{name} is done", file=sys.stderr)
        lines += ["", f"Load at the end {os.getloadavg()[0]:.1f}"]
    text = "\n".join(lines) + "\n"
    print(text)
    if args.out:
        with open(args.out, "w") as file:
            file.write(text)


if __name__ == "__main__":
    main()
