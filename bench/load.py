#!/usr/bin/env python3
"""How fast a model's file is loaded beside the disk's own rate, and the memory that it takes.

usage: load.py FOREBAY FILE.gguf [--batch N] [--prompt N] [--output N] [-- FLAGS...]
The file is read alone, then by a run with a batch of random tokens; before each its pages are dropped from the cache. A bar: the load takes at most
1 / 0.8 of the disk's time. tools/make_random_gguf.py writes files of any size.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time

BAR = 0.8
BUFFER_BYTES = 8 << 20


def drop(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_seconds(path):
    drop(path)
    buffer, begin = bytearray(BUFFER_BYTES), time.monotonic()
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forebay")
    parser.add_argument("file")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--output", type=int, default=16)
    args, flags = parser.parse_known_args()
    flags = [flag for flag in flags if flag != "--"]
    size, rng = os.path.getsize(args.file), random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        job, summary = os.path.join(folder, "job.jsonl"), os.path.join(folder, "summary.json")
        with open(job, "w", encoding="utf-8") as file:
            for _ in range(args.batch):
                prompt = [rng.randrange(1000) for _ in range(args.prompt)]
                file.write(json.dumps({"prompt": prompt, "max_tokens": args.output, "ignore_eos": True, "temperature": 0}) + "\n")
        disk = read_seconds(args.file)
        drop(args.file)
        done = subprocess.run([args.forebay, "run", "--quiet", "--skip-tokenizer-init", "-m", args.file, "-i", job, "-o", os.path.join(folder, "out.jsonl"),
                               "--summary", summary, *flags], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        with open(summary, encoding="utf-8") as file:
            run = json.load(file)
    load = run["startup_seconds"]
    print(f"{os.path.basename(args.file)}, {size / 1e9:.2f} GB, {run['isa']}, {run['numerics_class']}, weights {run['weight_forms']}\n")
    print("| disk, GB/s | load, GB/s | of the disk's | start, s | weights, GB | peak RSS, GB | KV and workspace, GB | tokens/s |\n|---|---|---|---|---|---|---|---|")
    print(f"| {size / disk / 1e9:.2f} | {size / load / 1e9:.2f} | {disk / load:.2f} | {load:.1f} | {run['weight_bytes'] / 1e9:.2f} | {run['peak_rss_bytes'] / 1e9:.2f} | "
          f"{(run['kv_bytes'] + run['workspace_bytes']) / 1e9:.2f} | {run['tokens_per_second']:.1f} |")
    return int(disk / load < BAR)


if __name__ == "__main__":
    sys.exit(main())
