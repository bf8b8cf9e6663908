#!/usr/bin/env python3
"""Pooled weights on one CPU: two ranks of a core each as DP, FSDP and SiDP, and one rank of both cores as the ceiling.

usage: pooling.py FOREBAY [--rounds 3] [--quick] [--out FILE] [--profile FILE] [--prefix COMMAND]

The ranks have so little memory that DP's batch is under a quarter of the machine's compute/memory knee. Layouts take turns
within a round; figures are medians of the rounds. The simulator runs the same job on two devices of a profile of one core,
which share what both cores read at once (probes around the runs); its ratio of each layout to DP stands beside the real one. Probes stand
around each run; their range is printed.
"""
import argparse
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile

from machine import Machine, share_memory

# Qwen3-0.6B with a smaller vocabulary: heads are not pooled and would only make every step longer.
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 32768, "hidden_size": 1024,
    "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
    "head_dim": 128, "hidden_act": "silu", "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
    "rope_theta": 1000000, "tie_word_embeddings": True, "attention_bias": False, "torch_dtype": "bfloat16"}
REQUESTS, PROMPT, OUTPUT = 96, 80, 48  # four blocks of KV cache each; DP has three of them at once, 16 times a rank
RANK_MIB = 974
COMMON = ["--random-weights", "--skip-tokenizer-init", "--quiet", "--no-enable-prefix-caching", "--max-model-len", "128",
          "--max-num-seqs", "48", "--max-num-batched-tokens", "128", "--touch-kv", "1GiB"]
SIDP = ["--mode", "pull", "--pool-look-ahead", "1"]
# name, layout flags; all of two ranks but the last
LAYOUTS = [("DP", ["--layout", "dp=2"]),
           ("FSDP", ["--layout", "dp=2,weights=sharded,pool=28", "--mode", "gather", "--pool-look-ahead", "1"]),
           ("SiDP by_layer", ["--layout", "dp=2,weights=by_layer,pool=28", *SIDP]),
           ("SiDP striped", ["--layout", "dp=2,weights=striped,pool=28", *SIDP]),
           ("one rank, both cores", None)]


class Bench:
    def __init__(self, forebay, folder, prefix, config, rank_mib):
        self.forebay, self.folder, self.prefix = forebay, folder, prefix
        self.common, self.rank_mib = COMMON, rank_mib
        self.model = os.path.join(folder, "model")
        os.makedirs(self.model)
        with open(os.path.join(self.model, "config.json"), "w") as f:
            json.dump(config, f)

    def write_requests(self):
        rng = random.Random(7)
        with open(self.at("requests.jsonl"), "w") as f:
            for i in range(REQUESTS):
                f.write(json.dumps({"custom_id": str(i), "prompt": [rng.randrange(30000) for _ in range(PROMPT)],
                                    "max_tokens": OUTPUT, "ignore_eos": True, "temperature": 0}) + "\n")

    def at(self, name):
        return os.path.join(self.folder, name)

    def run(self, layout, devices, simulated=False):
        """The summary, with the mean batch of a rank's step that decodes."""
        for name in ("results.jsonl", "steps.jsonl"):
            if os.path.exists(self.at(name)):
                os.remove(self.at(name))
        if layout is None:
            flags = ["--memory", f"{2 * self.rank_mib}MiB"]
        else:
            flags = [*([] if "--memory-per-rank" in layout else ["--memory-per-rank", f"{self.rank_mib}MiB"]), *layout]
        command = [self.forebay, "run", "-m", self.model, "-i", self.at("requests.jsonl"), "--devices", devices, *self.common, *flags,
                   "--summary", self.at("summary.json"), "--steps", self.at("steps.jsonl")]
        command = command if simulated else [*self.prefix, *command, "-o", self.at("results.jsonl")]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        summary = json.load(open(self.at("summary.json")))
        decoding = [json.loads(line)["decode_rows"] for line in open(self.at("steps.jsonl"))]
        decoding = [rows for rows in decoding if rows > 0]
        summary["batch"] = sum(decoding) / len(decoding)
        summary["rate"] = summary["output_tokens"] / summary["elapsed_time"]
        return summary

    def profile_a_core(self, quick):
        """The path of a profile of one core, which says what all cores read at once."""
        path = self.at("core.json")
        done = subprocess.run([*self.prefix, self.forebay, "profile", "-o", path, "--threads", "1", *(["--quick"] if quick else [])],
                              stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"forebay profile failed\n{done.stderr}")
        return path


def number(profile, name):
    return profile["numbers"][name]["value"]


def median(summaries, value):
    return statistics.median(value(s) for s in summaries)


def counter(name, scale):
    return lambda s: s["mode_counters"].get(name, 0) * scale


def rows_of(real, simulated):
    rows, base = [], median(real["DP"], lambda s: s["rate"])
    for name, _ in LAYOUTS:
        runs, rates = real[name], [s["rate"] for s in real[name]]
        rate = statistics.median(rates)
        row = [name, f"{runs[0]['kv_capacity_tokens']}", f"{median(runs, lambda s: s['batch']):.1f}", f"{rate:.1f}",
               f"{100 * (max(rates) - min(rates)) / rate:.1f} %", f"{median(runs, counter('bytes_pulled', 1e-9)):.2f}",
               f"{median(runs, counter('copy_core_us', 1e-6)):.2f}", f"{median(runs, counter('compute_waited_us', 1e-6)):.2f}",
               f"{rate / base:.3f}"]
        if name in simulated:
            ratio = simulated[name]["rate"] / simulated["DP"]["rate"]
            row += [f"{simulated[name]['rate']:.1f}", f"{ratio:.3f}", f"{100 * (ratio / (rate / base) - 1):+.1f} %"]
        rows.append(row + [""] * (12 - len(row)))
    return rows


HEADER = ["layout", "KV tokens, all ranks", "batch of a rank", "tok/s", "spread", "GB pulled", "copy core-s", "waited s", "over DP",
          "simulated tok/s", "over DP", "error of the ratio"]


def parser_of(doc):
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forebay")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", help="a profile of one core that was measured before")
    parser.add_argument("--prefix", default="", help="what each measurement is run with")
    parser.add_argument("--out")
    return parser


def probes(reads):
    return (f"Probes around the runs read {statistics.median(reads) / 1e9:.1f} GB/s ({min(reads) / 1e9:.1f}-{max(reads) / 1e9:.1f}) "
            "with both cores")


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="a quick profile")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(os.path.abspath(args.forebay), folder, shlex.split(args.prefix), CONFIG, RANK_MIB)
        bench.write_requests()
        machine = Machine(bench.forebay, bench.prefix)
        path = os.path.abspath(args.profile) if args.profile else bench.profile_a_core(args.quick)
        profile = json.load(open(path))
        real = {name: [] for name, _ in LAYOUTS}
        for _ in range(args.rounds):
            for name, layout in LAYOUTS:
                real[name].append(machine.beside(lambda: bench.run(layout, "cpu" if layout is None else "2xcpu")))
        reads = [read for _, read in machine.seen]
        path = share_memory(profile, reads, bench.at("shared.json"))
        simulated = {name: bench.run(layout, f"sim:2x{path}", True) for name, layout in LAYOUTS if layout is not None}
    # A row of a decode step takes 2 operations a weight, which has 2 bytes.
    knee = number(profile, "bf16_flops") / number(profile, "memory_bytes_per_s")
    lines = ["| " + " | ".join(HEADER) + " |", "|---" * len(HEADER) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows_of(real, simulated)]
    batch = median(real["DP"], lambda s: s["batch"])
    lines += ["", f"{REQUESTS} requests of {PROMPT} + {OUTPUT} tokens, {RANK_MIB} MiB a rank; a core computes {number(profile, 'bf16_flops') / 1e9:.0f} "
              f"GFLOP/s, reads {number(profile, 'memory_bytes_per_s') / 1e9:.1f} GB/s and copies {number(profile, 'copy_bytes_per_core_s') / 1e9:.1f} GB/s: "
              f"the knee is at {knee:.1f} rows, DP's batch is {batch / knee:.2f} of it. {probes(reads)}"]
    wrong = [f"{name}: {simulated[name]['kv_capacity_tokens']} KV tokens simulated, {real[name][0]['kv_capacity_tokens']} real"
             for name in simulated if simulated[name]["kv_capacity_tokens"] != real[name][0]["kv_capacity_tokens"]]
    print("\n".join(lines + wrong))
    if args.out:
        with open(args.out, "w") as f:
            f.write("\n".join(lines) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
