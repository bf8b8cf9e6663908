#!/usr/bin/env python3
"""What number formats cost in accuracy: the likelihood of texts under each beside that of the compute type.

usage: accuracy.py FOREBAY MODEL [--text FILE ...] [--tokens N] [--piece N] [--out FILE] [-- FLAGS...]
Texts are cut into pieces of --piece characters; without --text they are bench/accuracy.txt. A row is a format, with the numerics class that it
computes in: the perplexity of all tokens but a piece's first and its change, the divergence of the compute type's distribution from the format's, and
how often the likeliest next token is the same. The divergence is taken over the TOP likeliest tokens of both and the rest as one, so it is a lower
bound. A format whose perplexity grows by its bar or more fails, and the exit status is 1.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

EXACT = "compute type"
# The flags of a format, and the growth of perplexity that fails; None: the format is only shown.
FORMATS = {EXACT: ([], None), "`--quantization int8`": (["--quantization", "int8"], 0.02),
           "`--kv-cache-dtype int8`": (["--kv-cache-dtype", "int8"], 0.005), "`--kv-cache-dtype fp8`": (["--kv-cache-dtype", "fp8"], 0.01),
           "both `int8`": (["--quantization", "int8", "--kv-cache-dtype", "int8"], None),
           "`--quantization int4`": (["--quantization", "int4"], None)}
CHARACTERS = 4  # of a token, about
TOP = 20  # alternatives of a token
LINES_FAILED = 10  # exit code
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def pieces(paths, tokens, size):
    """Pieces of the texts in order, about `tokens` tokens of them."""
    left = tokens * CHARACTERS
    for path in paths:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for begin in range(0, len(text), size):
            if left <= 0:
                return
            piece = text[begin:begin + size]
            left -= len(piece)
            yield piece


def tokens_of(path):
    """The numerics class; of each piece's tokens but the first the log probability, and those of the likeliest tokens by id."""
    with open(path, encoding="utf-8") as file:
        results = sorted((int(line.split("_", 3)[2]), line) for line in file)
    found, numerics = [], ""
    for _, line in results:
        response = json.loads(line)["response"]
        if response["status_code"] != 200:
            sys.exit(f"a piece of text failed: {response['body']}")
        numerics = response["body"]["system_fingerprint"].removeprefix("fb-")
        logprobs = response["body"]["choices"][0]["logprobs"]
        found += zip(logprobs["token_logprobs"][1:], logprobs["top_logprobs"][1:])
    return numerics, found


def divergence(exact, other):
    """Of two distributions, over the tokens that are likeliest in both and the rest as one token."""
    common = exact.keys() & other.keys()
    rest = [max(1 - math.fsum(math.exp(each[token]) for token in common), 1e-9) for each in (exact, other)]
    return math.fsum(math.exp(exact[token]) * (exact[token] - other[token]) for token in common) + rest[0] * math.log(rest[0] / rest[1])


def growth(exact, found):
    return math.exp(math.fsum(a - b for (a, _), (b, _) in zip(exact, found)) / len(exact)) - 1


def row(name, numerics, exact, found):
    perplexity = math.exp(-math.fsum(value for value, _ in found) / len(found))
    same = sum(max(a, key=a.get) == max(b, key=b.get) for (_, a), (_, b) in zip(exact, found)) / len(exact)
    kl = math.fsum(divergence(a, b) for (_, a), (_, b) in zip(exact, found)) / len(exact)
    bar = FORMATS[name][1]
    verdict = "" if bar is None else f"{bar:.1%}" + (" **fails**" if growth(exact, found) >= bar else "")
    return f"| {name} | `{numerics}` | {perplexity:.4f} | {growth(exact, found):+.3%} | {verdict} | {kl:.5f} | {same:.2%} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forebay")
    parser.add_argument("model")
    parser.add_argument("--text", nargs="+", default=[os.path.join(ROOT, "bench", "accuracy.txt")])
    parser.add_argument("--tokens", type=int, default=20000)
    parser.add_argument("--piece", type=int, default=6000)
    parser.add_argument("--out")
    args, flags = parser.parse_known_args()
    flags = [flag for flag in flags if flag != "--"]
    with tempfile.TemporaryDirectory() as folder:
        job = os.path.join(folder, "job.jsonl")
        with open(job, "w", encoding="utf-8") as file:
            for piece in pieces(args.text, args.tokens, args.piece):
                file.write(json.dumps({"prompt": piece, "max_tokens": 0, "echo": True, "logprobs": TOP, "return_tokens_as_token_ids": True}) + "\n")

        def run(number, extra):
            output = os.path.join(folder, f"{number}.jsonl")
            done = subprocess.run([args.forebay, "run", "-m", args.model, "-i", job, "-o", output, *flags, *extra], capture_output=True, text=True)
            if done.returncode not in (0, LINES_FAILED):
                sys.exit(done.stderr)
            return tokens_of(output)

        runs = {name: run(number, extra) for number, (name, (extra, _)) in enumerate(FORMATS.items())}
    exact = runs[EXACT][1]
    rows = [f"{len(exact)} tokens, {os.path.basename(args.model.rstrip('/'))} {' '.join(flags)}".rstrip(), "",
            "| format | class | perplexity | change | bar | KL divergence | same likeliest token |", "|---|---|---|---|---|---|---|",
            *(row(name, numerics, exact, found) for name, (numerics, found) in runs.items())]
    print("\n".join(rows))
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            print("\n".join(rows), file=file)
    return int(any(bar is not None and growth(exact, runs[name][1]) >= bar for name, (_, bar) in FORMATS.items()))


if __name__ == "__main__":
    sys.exit(main())
