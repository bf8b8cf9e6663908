#!/usr/bin/env python3
"""KV cache in a file: preempted choices that wait there beside ones that are computed again, and the next job on a kept file.

usage: offload.py FOREBAY FOLDER [--rounds N] [--rows park,kept] [--layers N] [--requests N] [--out FILE]
FOLDER is on the disk that is measured. park: --requests of 256 tokens whose outputs nobody knows (a stop id in 256 draws, the bound is the
context), KV for 8 choices of 512. kept: 6 documents of 2,048 tokens x 4 questions, a first job, and a second one on what it kept. In turns, median.
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

from shapes import QWEN3_06B
from turns import HEAD, in_turns, machine, table

VOCABULARY = 32768
STOP_IDS = VOCABULARY // 256
BLOCK = 32


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
        self.args, self.folder, self.summaries = args, folder, {}
        self.model = os.path.join(folder, "model")
        os.mkdir(self.model)
        config = QWEN3_06B | {"num_hidden_layers": args.layers, "vocab_size": VOCABULARY, "eos_token_id": 0, "max_position_embeddings": 4096}
        with open(os.path.join(self.model, "config.json"), "w") as file:
            json.dump(config, file)

    def write(self, name, requests):
        path = os.path.join(self.folder, name + ".jsonl")
        with open(path, "w") as file:
            for i, request in enumerate(requests):
                file.write(json.dumps({"custom_id": str(i), **request}) + "\n")
        return path

    def run(self, row, way, requests, *flags):
        output, summary = (os.path.join(self.folder, name) for name in ("results.jsonl", "summary.json"))
        for path in (output, summary):
            if os.path.exists(path):
                os.remove(path)
        subprocess.run([self.args.forebay, "run", "-m", self.model, "-i", requests, "-o", output, "--summary", summary, "--random-weights",
                        "--skip-tokenizer-init", "--quiet", *flags], check=True)
        with open(summary) as file:
            self.summaries.setdefault((row, way), []).append(json.load(file))

    def park(self):
        rng = random.Random(1)
        stops = list(range(1, 1 + STOP_IDS))
        requests = self.write("park", [{"prompt": [rng.randrange(1 + STOP_IDS, VOCABULARY) for _ in range(256)], "max_tokens": 1024, "temperature": 1,
                                        "seed": i, "ignore_eos": True, "stop_token_ids": stops} for i in range(self.args.requests)])
        flags = ["--max-model-len", "2048", "--no-enable-prefix-caching", "--num-kv-blocks-override", str(8 * 512 // BLOCK)]
        file = ["--kv-file", os.path.join(self.folder, "kv"), "--kv-file-size", "4GiB", "--kv-preempt", "park"]
        ways = {"computed again": lambda: self.run("park", "computed again", requests, *flags),
                "parked in a file": lambda: self.run("park", "parked in a file", requests, *flags, *file)}
        return in_turns(ways, self.args.rounds)

    def kept(self):
        rng = random.Random(2)
        ids = lambda count: [rng.randrange(1, VOCABULARY) for _ in range(count)]
        documents = [ids(2048) for _ in range(6)]
        requests = self.write("kept", [{"prompt": documents[i % 6] + ids(32), "max_tokens": 16, "temperature": 0, "ignore_eos": True} for i in range(24)])
        path = os.path.join(self.folder, "kept")
        keep = ["--max-model-len", "4096", "--kv-file", path, "--kv-file-size", "4GiB", "--kv-file-keep"]

        def first():
            for name in (path, path + ".index"):
                if os.path.exists(name):
                    os.remove(name)
            self.run("kept", "first job", requests, *keep)

        ways = {"first job": first, "second job": lambda: self.run("kept", "second job", requests, *keep)}
        # The second follows the first in each round.
        times = {way: [] for way in ways}
        for _ in range(self.args.rounds):
            for way, job in ways.items():
                began = time.monotonic()
                job()
                times[way].append(time.monotonic() - began)
        return times

    def counters(self):
        yield "| job | way | rows computed | recomputed | parks | written MB | read MB | found below | lost |"
        yield "|---|---|---|---|---|---|---|---|---|"
        for (row, way), summaries in self.summaries.items():
            rows, again = (statistics.median(summary["engine"][name] for summary in summaries) for name in ("computed_tokens", "recomputed_tokens"))
            count = summaries[-1]["mode_counters"].get
            yield (f"| {row} | {way} | {rows:.0f} | {again:.0f} | {count('kv_parks', 0)} | {count('kv_file_bytes_written', 0) / 1e6:.0f} | "
                   f"{count('kv_file_bytes_read', 0) / 1e6:.0f} | {count('prefix_blocks_hit_below', 0)} | {count('kv_blocks_failed', 0)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forebay")
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", default="park,kept")
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--requests", type=int, default=32)
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

        say(f"{machine()}; Qwen3-0.6B's layers, {args.layers} of them, vocabulary {VOCABULARY:,}; disk, one thread: {written:.2f} GB/s written, "
            f"{read:.2f} read", "", *HEAD)
        for row in args.rows.split(","):
            say(*table(row, getattr(bench, row)()))
        say("", *bench.counters(), "", "disk afterwards: {:.2f} GB/s written, {:.2f} read".format(*disk_rates(folder)))
    if args.out:
        with open(args.out, "w") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
