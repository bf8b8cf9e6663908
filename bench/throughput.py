#!/usr/bin/env python3
"""Whole jobs of the Qwen3-0.6B shape, and parts of them, beside what the machine could do at that moment.

usage: throughput.py FOREBAY [--rows NAME,...] [--rounds N] [--isa NAME] [--grid PPxTGxB,...] [--traces FOLDER]
                     [--around COMMAND] [--out FILE]
Rows: prefill, batch1, job (128 x 128+128, and its decoding steps; its KV cache is touched at start), jobcold (not), sharegpt, arxiv (lengths of the traces in FOLDER; KV touched at start too, as
much as all lines together need, as long as the budget has it),
moe (prefill of 2,048, batch 1, decoding at 64 of Qwen3-30B-A3B cut to four layers: 8 GB), prompts (300 real ones, bench/sharegpt.py), startup, overhead, smollm, grid. Weights are random and not zero, but for prompts and smollm, which run SmolLM2-135M.

The limit of a step is the sum over its operations of max(flops / register peak, bytes / stream rate): the flops of linear layers and of
attention under the causal mask, the bytes of weights, once a step (of experts those that had rows), and of KV read and written. Each sample stands between
two probes of both rates (limits_probe, beside FOREBAY's bench/); where the two differ by more than 10 % it is thrown away
and repeated. Figures are medians of N samples, with the least and the greatest. --around runs each sample, probes included, under a
command, such as one that keeps others off the machine.
"""
import argparse
import csv
import json
import os
import random
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

import sharegpt
from machine import MOST_DRIFT, probe_of
from shapes import QWEN3_06B, QWEN3_30B_A3B_CUT, SMOLLM2_135M

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DEMO_MODEL = os.path.join(ROOT, "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
TRACES = {
    "sharegpt": "sharegpt_8k_filtered_stats_llama2_tokenizer.csv",
    "arxiv": "arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv",
}
TRACE_ROWS, TRACE_DIVISOR = 300, 8
KV_BYTES_PER_TOKEN = 2 * 2 * QWEN3_06B["num_hidden_layers"] * QWEN3_06B["num_key_value_heads"] * QWEN3_06B["head_dim"]


def write_requests(path, count, vocab, prompt_tokens, output_tokens):
    write_lengths(path, vocab, [(prompt_tokens, output_tokens)] * count)


def write_lengths(path, vocab, lengths):
    rng = random.Random(1)
    with open(path, "w") as out:
        for i, (prompt_tokens, output_tokens) in enumerate(lengths):
            ids = [rng.randrange(vocab) for _ in range(prompt_tokens)]
            body = {"prompt": ids, "max_tokens": output_tokens, "ignore_eos": True, "temperature": 0}
            out.write(json.dumps({"custom_id": str(i), **body}) + "\n")


def trace_lengths(folder, name):
    with open(os.path.join(folder, TRACES[name])) as lines:
        rows = list(csv.DictReader(lines))[:TRACE_ROWS]
    scaled = lambda row, column: max(1, int(float(row[column])) // TRACE_DIVISOR)
    return [(scaled(row, "num_prefill_tokens"), scaled(row, "num_decode_tokens")) for row in rows]


def write_weights(folder, config):
    """A bf16 safetensors file of random weights of the shape, normal numbers of about +-0.03."""
    c, tensors = config, {}
    hidden, head = c["hidden_size"], c["head_dim"]
    q, kv, ffn = c["num_attention_heads"] * head, c["num_key_value_heads"] * head, c["intermediate_size"]
    tensors["model.embed_tokens.weight"] = [c["vocab_size"], hidden]
    for i in range(c["num_hidden_layers"]):
        at, mlp = f"model.layers.{i}.self_attn.", f"model.layers.{i}.mlp."
        tensors |= {at + "q_proj.weight": [q, hidden], at + "k_proj.weight": [kv, hidden], at + "v_proj.weight": [kv, hidden],
                    at + "o_proj.weight": [hidden, q], at + "q_norm.weight": [head], at + "k_norm.weight": [head],
                    mlp + "gate_proj.weight": [ffn, hidden], mlp + "up_proj.weight": [ffn, hidden],
                    mlp + "down_proj.weight": [hidden, ffn], f"model.layers.{i}.input_layernorm.weight": [hidden],
                    f"model.layers.{i}.post_attention_layernorm.weight": [hidden]}
    tensors["model.norm.weight"] = [hidden]
    header, offset = {}, 0
    for name, shape in tensors.items():
        end = offset + 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    rng = random.Random(2)
    pattern = b"".join((rng.choice((0x3C00, 0xBC00)) + rng.randrange(256)).to_bytes(2, "little") for _ in range(1 << 19))
    with open(os.path.join(folder, "model.safetensors"), "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for begin in range(0, offset, len(pattern)):
            out.write(pattern[:offset - begin])


def step_limit(config, step, peak, stream):
    """Seconds that the operations of a record of --steps need at least."""
    c = config
    hidden, head = c["hidden_size"], c["head_dim"]
    heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
    rows = step["decode_rows"] + step["prefill_rows"]
    bound = lambda flops, read: max(flops / peak, read / stream)
    linear = lambda n, k, m: bound(2 * m * n * k, 2 * n * k) if m else 0
    kv_bytes = 2 * 2 * kv_heads * head
    layer = (linear((heads + 2 * kv_heads) * head, hidden, rows) + linear(hidden, heads * head, rows) +
             bound(4 * step["context_tokens"] * heads * head, step["kv_tokens"] * kv_bytes) + rows * kv_bytes / stream)
    head_and_experts = linear(c["vocab_size"], hidden, step["logit_rows"])
    if "num_experts" in c:
        expert = 3 * hidden * c["moe_intermediate_size"]
        layer += linear(c["num_experts"], hidden, rows)
        head_and_experts += bound(2 * expert * step["rows_routed"], 2 * expert * step["experts_touched"])
    else:
        layer += linear(2 * c["intermediate_size"], hidden, rows) + linear(hidden, c["intermediate_size"], rows)
    return c["num_hidden_layers"] * layer + head_and_experts


class Restless(Exception):
    """The machine changed during each sample of a row."""


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.probe = probe_of(args.forebay)
        self.model = self.shape("qwen3-0.6b", QWEN3_06B)
        self.discarded, self.peaks, self.streams = 0, [], []

    def path(self, name):
        return os.path.join(self.folder, name)

    def shape(self, name, config):
        """A folder with this configuration alone."""
        os.makedirs(self.path(name), exist_ok=True)
        with open(os.path.join(self.path(name), "config.json"), "w") as out:
            json.dump(config, out)
        return self.path(name)

    def sample(self, model, flags):
        """One run between two probes: {summary, steps, wall, peak, stream}; None if the probes differ."""
        for name in ("results.jsonl", "steps.jsonl"):
            if os.path.exists(self.path(name)):
                os.remove(self.path(name))
        run = [self.args.forebay, "run", "-m", model, "-i", self.path("requests.jsonl"), "-o", self.path("results.jsonl"),
               "--summary", self.path("summary.json"), "--steps", self.path("steps.jsonl"), "--quiet", "--isa", self.args.isa,
               *flags]
        # One process group under --around: the clock is read beside the command itself.
        script = (f"{self.probe} {self.args.isa} > {self.path('before')} && date +%s.%N > {self.path('began')} && "
                  f"{shlex.join(run)} 2> {self.path('profile')} && date +%s.%N > {self.path('ended')} && {self.probe} {self.args.isa} > {self.path('after')}")
        subprocess.run([*shlex.split(self.args.around), "sh", "-c", script], check=True)
        self.cpu = json.load(open(self.path("before")))["cpu"]
        number = lambda name: float(open(self.path(name)).read())
        before, after = (json.load(open(self.path(name))) for name in ("before", "after"))
        rates = {}
        for key, kept in (("flops", self.peaks), ("bytes_per_s", self.streams)):
            rates[key] = (before[key] + after[key]) / 2
            if abs(before[key] - after[key]) > MOST_DRIFT * max(before[key], after[key]):
                self.discarded += 1
                return None
            kept.append(rates[key])
        steps = [json.loads(line) for line in open(self.path("steps.jsonl"))]
        return {"profile": open(self.path("profile")).read(), "summary": json.load(open(self.path("summary.json"))), "steps": steps,
                "wall": number("ended") - number("began"), "peak": rates["flops"], "stream": rates["bytes_per_s"]}

    def samples(self, model, flags, rounds):
        kept = []
        for _ in range(3 * rounds):
            sample = self.sample(model, flags)
            if sample:
                kept.append(sample)
            if len(kept) == rounds:
                break
        if not kept:
            raise Restless
        return kept

    def random(self, lengths, rounds=None, flags=(), model=None):
        write_lengths(self.path("requests.jsonl"), QWEN3_06B["vocab_size"], lengths)
        return self.samples(model or self.model, ["--random-weights", "--skip-tokenizer-init", *flags], rounds or self.args.rounds)


def spread(values, digits):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def share_row(name, samples, pick, whole=False, config=QWEN3_06B):
    """A row of the first table; `pick` chooses steps, which must be consecutive. whole: of the process, start and end included."""
    times, limits, rates = [], [], []
    for s in samples:
        steps = [step for step in s["steps"] if pick(step)]
        times.append(s["wall"] if whole else steps[-1]["end"] - steps[0]["begin"])
        limits.append(sum(step_limit(config, step, s["peak"], s["stream"]) for step in steps))
        rates.append(sum(step["decode_rows"] + step["prefill_rows"] for step in steps) / times[-1])
    shares = [limit / seconds for limit, seconds in zip(limits, times)]
    return (f"| {name} | {spread(times, 2)} | {statistics.median(limits):.2f} | **{spread(shares, 3)}** | "
            f"{statistics.median(rates):.0f} |")


SHARE_HEAD = ["| run | seconds | limit, s | share of limit | tokens/s |", "|---|---|---|---|---|"]
ALL = lambda step: True
DECODE = lambda rows: lambda step: step["decode_rows"] == rows and step["prefill_rows"] == 0


def shares(bench, rows, emit):
    if "prefill" in rows:
        emit(share_row("prefill 512, one prompt a step", bench.random([(512, 1)] * 8, flags=["--touch-kv", "1GiB"]), ALL))
    if "batch1" in rows:
        emit(share_row("batch 1, context 128-256", bench.random([(128, 128)]), DECODE(1)))
    if "job" in rows:
        samples = bench.random([(128, 128)] * 128, flags=["--touch-kv", "4GiB"])
        emit(share_row("decode at 128 sequences, context about 192", samples, DECODE(128)))
        emit(share_row("job of 128 x 128+128", samples, ALL))
    if "jobcold" in rows:
        emit(share_row("the same, KV touched as it comes into use", bench.random([(128, 128)] * 128, flags=[]), ALL))
    if "moe" in rows:
        config = QWEN3_30B_A3B_CUT
        model = bench.shape("qwen3-30b-a3b", config)
        run = lambda lengths, *flags: bench.random(lengths, flags=["--memory", "8GiB", "--touch-kv", "1GiB", *flags], model=model)
        emit(share_row("experts: prefill 2,048, one prompt a step", run([(2048, 1)] * 4, "--max-num-batched-tokens", "2048"), ALL,
                       config=config))
        emit(share_row("experts: batch 1, context 128-192", run([(128, 64)]), DECODE(1), config=config))
        emit(share_row("experts: decode at 64 sequences, context about 160", run([(128, 64)] * 64), DECODE(64), config=config))
    for name in TRACES:
        if name in rows:
            lengths = trace_lengths(bench.args.traces, name)
            samples = bench.random(lengths, bench.args.trace_rounds, ["--touch-kv", f"{sum(map(sum, lengths)) * KV_BYTES_PER_TOKEN}"])
            emit(share_row(f"{name} trace, file to file", samples, ALL, whole=True))
            emit(share_row("the same without start and end", samples, ALL))
    if "prompts" in rows:
        sharegpt.write_requests(bench.path("requests.jsonl"), TRACE_ROWS, 256)
        samples = bench.samples(DEMO_MODEL, [], bench.args.trace_rounds)
        emit(share_row("real prompts, SmolLM2-135M, file to file", samples, ALL, whole=True, config=SMOLLM2_135M))


def grid(bench, emit):
    """The table of llama-batched-bench: time until the last prompt was read, time after."""
    for cell in bench.args.grid.split(","):
        prompt, generate, batch = map(int, cell.split("x"))
        samples = bench.random([(prompt, generate)] * batch)
        rows = []
        for s in samples:
            steps = s["steps"]
            begin, end = steps[0]["begin"], steps[-1]["end"]
            read = max(step["end"] for step in steps if step["prefill_rows"])
            limit = sum(step_limit(QWEN3_06B, step, s["peak"], s["stream"]) for step in steps)
            rows.append((read - begin, end - read, end - begin, limit / (end - begin)))
        pp, tg, total, share = (statistics.median(column) for column in zip(*rows))
        tokens = batch * (prompt + generate)
        decoded = batch * generate / tg if tg > 0 else 0
        emit(f"| {prompt} | {generate} | {batch} | {tokens} | {pp:.3f} | {batch * prompt / pp:.1f} | {tg:.3f} | {decoded:.1f} | "
             f"{total:.3f} | {tokens / total:.1f} | {share:.3f} |")


def startup(bench, emit):
    folder = bench.path("weights")
    os.mkdir(folder)
    json.dump(QWEN3_06B, open(os.path.join(folder, "config.json"), "w"))
    write_weights(folder, QWEN3_06B)
    write_lengths(bench.path("requests.jsonl"), QWEN3_06B["vocab_size"], [(32, 1)])
    samples = bench.samples(folder, ["--skip-tokenizer-init"], bench.args.rounds + 1)[1:]  # the first warms the page cache
    emit(f"| {spread([s['wall'] for s in samples], 2)} | {spread([s['summary']['startup_seconds'] for s in samples], 2)} | "
         f"{spread([s['summary']['peak_rss_bytes'] / 2**30 for s in samples], 2)} |")


def overhead(bench, emit):
    """A step's time outside of operations, by --profile: one prompt, its choices decoding."""
    for batch in (1, 64, 128):
        write_requests(bench.path("requests.jsonl"), 1, QWEN3_06B["vocab_size"], 64, 33)
        request = json.loads(open(bench.path("requests.jsonl")).read()) | {"n": batch, "temperature": 1, "seed": 1}
        open(bench.path("requests.jsonl"), "w").write(json.dumps(request) + "\n")
        rows = []
        for s in bench.samples(bench.model, ["--random-weights", "--skip-tokenizer-init", "--profile"], bench.args.rounds):
            seconds = float(re.search(r"everything else +([0-9.]+)", s["profile"]).group(1))
            total = s["summary"]["engine"]["step_seconds"]
            rows.append((1e6 * seconds / len(s["steps"]), 100 * seconds / total))
        us, share = zip(*rows)
        emit(f"| {batch} | {spread(us, 0)} | {spread(share, 2)} % | {150 + batch} us, 3 % |")


def smollm(bench, emit):
    for count in map(int, bench.args.counts.split(",")):
        write_requests(bench.path("requests.jsonl"), count, 49152, 128, 128)
        samples = bench.samples(DEMO_MODEL, [], bench.args.rounds)
        emit(f"| {count} x 128+128 | {spread([s['summary']['tokens_per_second'] for s in samples], 0)} | "
             f"{spread([s['summary']['startup_seconds'] for s in samples], 2)} |")


SECTIONS = [
    ({"prefill", "batch1", "job", "jobcold", "moe", "prompts", *TRACES}, "Share of the limit, Qwen3-0.6B shape where no other is named", SHARE_HEAD, None),
    ({"grid"}, "Grid, Qwen3-0.6B shape", ["| PP | TG | B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s | T s | S t/s | share of limit |",
                                         "|---|---|---|---|---|---|---|---|---|---|---|"], grid),
    ({"startup"}, "Start: command to end, 1.2 GB of weights, a prompt of 32 and one token, warm",
     ["| seconds in all | until the engine stands | peak RSS, GiB |", "|---|---|---|"], startup),
    ({"overhead"}, "Step overhead: what is no operation",
     ["| sequences | us a step | of the step | wanted below |", "|---|---|---|---|"], overhead),
    ({"smollm"}, "SmolLM2-135M, Q4_1 file", ["| requests | tokens/s | start-up s |", "|---|---|---|"], smollm),
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("forebay")
    parser.add_argument("--rows", default="prefill,batch1,job,startup")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trace-rounds", type=int, default=3)
    parser.add_argument("--isa", default="avx512bf16")
    parser.add_argument("--grid", default="128x32x1,128x32x8,128x32x32,512x32x8")
    parser.add_argument("--counts", default="1,32", help="requests of the smollm jobs")
    parser.add_argument("--traces", help="folder of the length traces")
    parser.add_argument("--around", default="")
    parser.add_argument("--out")
    args = parser.parse_args()
    wanted = set(args.rows.split(","))
    lines = []

    def emit(line):
        lines.append(line)
        print(line, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, folder)
        for rows, title, head, run in SECTIONS:
            if not rows & wanted:
                continue
            for line in ("", f"## {title}", "", *head):
                emit(line)
            try:
                run(bench, emit) if run else shares(bench, wanted, emit)
            except Restless:
                emit("no figure: the machine changed during each sample of the next row")
        if bench.peaks:
            emit(f"\nRegister peak {statistics.median(bench.peaks) / 1e9:.0f} GFLOP/s, stream {statistics.median(bench.streams) / 1e9:.1f} "
                 f"GB/s (medians of the probes); {bench.discarded} samples thrown away.")
    command = f"`python3 bench/throughput.py build/release/forebay --rows {args.rows} --rounds {args.rounds} --isa {args.isa}` on {bench.cpu}"
    if args.out:
        with open(args.out.replace("ISA", args.isa), "w") as out:
            out.write("\n".join(["# Throughput", "", f"{command}, {os.cpu_count()} cores.", *lines]) + "\n")


if __name__ == "__main__":
    sys.exit(main())
