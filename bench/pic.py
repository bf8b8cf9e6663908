#!/usr/bin/env python3
"""What position-independent code costs: the program and the linear kernels with it, as they are built, and without, in turns.

usage: pic.py [--rounds N] [--jobs N] [--bench-args "--model Qwen3-0.6B"] [--out FILE]
Builds both, in build/pic and build/no-pic, which differ in `-DFOREBAY_PIC=OFF` alone. Rows: a job of 64 x 128+128 of the SmolLM2-135M shape by
`forebay run` (whole processes, their wall and their CPU time), and the rates of `linear_bench` (the geometric mean over its cells).
Ratios are of -fPIC's speed to that without, of pairs: median, least, greatest. Wanted: .99 and more.
"""
import argparse
import json
import math
import os
import re
import shlex
import shutil
import statistics
import subprocess
import tempfile

from shapes import SMOLLM2_135M
from throughput import write_requests
from turns import cpu_in_turns, in_turns, machine, share

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WAYS = {"without": "OFF", "-fPIC": "ON"}


def build(pic, jobs):
    """-> the folder with the program and the benchmark."""
    folder = os.path.join(ROOT, "build", "pic" if pic == "ON" else "no-pic")
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    subprocess.run(["cmake", "--preset", "release", "-B", folder, f"-DFOREBAY_PIC={pic}", "-DFOREBAY_TESTS=OFF", "-DFOREBAY_BENCH=ON", *launcher],
                   cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", folder, "-j", str(jobs), "forebay", "linear_bench"], check=True, stdout=subprocess.DEVNULL)
    return folder


def rates(folder, arguments):
    """GFLOP/s of each cell of the benchmark's tables."""
    table = subprocess.run([os.path.join(folder, "bench", "linear_bench"), *shlex.split(arguments)], check=True, stdout=subprocess.PIPE, text=True).stdout
    return [float(rate) for rate in re.findall(r" (\d+) \(\d\.\d\d\)", table)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="of the builds")
    parser.add_argument("--bench-args", default="--model Qwen3-0.6B --rows 1,8,64,256")
    parser.add_argument("--out")
    args = parser.parse_args()
    folders = {way: build(pic, args.jobs) for way, pic in WAYS.items()}
    began = machine()
    lines = ["| what | without | -fPIC | speed of -fPIC, of pairs |", "|---" * 4 + "|"]
    with tempfile.TemporaryDirectory() as folder:
        model, requests, output = (os.path.join(folder, name) for name in ("model", "in.jsonl", "out.jsonl"))
        os.mkdir(model)
        with open(os.path.join(model, "config.json"), "w") as file:
            json.dump(SMOLLM2_135M, file)
        write_requests(requests, 64, SMOLLM2_135M["vocab_size"], 128, 128)

        def job(way):
            if os.path.exists(output):
                os.remove(output)
            subprocess.run([os.path.join(folders[way], "forebay"), "run", "-m", model, "-i", requests, "-o", output, "--quiet", "--random-weights",
                            "--skip-tokenizer-init", "--memory", "2GiB"], check=True)

        for what, seconds in zip(("s", "CPU s"), cpu_in_turns({way: lambda way=way: job(way) for way in WAYS}, args.rounds)):
            middle = [f"{statistics.median(seconds[way]):.3f}" for way in WAYS]
            lines.append(f"| 64 x 128+128, SmolLM2-135M shape, {what} | {' | '.join(middle)} | {share(seconds['without'], seconds['-fPIC'])} |")
    found = {way: [] for way in WAYS}
    in_turns({way: lambda way=way: found[way].append(rates(folders[way], args.bench_args)) for way in WAYS}, args.rounds)
    means = {way: [math.exp(statistics.fmean(map(math.log, each))) for each in found[way]] for way in WAYS}
    middle = [f"{statistics.median(means[way]):.1f}" for way in WAYS]
    lines.append(f"| `linear_bench {args.bench_args}`, GFLOP/s | {' | '.join(middle)} | {share(means['-fPIC'], means['without'])} |")
    text = "\n".join(["# What position-independent code costs", "",
                      f"`bench/pic.py --rounds {args.rounds}` on {began} at its begin, {machine()} at its end. Wanted: .99 and more.", "", *lines])
    print(text)
    if args.out:
        with open(args.out, "w") as out:
            out.write(text + "\n")


if __name__ == "__main__":
    main()
