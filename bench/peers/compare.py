#!/usr/bin/env python3
"""Forebay and its peers on the same random weights, in alternation on the same machine; prints ratios with their spread.

usage: compare.py [--model qwen3-0.6b|qwen3-moe] [--quantization q8_0|q4_k_m|int8|int8_kv8|int4] [--peers llama,vllm,openvino]
                  [--rows prefill,batch1,job,generate,trace,startup] [--rounds N] [--set PEER.NAME=JSON]... [--append]
Installs what is missing (install.py), writes the weights (model.py), measures, prints a Markdown table: medians, least and
greatest; generate is the job by `LLM.generate` of the Python package (tools/install_wheel.sh test). A peer that cannot be
installed or fails is named with the reason. --append keeps the samples of earlier calls, so that a long comparison can be made in
pieces. About an hour of two cores that nothing else uses. qwen3-moe (Qwen3-30B-A3B cut to four layers, 6.2 GB in each form) has
rows prefill, batch1 and job, beside llama.cpp and vLLM. With --quantization each engine reads the smaller form of the same weights
that QUANTIZATIONS names, so that first tokens may differ where forms do.
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
from shapes import QWEN3_06B, QWEN3_30B_A3B_CUT  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
# The first 300 rows of sharegpt_8k_filtered_stats_llama2_tokenizer.csv of microsoft/vidur (MIT).
TRACE = os.path.join(HERE, "sharegpt_lengths.csv")
VOCAB = QWEN3_06B["vocab_size"]
THREADS = os.cpu_count()
# Prints seconds, first tokens and the instruction set. Arguments: model, requests, the package's arguments as JSON.
GENERATE = """
import json, sys, time
from forebay import LLM, SamplingParams
rows = [json.loads(line) for line in open(sys.argv[2])]
params = [SamplingParams(temperature=0, max_tokens=row["max_tokens"], ignore_eos=True) for row in rows]
with LLM(sys.argv[1], **json.loads(sys.argv[3])) as llm:
    begin = time.perf_counter()
    outputs = llm.generate([row["prompt"] for row in rows], params, use_tqdm=False)
    print(json.dumps([time.perf_counter() - begin, [each.outputs[0].token_ids[0] for each in outputs], llm.facts()["isa"]]))
"""
# name: what it counts, one request after another?
ROWS = {
    "prefill": ("prefill of 512", True), "batch1": ("one request, 1 + 128", True), "job": ("requests of 128 + 128", False),
    "generate": ("the same by `LLM.generate`", False),
    "trace": ("ShareGPT lengths / 8", False), "startup": ("start-up, command to first token", True),
}
# name: the shape's KV cache and our memory in GiB, requests of a job, and of the rows that it has the least ratio to the best peer on
# AVX-512 BF16, or to each
MODELS = {
    "qwen3-0.6b": {"config": QWEN3_06B, "cache_gib": 6, "memory_gib": 8, "requests": 128,
                   "wanted": {"prefill": "1.05", "batch1": "1.0", "job": "1.3", "generate": "1.3", "trace": "1.35", "startup": "10 x vLLM, else 1.0"}},
    "qwen3-moe": {"config": QWEN3_30B_A3B_CUT, "cache_gib": 1, "memory_gib": 9, "requests": 64,
                  "wanted": {"prefill": "1.3 x llama.cpp, 1.1 x vLLM", "batch1": "1.05 x llama.cpp, 1.0 x vLLM",
                             "job": "1.5 x llama.cpp, 1.3 x vLLM"}},
}
LLAMA_WANTED = {"prefill": "1.9", "batch1": "1.0", "job": "2.2", "startup": "1.0"}
INT8_WANTED = {"prefill": "1.2", "batch1": "1.2", "job": "1.25", "startup": "4"}
# name: the form that we read (model.py), our flags, the forms of the peers that can, and the least ratios to the best of them
QUANTIZATIONS = {
    "none": ("hf", [], {"llama": "gguf", "vllm": "hf", "openvino": "openvino"}, None),
    "q8_0": ("q8_0", [], {"llama": "q8_0"}, LLAMA_WANTED),
    "q4_k_m": ("q4_k_m", [], {"llama": "q4_k_m"}, LLAMA_WANTED),
    "int8": ("w8a8", [], {"vllm": "w8a8", "openvino": "openvino_int8"}, INT8_WANTED),
    "int8_kv8": ("w8a8", ["--kv-cache-dtype", "int8"], {"vllm": "w8a8", "openvino": "openvino_int8"}, {"job": "1.35"}),
    "int4": ("awq", [], {"vllm": "awq", "openvino": "openvino_int4"}, {"prefill": "", "batch1": "1.0", "job": "1.2", "startup": "4"}),
}


def path_of(model, form):
    """Where model.py leaves it."""
    name = {"gguf": "model.gguf", "q8_0": "q8_0.gguf", "q4_k_m": "q4_k_m.gguf"}.get(form, form)
    return os.path.join(PEERS, "model", model, name)


def settings_of(model, quantization):
    """The best of the settings that were tried; bench/results/peers-*.md names the others."""
    config, cache, slots = (MODELS[model][key] for key in ("config", "cache_gib", "requests"))
    kv_bytes = 2 * 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"]
    forms = QUANTIZATIONS[quantization][2]
    settings = {
        "llama": {"threads": THREADS, "batch": 2048, "ubatch": 512, "flash": True, "kv": "f16",
                  "unified": False, "slots": slots, "kv_tokens": cache * 2**30 // kv_bytes},
        "vllm": {"cache_gib": cache, "max_model_len": 2048, "slots": slots, "batch": 2048, "eager": False,
                 "zentorch": False},
        "openvino": {"cache_gib": cache, "slots": slots, "batch": 512, "kv": "u8" if quantization == "int8_kv8" else "bf16", "threads": THREADS},
    }
    return {peer: {"model": path_of(model, form), **settings[peer]} for peer, form in forms.items()}


def lengths_of(row, model, trace_rows):
    """[(prompt tokens, output tokens)] of a row's requests."""
    jobs = [(128, 128)] * MODELS[model]["requests"]
    fixed = {"prefill": [(512, 1)] * 4, "batch1": [(1, 128)], "job": jobs, "generate": jobs, "startup": [(16, 1)]}
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
        env.update(VLLM_TARGET_DEVICE="cpu", VLLM_CPU_KVCACHE_SPACE=str(settings["cache_gib"]), VLLM_CPU_OMP_THREADS_BIND=f"0-{THREADS - 1}",
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
    model = MODELS[args.model]
    form, quantized_flags, _, _ = QUANTIZATIONS[args.quantization]
    weights = path_of(args.model, form)
    # The peers' caches are touched when they start; so is ours, but where the start is what counts.
    memory, touched = f"{model['memory_gib']}GiB", f"{min(4, model['cache_gib'])}GiB"
    if row == "generate":
        arguments = {"skip_tokenizer_init": True, "memory": memory, "touch_kv": touched}
        command = [args.python, "-c", GENERATE, weights, path, json.dumps(arguments)]
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
    results, summary = (os.path.join(folder, name) for name in ("results.jsonl", "summary.json"))
    with contextlib.suppress(FileNotFoundError):
        os.remove(results)
    flags = ["--skip-tokenizer-init", "--memory", memory, *quantized_flags] + (["--max-num-seqs", "1"] if ROWS[row][1] else [])
    if row != "startup":
        flags += ["--touch-kv", touched]
    begin = time.perf_counter()
    process = subprocess.Popen([args.forebay, "run", "-m", weights, "-i", path, "-o", results, "--summary", summary,
                                "--quiet", *flags])
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
            lengths = lengths_of(row, args.model, args.trace_rows)
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


def wanted_of(model, quantization):
    return QUANTIZATIONS[quantization][3] or MODELS[model]["wanted"]


def table(model, quantization, samples):
    lines = ["| row | peer | rounds | forebay | peer | ratio | wanted of the best peer | same first tokens |", "| --- " * 8 + "|"]
    for row, target in wanted_of(model, quantization).items():
        title = f"{MODELS[model]['requests']} {ROWS[row][0]}" if row == "job" else ROWS[row][0]
        for peer in install.GENERATE:
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


def parse_settings(model, quantization, overrides):
    settings = settings_of(model, quantization)
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
    parser.add_argument("--model", default="qwen3-0.6b", choices=MODELS)
    parser.add_argument("--quantization", default="none", choices=QUANTIZATIONS)
    parser.add_argument("--python", default=os.path.join(ROOT, "build", "test-venv", "bin", "python"), help="one that has the package, for generate")
    parser.add_argument("--peers", help="by default those that the model has")
    parser.add_argument("--rows", help="likewise")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trace-rows", type=int, default=300)
    parser.add_argument("--set", action="append", default=[], metavar="PEER.NAME=JSON", help="another setting of a peer")
    parser.add_argument("--append", action="store_true", help="keep the samples of earlier calls")
    parser.add_argument("--samples", help="the file that keeps them, by default the model's")
    args = parser.parse_args()
    args.samples = args.samples or os.path.join(PEERS, f"samples-{args.model}-{args.quantization}.jsonl")
    our_form, _, forms, _ = QUANTIZATIONS[args.quantization]
    known = [[peer for peer in forms if "num_experts" not in MODELS[args.model]["config"] or peer != "openvino"],
             list(wanted_of(args.model, args.quantization))]
    peers, rows = (given.split(",") if given else all for given, all in zip((args.peers, args.rows), known))
    for name in [*set(peers) - set(known[0]), *set(rows) - set(known[1])]:
        parser.error(f"{name}: no such peer or row of {args.model}; expected peers of {','.join(known[0])}, rows of {','.join(known[1])}")
    os.makedirs(PEERS, exist_ok=True)
    open(args.samples, "a" if args.append else "w").close()
    settings, failed = parse_settings(args.model, args.quantization, args.set), {}
    for peer in peers:
        try:
            if why := install.install(peer):
                raise RuntimeError(why)
            for form in ["hf", our_form, forms[peer]]:
                subprocess.run([python_of("openvino" if "openvino" in form else peer), os.path.join(HERE, "model.py"), args.model, form], check=True)
            with tempfile.TemporaryDirectory(dir=PEERS) as folder, open(args.samples, "a") as samples:
                measure(args, peer, rows, settings[peer], folder, samples)
        except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
            failed[peer] = str(error)
            print(f"{peer}: {error}", file=sys.stderr)
    samples = list(map(json.loads, open(args.samples)))
    isa = samples[-1]["isa"] if samples else "no samples"
    print(f"\n{cpu_name()}, {THREADS} cores, {isa}, quantization {args.quantization}, {datetime.date.today()}; medians (least-greatest)\n\n{table(args.model, args.quantization, samples)}\n")
    for peer in peers:
        print(f"{peer}: " + (failed.get(peer) or ", ".join(f"{name} {version}" for name, version in install.versions(peer).items())))


if __name__ == "__main__":
    main()
