#!/usr/bin/env python3
"""Steps of two ranks of a core each that cut rows (SP), cut weights (TP), or take whichever is cheaper by price, by rows of a step.

usage: shift.py FOREBAY [--rounds 3] [--prompts 8] [--layers 28] [--profile FILE] [--tables rows,paced,time] [--quick] [--out FILE]

A step is that of one prompt of so many tokens, so attention is the same in all modes. Modes take turns within a round; figures are medians
over all steps of all rounds, with the range of the rounds' medians. Probes (limits_probe, built beside the program) stand around each round, and the
simulator's two ranks share what these say that both cores read at once. Bytes are what ranks read from each other in linear layers, of a row and layer:
the counters of the run, which tests hold to the closed forms. The simulator prices the same steps by the profile of a core; its ratio of SP to TP
stands beside the real one.

A second table is *paced*: a meeting takes as long as what it brings over a link of 2,200 bf16 operations a byte, as the H200's, and prices of the
choice are of such a link. A third, paced too, has requests that come over time, one at a time and all in a burst. It shows the mechanism, the choice
and the prediction on this machine; it proves no gain on another.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile

from machine import Machine, share_memory
from pooling import CONFIG

ROWS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
MODES = [("SP", "2x1"), ("TP", "1x2"), ("auto", "auto")]
FLOPS_PER_LINK_BYTE = 2200  # 989.5e12 over 450e9
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "copy")


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.model = self.at("model")
        os.makedirs(self.model)
        with open(os.path.join(self.model, "config.json"), "w") as file:
            json.dump(CONFIG | {"num_hidden_layers": args.layers}, file)

    def at(self, name):
        return os.path.join(self.folder, name)

    def call(self, *command):
        done = subprocess.run([self.args.forebay, *command], stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stderr}")

    def profiles(self):
        """The profile of a core, the same with a slow link, and that link's GB/s."""
        core = os.path.abspath(self.args.profile) if self.args.profile else self.at("core.json")
        if not self.args.profile:
            self.call("profile", "-o", core, "--threads", "1", *(["--quick"] if self.args.quick else []))
        with open(core) as file:
            profile = json.load(file)
        link = profile["numbers"]["bf16_flops"]["value"] / FLOPS_PER_LINK_BYTE
        profile["numbers"]["link_bytes_per_s"] = {"value": link, "mark": "derived", "source": "the link of the paced runs"}
        profile["tables"] = [table for table in profile["tables"] if table["op"] not in COLLECTIVES]
        with open(self.at("paced.json"), "w") as file:
            json.dump(profile, file)
        return core, self.at("paced.json"), link * 1e-9

    def run(self, trace, flags):
        """The summary and the steps of a trace."""
        steps, summary = self.at("steps.jsonl"), self.at("summary.json")
        self.call("run", "-m", self.model, "--trace", trace, "--layout", "sp=2", "--random-weights", "--skip-tokenizer-init", "--quiet",
                  "--no-enable-prefix-caching", "--max-model-len", "2048", "--max-num-batched-tokens", "1024", "--memory", "6GiB",
                  "--steps", steps, "--summary", summary, *flags)
        with open(steps) as file:
            taken = [json.loads(line) for line in file]
        with open(summary) as file:
            return json.load(file), taken

    def steps_of(self, mode, rows, flags, prompts):
        """Milliseconds of the steps of so many rows, the degrees that they took, and bytes by row and layer."""
        summary, taken = self.run(f"synthetic:n={prompts},prompt={rows},output=1", ["--shift-mode", mode, "--max-num-seqs", "1", *flags])
        taken = [step for step in taken if step["prefill_rows"] + step["decode_rows"] == rows]
        if len(taken) != prompts:
            sys.exit(f"{mode}, {rows} rows: {len(taken)} steps of {prompts}")
        counters = summary["mode_counters"]
        moved = counters.get("bytes_all_reduce", 0) + counters.get("bytes_all_to_all", 0)
        times = [1e3 * (step["end"] - step["begin"]) for step in taken[1:] or taken]  # the first finds cold caches
        return {"ms": times, "mode": f"{taken[-1]['sp']}x{taken[-1]['tp']}", "bytes": moved / prompts / rows / self.args.layers}

    def simulated(self, path, reads):
        """Flags of two devices of a profile, which share what both cores read."""
        with open(path) as file:
            return ["--devices", f"sim:2x{share_memory(json.load(file), reads, self.at('shared.json'))}"]

    def by_rows(self, real, profile):
        """A table of steps by rows, and what was wanted of it: `real` are the devices' flags, `profile` is the path of what prices them."""
        found, rows_of = {}, ROWS[:5:2] if self.args.quick else ROWS
        machine = Machine(self.args.forebay)

        def take_turns():
            for rows in rows_of:
                for name, mode in MODES:
                    found.setdefault((rows, name), []).append(self.steps_of(mode, rows, real, self.args.prompts))
        for _ in range(self.args.rounds):
            machine.beside(take_turns)
        reads = [read for _, read in machine.seen]
        simulated = self.simulated(profile, reads)
        lines = ["| rows | SP, ms | TP, ms | SP by TP | simulated | auto, ms | over the better | it takes | SP, bytes | TP, bytes |",
                 "|---|---|---|---|---|---|---|---|---|---|"]
        ratios, priced_ratios, over, spread = [], [], [], []
        for rows in rows_of:
            cells, medians = {}, {}
            for name, _ in MODES:
                rounds = [statistics.median(one["ms"]) for one in found[rows, name]]
                medians[name] = statistics.median(t for one in found[rows, name] for t in one["ms"])
                cells[name] = f"{medians[name]:.2f} ({min(rounds):.2f} to {max(rounds):.2f})"
            priced = {name: statistics.median(self.steps_of(mode, rows, simulated, 2)["ms"]) for name, mode in MODES[:2]}
            ratios.append(medians["SP"] / medians["TP"])
            priced_ratios.append(priced["SP"] / priced["TP"])
            better = min(MODES[:2], key=lambda mode: medians[mode[0]])[0]
            over.append(medians["auto"] / medians[better])
            times = [t for one in found[rows, better] for t in one["ms"]]
            spread.append(max(times) / medians[better])
            lines.append(f"| {rows} | {cells['SP']} | {cells['TP']} | {ratios[-1]:.2f} | {priced_ratios[-1]:.2f} | "
                         f"{cells['auto']} | {over[-1]:.2f} | {found[rows, 'auto'][-1]['mode']} | "
                         f"{found[rows, 'SP'][-1]['bytes']:.0f} | {found[rows, 'TP'][-1]['bytes']:.0f} |")
        # The first of the rows from which on SP is the shorter.
        crosses = next((i for i in range(len(rows_of)) if all(ratio < 1 for ratio in ratios[i:])), len(rows_of))
        changes = next((i for i, rows in enumerate(rows_of) if found[rows, "auto"][-1]["mode"] == MODES[0][1]), len(rows_of))
        apart = [ratio / priced for ratio, priced in zip(ratios, priced_ratios)]
        of = [f"{rows}" for rows in rows_of] + ["none"]
        wanted = [(f"SP by TP of {of[0]}, {of[1]} and {of[-2]} rows", f"{ratios[0]:.2f}, {ratios[1]:.2f}, {ratios[-1]:.2f}"),
                  ("rows from which SP is shorter; from which auto takes it", f"{of[crosses]}; {of[changes]}: {abs(crosses - changes)} apart in this list"),
                  ("SP by TP over the simulator's, least and most", f"{min(apart):.2f}, {max(apart):.2f}"),
                  ("auto over the better, most; the better's own slowest over its median", f"{max(over):.2f}; {max(spread):.2f}"),
                  ("both cores read at once, median and range of the probes",
                   f"{statistics.median(reads) / 1e9:.1f} GB/s, {min(reads) / 1e9:.1f} to {max(reads) / 1e9:.1f}")]
        return [*lines, "", *(f"- {what}: {figure}" for what, figure in wanted)]

    def over_time(self, real):
        """A table of requests that come over time, and what was wanted of it."""
        n, prompt, output = (4, 32, 4) if self.args.quick else (8, 512, 24)
        traffic = [("one at a time", ["--max-concurrency", "1"]), ("in a burst", ["--arrivals", self.at("burst.txt")])]
        with open(self.at("burst.txt"), "w") as file:
            file.writelines(f"{0.001 * i}\n" for i in range(n))
        lines = [f"| {n} requests of {prompt} + {output} | mode | mean TTFT, ms | mean TPOT, ms | tok/s |", "|---|---|---|---|---|"]
        found = {}
        for _ in range(self.args.rounds):
            for what, flags in traffic:
                for name, mode in MODES:
                    summary, _ = self.run(f"synthetic:n={n},prompt={prompt},output={output}", ["--shift-mode", mode, *flags, *real])
                    found.setdefault((what, name), []).append((summary["mean_ttft_ms"], summary["mean_tpot_ms"],
                                                              n * (prompt + output) / summary["elapsed_time"]))
        medians = {key: [statistics.median(values) for values in zip(*rounds)] for key, rounds in found.items()}
        for (what, name), (ttft, tpot, rate) in medians.items():
            lines.append(f"| {what} | {name} | {ttft:.1f} | {tpot:.2f} | {rate:.1f} |")
        (alone, _), (burst, _) = traffic
        rates = {name: medians[burst, name][2] for name, _ in MODES}
        return [*lines, "",
                f"- auto's TTFT over SP's, its TPOT over TP's, one at a time: {medians[alone, 'auto'][0] / medians[alone, 'SP'][0]:.2f}, "
                f"{medians[alone, 'auto'][1] / medians[alone, 'TP'][1]:.2f}",
                f"- auto's tok/s over the better's, in a burst: {rates['auto'] / max(rates['SP'], rates['TP']):.2f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forebay")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--layers", type=int, default=CONFIG["num_hidden_layers"])
    parser.add_argument("--profile", help="a profile of one core that was measured before")
    parser.add_argument("--tables", default="rows,paced,time", help="those that are made")
    parser.add_argument("--quick", action="store_true", help="fewer rows and requests: shows that it works")
    parser.add_argument("--out")
    args = parser.parse_args()
    args.forebay = os.path.abspath(args.forebay)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, folder)
        core, paced, gbps = bench.profiles()
        slow = ["--devices", "2xcpu", "--device-profile", paced, "--link-gbps", f"{gbps:.9f}"]
        tables = {"rows": lambda: bench.by_rows(["--devices", "2xcpu", "--device-profile", core], core),
                  "paced": lambda: [f"*Paced*: {gbps:.3f} GB/s to a rank", "", *bench.by_rows(slow, paced)],
                  "time": lambda: [f"*Paced*: {gbps:.3f} GB/s to a rank", "", *bench.over_time(slow)]}
        lines = [f"{os.cpu_count()} cores, {platform.processor() or platform.machine()}; Qwen3-0.6B's layers, {args.layers} of them, vocabulary "
                 "32,768, two ranks of a core"]
        for name in args.tables.split(","):
            lines += ["", *tables[name]()]
        lines += ["", f"Load at the end {os.getloadavg()[0]:.1f}"]
    text = "\n".join(lines) + "\n"
    print(text)
    if args.out:
        with open(args.out, "w") as file:
            file.write(text)


if __name__ == "__main__":
    main()
