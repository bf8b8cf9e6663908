#!/usr/bin/env python3
"""Forebay and its peers on the same random weights, in alternation on the same machine; prints ratios with their spread.

usage: compare.py [--peers llama,vllm,openvino] [--rows prefill,batch1,job,trace,startup] [--rounds N] [--set PEER.NAME=JSON]... [--append]
Installs what is missing (install.py), writes the weights (model.py), measures, prints a Markdown table: medians, least and
greatest. A peer that cannot be installed or fails is named with the reason. --append keeps the samples of earlier calls, so that
a long comparison can be made in pieces. About an hour of two cores that nothing else uses.
"""
import argparse
import contextlib
import csv
import datetime
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import install
from install import PEERS, ROOT, python_of

sys.path.insert(0, os.path.join(ROOT, "bench"))
import throughput  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(PEERS, "model")
# The first 300 rows of sharegpt_8k_filtered_stats_llama2_tokenizer.csv of microsoft/vidur (MIT).
TRACE = os.path.join(HERE, "sharegpt_lengths.csv")
VOCAB = throughput.QWEN3_06B["vocab_size"]
THREADS = os.cpu_count()
CACHE_GIB = 6
CACHE_TOKENS = CACHE_GIB * 2**30 // (2 * 2 * throughput.QWEN3_06B["num_hidden_layers"] *
                                     throughput.QWEN3_06B["num_key_value_heads"] * throughput.QWEN3_06B["head_dim"])
# The best of the settings that were tried; bench/results/peers-*.md names the others.
SETTINGS = {
    "llama": {"gguf": MODEL + "/qwen3-0.6b.gguf", "threads": THREADS, "batch": 2048, "ubatch": 512, "flash": True, "kv": "f16",
              "unified": False, "slots": 128, "kv_tokens": CACHE_TOKENS},
    "vllm": {"hf": MODEL + "/hf", "max_model_len": 2048, "slots": 128, "batch": 2048, "eager": False, "zentorch": False},
    "openvino": {"folder": MODEL + "/openvino", "cache_gib": CACHE_GIB, "slots": 128, "batch": 512, "kv": "bf16", "threads": THREADS},
}
FORMS = {"llama": ["hf", "gguf"], "vllm": ["hf"], "openvino": ["hf", "openvino"]}
FOREBAY_FLAGS = ["--skip-tokenizer-init", "--memory", f"{CACHE_GIB + 2}GiB"]
# name: what it counts, one request after another?, least ratio to the best peer on AVX-512 BF16
ROWS = {
    "prefill": ("prefill of 512", True, "1.05"), "batch1": ("one request, 1 + 128", True, "1.0"),
    "job": ("128 requests of 128 + 128", False, "1.3"), "trace": ("ShareGPT lengths / 8", False, "1.35"),
    "startup": ("start-up, command to first token", True, "10 x vLLM, else 1.0"),
}


def lengths_of(row, trace_rows):
    """[(prompt tokens, output tokens)] of a row's requests."""
    fixed = {"prefill": [(512, 1)] * 4, "batch1": [(1, 128)], "job": [(128, 128)] * 128, "startup": [(16, 1)]}
    if row in fixed:
        return fixed[row]
    with open(TRACE) as trace:
        rows = list(csv.DictReader(trace))[:trace_rows]
    return [(max(1, int(r["num_prefill_tokens"]) // 8), max(1, int(r["num_decode_tokens"]) // 8)) for r in rows]


def write_requests(path, lengths):
    rng = random.Random(1)
    with open(path, "w") as out:
        for i, (prompt, output) in enumerate(lengths):
            ids = [rng.randrange(VOCAB) for _ in range(prompt)]
            out.write(json.dumps({"custom_id": str(i), "prompt": ids, "max_tokens": output, "ignore_eos": True, "temperature": 0,
                                  "return_token_ids": True}) + "\n")
    return path


def environment(peer, settings):
    env = {**os.environ, "OMP_NUM_THREADS": str(THREADS), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if peer == "vllm":
        lib = os.path.join(PEERS, "vllm", "lib")
        env.update(VLLM_TARGET_DEVICE="cpu", VLLM_CPU_KVCACHE_SPACE=str(CACHE_GIB), VLLM_CPU_OMP_THREADS_BIND=f"0-{THREADS - 1}",
                   VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CACHE_ROOT=os.path.join(PEERS, "vllm_cache"), VLLM_NO_USAGE_STATS="1",
                   LD_PRELOAD=os.path.join(lib, "libiomp5.so"), **settings.get("env", {}))
    return env


class Worker:
    """A peer's process; stopped (not only idle) while it is not asked, so that it cannot disturb the others."""

    def __init__(self, peer, settings):
        self.peer = peer
        self.log = open(os.path.join(PEERS, peer + ".log"), "w")
        self.process = subprocess.Popen(
            [python_of(peer), os.path.join(HERE, peer + "_worker.py"), json.dumps(settings)], env=environment(peer, settings),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, start_new_session=True)

    def ask(self, requests, serial):
        os.killpg(self.process.pid, signal.SIGCONT)
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps({"requests": requests, "serial": serial}), file=self.process.stdin, flush=True)
        reply = self.process.stdout.readline()
        if not reply:
            raise RuntimeError(f"{self.peer} ended; its log: {self.log.name}")
        os.killpg(self.process.pid, signal.SIGSTOP)
        return json.loads(reply)

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def ask_forebay(args, row, path, folder):
    """Seconds of the job without start-up, or for `startup` from the command to the first result in its file; first tokens; the instruction set."""
    results, summary = (os.path.join(folder, name) for name in ("results.jsonl", "summary.json"))
    with contextlib.suppress(FileNotFoundError):
        os.remove(results)
    # The peers' caches are touched when they start; so is ours, but where the start is what counts.
    flags = (["--max-num-seqs", "1"] if ROWS[row][1] else []) + (["--touch-kv", "4GiB"] if row != "startup" else [])
    begin = time.perf_counter()
    process = subprocess.Popen([args.forebay, "run", "-m", MODEL + "/hf", "-i", path, "-o", results, "--summary", summary, "--quiet",
                                *FOREBAY_FLAGS, *flags])
    while row == "startup" and process.poll() is None and not (os.path.exists(results) and os.path.getsize(results)):
        time.sleep(0.002)
    wall = time.perf_counter() - begin
    if process.wait():
        raise RuntimeError(f"forebay ended with {process.returncode}")
    ran = json.load(open(summary))
    choices = {line["custom_id"]: line["response"]["body"]["choices"][0] for line in map(json.loads, open(results))}
    first = [choices[str(i)]["token_ids"][0] for i in range(len(choices))]
    return wall if row == "startup" else ran["elapsed_time"], first, ran["isa"]


def ask_startup(peer, settings, path):
    begin = time.perf_counter()
    worker = Worker(peer, settings)
    try:
        reply = worker.ask(path, True)
        return {**reply, "seconds": time.perf_counter() - begin}
    finally:
        worker.close()


def take_sample(args, peer, row, path, settings, worker, folder):
    """One round: Forebay, then the peer."""
    ours, our_first, isa = ask_forebay(args, row, path, folder)
    reply = ask_startup(peer, settings, path) if row == "startup" else worker.ask(path, ROWS[row][1])
    theirs = reply["seconds"]
    print(f"{peer} {row}: forebay {ours:.2f} s, {peer} {theirs:.2f} s, ratio {theirs / ours:.2f}", file=sys.stderr, flush=True)
    return {"peer": peer, "row": row, "ours": ours, "theirs": theirs, "isa": isa, "settings": settings, "trace_rows": args.trace_rows,
            "same_first": sum(a == b for a, b in zip(our_first, reply["first"])), "requests": len(our_first)}


def measure(args, peer, rows, settings, folder, samples):
    worker = None
    try:
        for row in rows:
            lengths = lengths_of(row, args.trace_rows)
            path = write_requests(os.path.join(folder, "requests.jsonl"), lengths)
            warm = write_requests(os.path.join(folder, "warm.jsonl"), lengths[:4])
            if row == "startup":
                ask_startup(peer, settings, path)
            else:
                worker = worker or Worker(peer, settings)
                worker.ask(warm, ROWS[row][1])
            ask_forebay(args, row, warm, folder)
            for _ in range(args.rounds):
                sample = take_sample(args, peer, row, path, settings, worker, folder)
                samples.write(json.dumps({**sample, "tokens": sum(map(sum, lengths))}) + "\n")
                samples.flush()
    finally:
        if worker:
            worker.close()


def spread(values, form):
    return f"{statistics.median(values):{form}} ({min(values):{form}}-{max(values):{form}})"


def table(samples):
    lines = ["| row | peer | rounds | forebay | peer | ratio | wanted of the best peer | same first tokens |", "| --- " * 8 + "|"]
    for row, (title, _, target) in ROWS.items():
        for peer in install.INSTALLERS:
            mine = [sample for sample in samples if (sample["row"], sample["peer"]) == (row, peer)]
            if not mine:
                continue
            if row == "trace":
                title = f"{ROWS[row][0]}, first {mine[-1]['trace_rows']}"
            unit, form = ("s", ".2f") if row == "startup" else ("tok/s", ".0f")
            rates = [[s[who] if row == "startup" else s["tokens"] / s[who] for s in mine] for who in ("ours", "theirs")]
            lines.append(f"| {title} | {peer} | {len(mine)} | {spread(rates[0], form)} {unit} | {spread(rates[1], form)} {unit} | "
                         f"{spread([s['theirs'] / s['ours'] for s in mine], '.2f')} | {target} | "
                         f"{sum(s['same_first'] for s in mine)} of {sum(s['requests'] for s in mine)} |")
    return "\n".join(lines)


def parse_settings(overrides):
    settings = json.loads(json.dumps(SETTINGS))
    for override in overrides:
        name, value = override.split("=", 1)
        peer, key = name.split(".", 1)
        settings[peer][key] = json.loads(value)
    return settings


def cpu_name():
    return next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown CPU")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--forebay", default=os.path.join(ROOT, "build", "release", "forebay"))
    parser.add_argument("--peers", default=",".join(install.INSTALLERS))
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trace-rows", type=int, default=300)
    parser.add_argument("--set", action="append", default=[], metavar="PEER.NAME=JSON", help="another setting of a peer")
    parser.add_argument("--append", action="store_true", help="keep the samples of earlier calls")
    parser.add_argument("--samples", default=os.path.join(PEERS, "samples.jsonl"))
    args = parser.parse_args()
    peers, rows = args.peers.split(","), args.rows.split(",")
    for name in [*set(peers) - set(install.INSTALLERS), *set(rows) - set(ROWS)]:
        parser.error(f"{name}: no such peer or row; expected peers of {','.join(install.INSTALLERS)}, rows of {','.join(ROWS)}")
    os.makedirs(PEERS, exist_ok=True)
    open(args.samples, "a" if args.append else "w").close()
    settings, failed = parse_settings(args.set), {}
    for peer in peers:
        try:
            if why := install.install(peer):
                raise RuntimeError(why)
            for form in FORMS[peer]:
                subprocess.run([python_of("openvino" if form == "openvino" else peer), os.path.join(HERE, "model.py"), form], check=True)
            with tempfile.TemporaryDirectory(dir=PEERS) as folder, open(args.samples, "a") as samples:
                measure(args, peer, rows, settings[peer], folder, samples)
        except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
            failed[peer] = str(error)
            print(f"{peer}: {error}", file=sys.stderr)
    samples = list(map(json.loads, open(args.samples)))
    isa = samples[-1]["isa"] if samples else "no samples"
    print(f"\n{cpu_name()}, {THREADS} cores, {isa}, {datetime.date.today()}; medians (least-greatest)\n\n{table(samples)}\n")
    for peer in peers:
        print(f"{peer}: " + (failed.get(peer) or ", ".join(f"{name} {version}" for name, version in install.versions(peer).items())))


if __name__ == "__main__":
    main()
