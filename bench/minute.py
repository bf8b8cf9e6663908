#!/usr/bin/env python3
"""A minute of people beside a batch, as a picture: rows of both, the mode of each step, and what steps take.

usage: minute.py FOREBAY [--out docs/traffic.svg]

Simulated: Llama-3.1-70B in FP8 on eight H200 with sp=8, a batch of 3,000 requests of 2,000 + 200 tokens, and people who ask twice a second,
with a burst of 60 at 25 s and a pause from 40 to 50 s. --target-itl-ms 40.
"""
import argparse
import json
import os
import random
import subprocess
import tempfile

SECONDS, PAUSE, BURST_AT, BURST = 60, (40, 50), 25, 60
TARGET_MS = 40
WIDTH, LEFT, RIGHT = 960, 74, 16
PEOPLE, BATCH = "#2f6fb3", "#e0a45c"
MODES = {1: "#2f6fb3", 2: "#59a14f", 4: "#e0a45c", 8: "#d1495b"}


def people(path):
    rng = random.Random(1)
    arrivals, at = [], 0.0
    while at < SECONDS:
        at += rng.expovariate(2)
        if not PAUSE[0] < at < PAUSE[1]:
            arrivals.append(at)
    arrivals += [BURST_AT + i * 0.01 for i in range(BURST)]
    with open(path, "w") as file:
        file.write("arrival,prompt,output\n")
        file.writelines(f"{at:.4f},{rng.randrange(200, 1500)},{rng.randrange(50, 200)}\n" for at in sorted(arrivals))


def steps_of(forebay):
    with tempfile.TemporaryDirectory() as folder:
        trace, log = os.path.join(folder, "people.csv"), os.path.join(folder, "steps.jsonl")
        people(trace)
        subprocess.run([forebay, "run", "--quiet", "-m", "builtin:Llama-3.1-70B", "-q", "fp8", "--devices", "sim:8xh200", "--layout", "sp=8",
                        "--max-num-batched-tokens", "8192", "--trace", trace, "--batch-trace", "synthetic:n=3000,prompt=2000,output=200",
                        "--scheduling-policy", "interactive", "--target-itl-ms", str(TARGET_MS), "--steps", log], check=True)
        with open(log) as file:
            steps = [json.loads(line) for line in file]
    return [step for step in steps if step["begin"] < SECONDS]


def x(seconds):
    return LEFT + (WIDTH - LEFT - RIGHT) * seconds / SECONDS


class Panel:
    def __init__(self, out, title, top, height, most):
        self.out, self.top, self.height, self.most = out, top, height, most
        out.append(f'<text x="{LEFT}" y="{top - 6}" font-size="12">{title}</text>')
        for part in (0, 0.5, 1):
            y = self.y(most * part)
            out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e2e6ec"/>')
            out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#66707f">{most * part:,.0f}</text>')

    def y(self, value):
        return self.top + self.height * (1 - min(value, self.most) / self.most)

    def area(self, low, high, colour):
        points = [f"{x(i * 0.25):.1f},{self.y(v):.1f}" for i, v in enumerate(high)]
        points += [f"{x(i * 0.25):.1f},{self.y(v):.1f}" for i, v in reversed(list(enumerate(low)))]
        self.out.append(f'<polygon points="{" ".join(points)}" fill="{colour}"/>')


def by_quarter(steps, value):
    """Sums over steps by quarters of a second, a second."""
    sums = [0.0] * (SECONDS * 4)
    for step in steps:
        sums[int(step["begin"] * 4)] += 4 * value(step)
    return sums


def interactive(step):
    return step.get("interactive_decode_rows", 0) + step.get("interactive_prefill_rows", 0)


def picture(steps):
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 470" font-family="sans-serif" font-size="11">',
           f'<rect width="{WIDTH}" height="470" fill="#fff"/>']
    of_people = by_quarter(steps, interactive)
    of_all = by_quarter(steps, lambda step: step["decode_rows"] + step["prefill_rows"])
    rows = Panel(out, f'Tokens a second: <tspan fill="{PEOPLE}">people</tspan>, <tspan fill="{BATCH}">batch</tspan>', 26, 130, max(of_all) * 1.05)
    rows.area([0] * len(of_people), of_people, PEOPLE)
    rows.area(of_people, of_all, BATCH)
    legend = ", ".join(f'<tspan fill="{colour}">sp={sp}</tspan>' for sp, colour in MODES.items())
    out.append(f'<text x="{LEFT}" y="186" font-size="12">Mode of each step: {legend}</text>')
    begin = 0.0
    for step, after in zip(steps, steps[1:] + [None]):
        if after is not None and after["sp"] == step["sp"]:
            continue
        end = SECONDS if after is None else after["begin"]
        out.append(f'<rect x="{x(begin):.2f}" y="194" width="{max(0.3, x(end) - x(begin)):.2f}" height="22" fill="{MODES[step["sp"]]}"/>')
        begin = end
    took = Panel(out, f"Milliseconds of each step; dashed: --target-itl-ms {TARGET_MS}", 250, 90, 250)
    for colour, with_people in ((PEOPLE, True), (BATCH, False)):
        dots = {(round(x(step["begin"]) * 2) / 2, round(took.y(1e3 * (step["end"] - step["begin"]))))
                for step in steps if bool(step.get("interactive_decode_rows", 0)) == with_people}
        path = "".join(f"M{a:g} {b}h0" for a, b in sorted(dots))
        out.append(f'<path d="{path}" stroke="{colour}" stroke-width="2.2" stroke-linecap="round"/>')
    out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{took.y(TARGET_MS):.1f}" y2="{took.y(TARGET_MS):.1f}" stroke="#1d2430" stroke-dasharray="4 3"/>')
    running = by_quarter(steps, lambda step: (step["end"] - step["begin"]) * step.get("interactive_decode_rows", 0))
    people_now = Panel(out, "People whose answers are being written", 374, 60, max(running) * 1.1)
    people_now.area([0] * len(running), running, PEOPLE)
    for second in range(0, SECONDS + 1, 10):
        out.append(f'<text x="{x(second):.1f}" y="456" text-anchor="middle" fill="#66707f">{second} s</text>')
    return "\n".join(out) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("forebay")
    parser.add_argument("--out", default=os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs", "traffic.svg"))
    args = parser.parse_args()
    with open(args.out, "w") as file:
        file.write(picture(steps_of(args.forebay)))


if __name__ == "__main__":
    main()
