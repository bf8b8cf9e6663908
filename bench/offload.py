#!/usr/bin/env python3
"""KV cache below the device, in a file and in memory, beside the same jobs without.

usage: offload.py FOREBAY FOLDER [--rounds N] [--rows park,kept,long,stream,budgets] [--profile NAME] [--out FILE]
FOLDER is on the disk that is measured. In turns, median.
park: 24 requests of 32 tokens whose outputs nobody knows (a stop id in 192 draws), KV for 8 choices of 192; preempted ones are computed again, or
wait in a file. kept: 6 documents of 2,048 tokens x 4 questions, a first job, and a second one on what it kept. long: a prompt of 8,192 tokens, KV
for 2,048, the rest read from memory layer by layer; prompt and decoding apart. stream: TinyLlama's shape, 12 requests, KV for 3; all of them
resident, or the rest in memory. budgets: eight of these layers, requests of two kinds (a twentieth of the lengths of translation and of summarization),
KV for 3, 5 and 8 choices; `auto` over the better of `off` and `always` in each of the six. Each job is simulated too, by --profile and with the lengths that came out: times are of the steps alone.
"""
import argparse
import json
import mmap
import os
import random
import statistics
import subprocess
import tempfile
import time

from shapes import QWEN3_06B, TINYLLAMA_11B
from turns import HEAD, in_turns, machine, table

VOCABULARY = 32768
STOP_IDS = VOCABULARY // 192
BLOCK = 32
MODELS = {
    "qwen": QWEN3_06B | {"vocab_size": VOCABULARY, "eos_token_id": 0, "max_position_embeddings": 16384},
    "tinyllama": TINYLLAMA_11B,
    "tinyllama8": TINYLLAMA_11B | {"num_hidden_layers": 8},
}
# How many requests, and the mean and spread of their prompts and outputs.
LENGTHS = {"translation": (14, (53, 14), (81, 20)), "summarization": (22, (127, 45), (13, 6))}
BUDGETS = (3, 5, 8)


def disk_rates(folder, megabytes=256):
    """GB/s written and read past the page cache by one thread, in requests of 2 MiB."""
    size, path = 2 << 20, os.path.join(folder, "rate")
    data = mmap.mmap(-1, size)
    data.write(os.urandom(size))
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    rates = []
    for move in (os.pwritev, os.preadv):
        began = time.monotonic()
        for at in range(0, megabytes << 20, size):
            move(file, [data], at)
        rates.append(megabytes * (1 << 20) / (time.monotonic() - began) / 1e9)
    os.close(file)
    os.remove(path)
    return rates


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder, self.jobs, self.summaries, self.simulated, self.phases = args, folder, {}, {}, {}, {}
        self.ratios = {}  # of the cells of `budgets`: `auto` over the better of the others
        for name, config in MODELS.items():
            os.mkdir(os.path.join(folder, name))
            with open(os.path.join(folder, name, "config.json"), "w") as file:
                json.dump(config, file)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, requests):
        with open(self.path(name + ".jsonl"), "w") as file:
            for i, request in enumerate(requests):
                file.write(json.dumps({"custom_id": str(i), **request}) + "\n")
        return self.path(name + ".jsonl")

    def file(self, size):
        return ["--kv-file", self.path("kv"), "--kv-file-size", size]

    def remove(self, *names):
        for name in names:
            if os.path.exists(self.path(name)):
                os.remove(self.path(name))

    def forebay(self, *flags):
        subprocess.run([self.args.forebay, "run", "--random-weights", "--skip-tokenizer-init", "--quiet", "--summary", self.path("summary.json"),
                        "--steps", self.path("steps.jsonl"), *flags], check=True)
        with open(self.path("summary.json")) as file:
            return json.load(file)

    def run(self, row, way, model, requests, *flags):
        results = f"{row} {way}.jsonl"
        self.remove(results)
        self.jobs[row, way] = ["-m", self.path(model), "-i", requests, *flags]
        self.summaries.setdefault((row, way), []).append(self.forebay(*self.jobs[row, way], "-o", self.path(results)))
        with open(self.path("steps.jsonl")) as file:
            steps = [json.loads(line) for line in file]
        self.phases.setdefault((row, way), []).append(
            [sum(step["end"] - step["begin"] for step in steps if (step["prefill_rows"] > 0) == prompts) for prompts in (True, False)])

    def simulate(self):
        """What has run, with the lengths that came out; a simulated file keeps nothing."""
        for (row, way), job in self.jobs.items():
            if "--kv-file-keep" in job:
                continue
            flags = [flag for i, flag in enumerate(job) if "--device-profile" not in job[max(0, i - 1):i + 1]]
            self.simulated[row, way] = self.forebay(*flags, "--devices", "sim:" + self.args.profile, "--output-lengths", self.path(f"{row} {way}.jsonl"))

    def park(self):
        rng = random.Random(1)
        stops = list(range(1, 1 + STOP_IDS))
        requests = self.write("park", [{"prompt": [rng.randrange(1 + STOP_IDS, VOCABULARY) for _ in range(32)], "max_tokens": 512, "temperature": 1,
                                        "seed": i, "ignore_eos": True, "stop_token_ids": stops} for i in range(24)])
        flags = ["--max-model-len", "768", "--no-enable-prefix-caching", "--num-kv-blocks-override", str(8 * 192 // BLOCK)]
        ways = {"computed again": lambda: self.run("park", "computed again", "qwen", requests, *flags),
                "parked in a file": lambda: self.run("park", "parked in a file", "qwen", requests, *flags, *self.file("2GiB"), "--kv-preempt", "park")}
        return in_turns(ways, self.args.rounds)

    def kept(self):
        rng = random.Random(2)
        ids = lambda count: [rng.randrange(1, VOCABULARY) for _ in range(count)]
        documents = [ids(2048) for _ in range(6)]
        requests = self.write("kept", [{"prompt": documents[i % 6] + ids(32), "max_tokens": 16, "temperature": 0, "ignore_eos": True} for i in range(24)])
        keep = ["--max-model-len", "4096", "--kv-file", self.path("kept"), "--kv-file-size", "4GiB", "--kv-file-keep"]
        # The second follows the first in each round.
        times = {"first job": [], "second job": []}
        for _ in range(self.args.rounds):
            self.remove("kept", "kept.index")
            for way in times:
                began = time.monotonic()
                self.run("kept", way, "qwen", requests, *keep)
                times[way].append(time.monotonic() - began)
        return times

    def long(self):
        rng = random.Random(3)
        requests = self.write("long", [{"prompt": [rng.randrange(1, VOCABULARY) for _ in range(8192)], "max_tokens": 32, "temperature": 0,
                                        "ignore_eos": True}])
        flags = ["--max-model-len", "8448", "--max-num-batched-tokens", "512", "--max-num-seqs", "1"]
        few = ["--num-kv-blocks-override", str(2048 // BLOCK), "--kv-offload", "always"]
        ways = {"all resident": lambda: self.run("long", "all resident", "qwen", requests, *flags),
                "streamed": lambda: self.run("long", "streamed", "qwen", requests, *flags, *few, "--kv-offloading-size", "2GiB"),
                "streamed from a file": lambda: self.run("long", "streamed from a file", "qwen", requests, *flags, *few, *self.file("2GiB"))}
        return in_turns(ways, self.args.rounds)

    def stream(self):
        rng = random.Random(4)
        requests = self.write("stream", [{"prompt": [rng.randrange(3, 32000) for _ in range(128)], "max_tokens": 64, "temperature": 0,
                                          "ignore_eos": True} for _ in range(12)])
        flags = ["--max-model-len", "256", "--max-num-seqs", "12", "--no-enable-prefix-caching"]
        few = ["--num-kv-blocks-override", str(3 * 192 // BLOCK), "--mean-context", "160", "--device-profile", self.args.profile]
        below = {"": ["--kv-offloading-size", "1GiB"], ", file": self.file("1GiB")}
        plans = {plan + name: lambda plan=plan, name=name: self.run("stream", plan + name, "tinyllama", requests, *flags, *few, *below[name],
                                                                     "--kv-offload", plan)
                 for name in below for plan in ("off", "auto", "always")}
        return in_turns(plans | {"all resident": lambda: self.run("stream", "all resident", "tinyllama", requests, *flags)}, self.args.rounds)

    def budgets(self):
        cells = {}
        for trace, (count, prompt, output) in LENGTHS.items():
            rng = random.Random(5)
            lengths = [[max(4, round(rng.gauss(*of))) for of in (prompt, output)] for _ in range(count)]
            requests = self.write(trace, [{"prompt": [rng.randrange(3, 32000) for _ in range(tokens)], "max_tokens": more, "temperature": 0,
                                           "ignore_eos": True} for tokens, more in lengths])
            longest = max(map(sum, lengths))
            for choices in BUDGETS:
                # A choice of the mean length, and always the longest one.
                blocks = max(choices * -(-(prompt[0] + output[0]) // BLOCK), -(-longest // BLOCK))
                flags = ["--max-model-len", str(-(-longest // BLOCK) * BLOCK), "--max-num-seqs", str(count), "--no-enable-prefix-caching",
                         "--num-kv-blocks-override", str(blocks), "--kv-offloading-size", "1GiB", "--device-profile", self.args.profile]
                row = f"budgets: {trace}, KV for {choices}"
                cells[row] = in_turns({plan: lambda plan=plan: self.run(row, plan, "tinyllama8", requests, *flags, "--kv-offload", plan)
                                 for plan in ("off", "auto", "always")}, self.args.rounds)
                auto, *others = (statistics.median(cells[row][plan]) for plan in ("auto", "off", "always"))
                self.ratios[row] = auto / min(others)
        return cells

    def counters(self):
        yield "| job | way | steps, of prompts s, of decoding s | simulated: steps, s | measured / simulated |"
        yield "|---|---|---|---|---|"
        for key, summaries in self.summaries.items():
            prompts, decoding = (statistics.median(times) for times in zip(*self.phases[key]))
            line = f"| {key[0]} | {key[1]} | {summaries[-1]['engine']['steps']}, {prompts:.2f}, {decoding:.2f} |"
            if key not in self.simulated:
                yield line + " | |"
                continue
            simulated = self.simulated[key]["engine"]
            real = statistics.median(summary["engine"]["step_seconds"] for summary in summaries)
            yield f"{line} {simulated['steps']}, {simulated['step_seconds']:.2f} | {real / simulated['step_seconds']:.2f} |"
        yield ""
        yield "| job | way | rows computed | recomputed | parks | written MB | read MB | streamed MB | waited for KV s | found below | lost |"
        yield "|---|---|---|---|---|---|---|---|---|---|---|"
        for (row, way), summaries in self.summaries.items():
            rows, again = (statistics.median(summary["engine"][name] for summary in summaries) for name in ("computed_tokens", "recomputed_tokens"))
            count = summaries[-1]["mode_counters"].get
            yield (f"| {row} | {way} | {rows:.0f} | {again:.0f} | {count('kv_parks', 0)} | {count('kv_file_bytes_written', 0) / 1e6:.0f} | "
                   f"{count('kv_file_bytes_read', 0) / 1e6:.0f} | "
                   f"{count('kv_bytes_streamed', 0) / 1e6:.0f} | {count('waited_kv_us', 0) / 1e6:.2f} | {count('prefix_blocks_hit_below', 0)} | {count('kv_blocks_failed', 0)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forebay")
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", default="park,kept,long,stream,budgets")
    parser.add_argument("--profile", default="zen4")
    parser.add_argument("--out")
    args = parser.parse_args()
    args.forebay = os.path.abspath(args.forebay)
    with tempfile.TemporaryDirectory(prefix="forebay-offload-", dir=args.folder) as folder:
        bench = Bench(args, folder)
        written, read = disk_rates(folder)
        lines = []

        def say(*more):
            """What is done is shown: a row takes minutes."""
            lines.extend(more)
            print("\n".join(more), flush=True)

        say(f"{machine()}; Qwen3-0.6B's layers, vocabulary {VOCABULARY:,}; disk, one thread: {written:.2f} GB/s written, {read:.2f} read", "", *HEAD)
        for row in args.rows.split(","):
            times = getattr(bench, row)()
            for job, ways in (times if row == "budgets" else {row: times}).items():
                say(*table(job, ways))
        say(*(f"{cell}: auto {ratio:.3f} of the better of off and always, <= 1.03 wanted" for cell, ratio in bench.ratios.items()))
        bench.simulate()
        say("", *bench.counters(), "", "disk afterwards: {:.2f} GB/s written, {:.2f} read".format(*disk_rates(folder)))
    if args.out:
        with open(args.out, "w") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
