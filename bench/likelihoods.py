#!/usr/bin/env python3
"""Questions with four answers by likelihood: lines of `continuations` beside one completion with `echo` for each answer, in turns.

usage: likelihoods.py FOREBAY MODEL [--questions N] [--rounds N] [--threads N] [--short] [--peers TYPE,...] [--out FILE] [-- FLAGS...]
A question has --context tokens, of which --shared are those of --group questions, and answers of 1 to 8 tokens; ids are random.
Log probabilities of both ways are compared bit for bit. The bar stands below the table with what was found.
--peers: lm_eval's `hf` model computes the same in bfloat16, float32 or both (peers/install.py lm_eval); MODEL is then a folder, and a
config.json alone gets random weights.
--short: 16 questions that share their tokens, one round: some minutes of a slow machine with a model of 0.6 B.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

from turns import HEAD, in_turns, machine, table


WANTED = 4  # times the rate of one completion with `echo` for each answer
WANTED_OF_PEERS = 3  # times the rate of lm_eval's better type
HERE = os.path.dirname(os.path.abspath(__file__))
LM_EVAL = os.path.join(os.path.dirname(HERE), "build", "peers", "lm_eval", "bin", "python")


def write(path, lines):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def bodies(path):
    with open(path, encoding="utf-8") as file:
        results = sorted((int(line.split("_", 3)[2]), line) for line in file)
    return [json.loads(line)["response"]["body"] for _, line in results]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forebay")
    parser.add_argument("model")
    parser.add_argument("--questions", type=int, default=4000)
    parser.add_argument("--context", type=int, default=600)
    parser.add_argument("--shared", type=int, default=400)
    parser.add_argument("--group", type=int, default=100)
    parser.add_argument("--vocab", type=int, default=256, help="ids are drawn from 3 to this")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--peers", default="", help="types of lm_eval's hf model: bfloat16, float32")
    parser.add_argument("--out")
    args, flags = parser.parse_known_args()
    flags = [flag for flag in flags if flag != "--"]
    if args.short:
        args.questions, args.rounds = 16, 1
    draw = random.Random(7)
    ids = lambda count: [draw.randrange(3, args.vocab) for _ in range(count)]
    questions, shared = [], []
    for i in range(args.questions):
        if i % args.group == 0:
            shared = ids(args.shared)
        questions.append((shared + ids(args.context - args.shared), [ids(draw.randrange(1, 9)) for _ in range(4)]))
    with tempfile.TemporaryDirectory() as folder:
        place = lambda name: os.path.join(folder, name)
        write(place("score.jsonl"), [{"prompt": context, "continuations": answers} for context, answers in questions])
        write(place("echo.jsonl"), [{"prompt": context + answer, "max_tokens": 0, "echo": True, "logprobs": 0}
                                    for context, answers in questions for answer in answers])

        def run(name):
            if os.path.exists(place(name + ".out")):
                os.remove(place(name + ".out"))
            subprocess.run([args.forebay, "run", "-m", args.model, "-i", place(name + ".jsonl"), "-o", place(name + ".out"), "--summary",
                            place("summary.json"), "--threads", str(args.threads), "--skip-tokenizer-init", *flags], check=True, capture_output=True)

        def peer(dtype, *more):
            done = subprocess.run([LM_EVAL, os.path.join(HERE, "peers", "likelihood_worker.py"), args.model, str(args.threads), dtype,
                                   place("questions.json"), place(dtype + ".json"), *more], check=True, stdout=subprocess.PIPE, text=True)
            if not more:
                peer_times.setdefault(dtype, []).append(json.loads(done.stdout.splitlines()[-1])["seconds"])

        peer_times, peers = {}, [dtype for dtype in args.peers.split(",") if dtype]
        with open(place("questions.json"), "w", encoding="utf-8") as file:
            json.dump(questions, file)
        if peers and not os.path.exists(os.path.join(args.model, "model.safetensors")):
            peer(peers[0], "--make")
        ways = {"an echo an answer": lambda: run("echo"), "continuations": lambda: run("score")}
        times = in_turns(ways | {f"lm_eval hf, {dtype}": lambda dtype=dtype: peer(dtype) for dtype in peers}, args.rounds)
        times |= {f"lm_eval hf, {dtype}": seconds for dtype, seconds in peer_times.items()}  # without the loading of its model
        echoes = iter(bodies(place("echo.out")))
        for (context, answers), body in zip(questions, bodies(place("score.out"))):
            for answer, score in zip(answers, body["data"]):
                theirs = next(echoes)["choices"][0]["logprobs"]["token_logprobs"]
                if theirs[len(context):] != score["token_logprobs"]:
                    sys.exit(f"log probabilities differ: {theirs[len(context):]}, {score['token_logprobs']}")
        with open(place("summary.json"), encoding="utf-8") as file:
            summary = json.load(file)
    found = statistics.median(echo / own for echo, own in zip(times["an echo an answer"], times["continuations"]))
    shared_by = min(args.group, args.questions)
    bars = [("rate by that of an echo an answer", WANTED, found)]
    if peers:
        bars.append(("rate by lm_eval's better type", WANTED_OF_PEERS, min(map(statistics.median, peer_times.values())) / statistics.median(times["continuations"])))
    rows = [f"{args.questions} questions of four answers, {args.context} tokens, {args.shared} of them shared by {shared_by}", "",
            f"{machine()}; {summary['isa']}, class {summary['numerics_class']}", "", *HEAD, *table(f"{args.questions} questions", times), "",
            "| bar | wanted | found | met |", "|---|---|---|---|",
            *(f"| {bar} | {wanted} | {value:.2f} | {'yes' if value >= wanted else 'no'} |" for bar, wanted, value in bars)]
    print("\n".join(rows))
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            print("\n".join(rows), file=file)


if __name__ == "__main__":
    main()
