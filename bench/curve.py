#!/usr/bin/env python3
"""Tokens a second of a user against those of a device: layouts at arrival rates up to saturation.

usage: curve.py FOREBAY [--set llama-h200|r1-gb200|cpu] [--points 9] [--requests 400] [--csv FILE] [--svg FILE] [--model MODEL]

A row for each layout and rate: arrivals of a Poisson process, tokens a second of a user (the mean of 1 / TPOT), output tokens a
second and rank in the steady window, and TTFT. The last row of a layout has all requests at once, the first one at a time; the
rates between are parts of what the last one takes. Simulated sets need no machine; `cpu` runs on this one, with random weights of
MODEL (a folder, or builtin:NAME), people beside a batch of as many requests, on two ranks.
"""
import argparse
import csv
import json
import os
import subprocess
import tempfile

R1 = ["--model", "builtin:DeepSeek-R1-NVFP4", "--kv-cache-dtype", "fp8", "--gpu-memory-utilization", "0.8"]
LLAMA = ["--model", "builtin:Llama-3.1-70B", "--quantization", "fp8", "--devices", "sim:8xh200", "--max-num-batched-tokens", "8192",
         "--no-enable-prefix-caching"]


def roles(context, generation):
    """A generation group that ships beside context ranks: DWDP's pull experts, DEP's ship rows."""
    ranks = context + generation
    return ["--devices", f"sim:{ranks}xgb200-nvl72", "--context", f"dp={context},experts=by_expert", "--generation",
            f"dp={generation},experts=by_expert", "--generation-mode", "ship"]


SETS = {
    "llama-h200": (4000, 250, {
        "DP8": [*LLAMA, "--layout", "dp=8"],
        "TP8": [*LLAMA, "--layout", "tp=8"],
        "Shift": [*LLAMA, "--layout", "sp=8", "--shift-modes", "ends"],
        "roles 4 + 4": [*LLAMA, "--context", "tp=4", "--generation", "tp=4"],
    }),
    "r1-gb200": (8192, 1024, {
        "DWDP, 4 + 8": [*R1, *roles(4, 8), "--mode", "pull"],
        "DEP, 4 + 8": [*R1, *roles(4, 8), "--mode", "ship"],
    }),
    "cpu": (128, 32, {
        "DP2": ["--devices", "2xcpu", "--layout", "dp=2"],
        "SP2": ["--devices", "2xcpu", "--layout", "sp=2"],
        "roles 1 + 1": ["--devices", "2xcpu", "--context", "dp=1", "--generation", "dp=1"],
    }),
}
PARTS = [0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0]  # 0: one at a time; 1: all at once
COLUMNS = ["layout", "request_rate", "tokens_per_second_per_user", "output_tokens_per_second_per_rank", "median_ttft_ms", "mean_tpot_ms"]


def run(forebay, flags, trace):
    with tempfile.TemporaryDirectory() as folder:
        summary = os.path.join(folder, "summary.json")
        subprocess.run([forebay, "run", "--quiet", *flags, "--trace", trace, "--summary", summary], check=True)
        with open(summary) as file:
            return json.load(file)


def lengths(requests, prompt, output, rate=0.0):
    return f"synthetic:n={requests},prompt={prompt},output={output},rate={rate:.9g},seed=1"


def curve(args, name, flags, prompt, output):
    """-> rows of COLUMNS, from the lowest rate to saturation."""
    batch = []
    if args.set == "cpu":
        flags = ["--model", args.model, "--random-weights", "--scheduling-policy", "interactive", *flags]
        batch = ["--batch-trace", lengths(args.requests, prompt, output)]
    prefix = "interactive_" if batch else ""
    full = run(args.forebay, flags, lengths(args.requests, prompt, output))
    saturation = full["requests_per_second"]
    parts = PARTS[1:-1]
    for part in [0, *parts[:: -(-len(parts) // max(1, args.points - 2))], 1]:
        rate = part * saturation
        # A low rate needs few requests to be steady.
        requests = max(16, round(args.requests * min(1.0, 4 * part)))
        steady = prefix + "steady_output_tokens_per_second_per_rank"
        if part == 0:
            of = run(args.forebay, [*flags, *batch, "--max-concurrency", "1"], lengths(requests, prompt, output))
        elif part < 1:
            of = run(args.forebay, [*flags, *batch], lengths(requests, prompt, output, rate))
        elif batch:
            of = run(args.forebay, [*flags, *batch], lengths(requests, prompt, output))
        else:
            of, steady = full, "output_tokens_per_second_per_rank"  # its middle decodes more than the whole
        per_rank = of[steady]
        yield [name, rate, of[prefix + "tokens_per_second_per_user"], per_rank, of[prefix + "median_ttft_ms"], of[prefix + "mean_tpot_ms"]]


def picture(rows, title):
    """An SVG of all curves: users' tokens to the right, devices' upwards."""
    width, height, left, bottom = 720, 420, 64, 44
    most_x = max(row[2] for row in rows) * 1.05
    most_y = max(row[3] for row in rows) * 1.08
    x = lambda value: left + (width - left - 16) * value / most_x
    y = lambda value: height - bottom - (height - bottom - 34) * value / most_y
    colours = ["#2f6fb3", "#e08a3c", "#59a14f", "#b07aa1", "#d1495b"]
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
           f'<rect width="{width}" height="{height}" fill="#fff"/><text x="{left}" y="18" font-size="13">{title}</text>']
    for i in range(6):
        out.append(f'<line x1="{left}" x2="{width - 16}" y1="{y(most_y * i / 5):.1f}" y2="{y(most_y * i / 5):.1f}" stroke="#e2e6ec"/>')
        out.append(f'<text x="{left - 6}" y="{y(most_y * i / 5) + 4:.1f}" text-anchor="end">{most_y * i / 5:.0f}</text>')
        out.append(f'<text x="{x(most_x * i / 5):.1f}" y="{height - bottom + 16}" text-anchor="middle">{most_x * i / 5:.0f}</text>')
    out.append(f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle">tokens a second of a user</text>')
    out.append(f'<text transform="translate(14 {height / 2}) rotate(-90)" text-anchor="middle">output tokens a second of a device</text>')
    for number, name in enumerate(dict.fromkeys(row[0] for row in rows)):
        colour = colours[number % len(colours)]
        points = [(x(row[2]), y(row[3])) for row in rows if row[0] == name]
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.8" points="' + " ".join(f"{a:.1f},{b:.1f}" for a, b in points) + '"/>')
        out += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.6" fill="{colour}"/>' for a, b in points]
        out.append(f'<text x="{width - 20}" y="{44 + 15 * number}" text-anchor="end" fill="{colour}">{name}</text>')
    return "\n".join(out) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("forebay")
    parser.add_argument("--set", choices=SETS, default="llama-h200")
    parser.add_argument("--points", type=int, default=9, help="of a layout, at least 2")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--model", default="builtin:Qwen3-0.6B", help="of the set cpu")
    parser.add_argument("--csv")
    parser.add_argument("--svg")
    args = parser.parse_args()
    prompt, output, layouts = SETS[args.set]
    rows = []
    print("| layout | requests/s | tokens/s of a user | output tokens/s of a rank | median TTFT, ms | mean TPOT, ms |\n" + "|---" * 6 + "|")
    for name, flags in layouts.items():
        for row in curve(args, name, flags, prompt, output):
            rows.append(row)
            print("| " + " | ".join([row[0], *(f"{value:.4g}" for value in row[1:])]) + " |", flush=True)
    if args.csv:
        with open(args.csv, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(rows)
    if args.svg:
        with open(args.svg, "w") as file:
            file.write(picture(rows, f"{args.set}: {prompt} + {output} tokens, {args.requests} requests"))


if __name__ == "__main__":
    main()
