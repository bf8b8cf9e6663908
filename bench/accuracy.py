#!/usr/bin/env python3
"""What number formats cost in accuracy: the likelihood of texts under each beside that of the compute type.

usage: accuracy.py FOREBAY MODEL [--text FILE ...] [--tokens N] [--piece N] [--out FILE] [-- FLAGS...]
Texts are cut into pieces of --piece characters; without --text they are this repository's pages. A row is a format: the perplexity of all tokens but
a piece's first, its change, the mean change of a token's log probability (either way), and how often the likeliest next token is the same.
"""
import argparse
import glob
import json
import math
import os
import subprocess
import sys
import tempfile

FORMATS = {"compute type": [], "--quantization int8": ["--quantization", "int8"], "--kv-cache-dtype int8": ["--kv-cache-dtype", "int8"],
           "--kv-cache-dtype fp8": ["--kv-cache-dtype", "fp8"],
           "both int8": ["--quantization", "int8", "--kv-cache-dtype", "int8"]}
CHARACTERS = 4  # of a token, about
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
    """Of each piece's tokens but the first: its log probability, and the likeliest token."""
    with open(path, encoding="utf-8") as file:
        results = sorted((int(line.split("_", 3)[2]), line) for line in file)
    found = []
    for _, line in results:
        response = json.loads(line)["response"]
        if response["status_code"] != 200:
            sys.exit(f"a piece of text failed: {response['body']}")
        logprobs = response["body"]["choices"][0]["logprobs"]
        for value, top in zip(logprobs["token_logprobs"][1:], logprobs["top_logprobs"][1:]):
            found.append((value, max(top, key=top.get)))
    return found


def row(name, exact, found):
    perplexity, expected = (math.exp(-sum(value for value, _ in each) / len(each)) for each in (found, exact))
    change = sum(abs(a - b) for (a, _), (b, _) in zip(found, exact)) / len(exact)
    same = sum(a == b for (_, a), (_, b) in zip(found, exact)) / len(exact)
    return f"| {name} | {perplexity:.4f} | {perplexity / expected - 1:+.3%} | {change:.5f} | {same:.2%} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forebay")
    parser.add_argument("model")
    parser.add_argument("--text", nargs="+", default=[os.path.join(ROOT, "ARCHITECTURE.md"), *sorted(glob.glob(os.path.join(ROOT, "docs", "*.md")))])
    parser.add_argument("--tokens", type=int, default=20000)
    parser.add_argument("--piece", type=int, default=2000)
    parser.add_argument("--out")
    args, flags = parser.parse_known_args()
    flags = [flag for flag in flags if flag != "--"]
    with tempfile.TemporaryDirectory() as folder:
        job = os.path.join(folder, "job.jsonl")
        with open(job, "w", encoding="utf-8") as file:
            for piece in pieces(args.text, args.tokens, args.piece):
                file.write(json.dumps({"prompt": piece, "max_tokens": 0, "echo": True, "logprobs": 1}) + "\n")

        def run(number, extra):
            output = os.path.join(folder, f"{number}.jsonl")
            done = subprocess.run([args.forebay, "run", "-m", args.model, "-i", job, "-o", output, *flags, *extra], capture_output=True, text=True)
            if done.returncode not in (0, LINES_FAILED):
                sys.exit(done.stderr)
            return tokens_of(output)

        found = {name: run(number, extra) for number, (name, extra) in enumerate(FORMATS.items())}
    exact = found["compute type"]
    rows = [f"{len(exact)} tokens, {os.path.basename(args.model.rstrip('/'))} {' '.join(flags)}".rstrip(), "",
            "| format | perplexity | change | mean change of a log probability | same likeliest token |", "|---|---|---|---|---|",
            *(row(name, exact, each) for name, each in found.items())]
    print("\n".join(rows))
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            print("\n".join(rows), file=file)


if __name__ == "__main__":
    main()
