#!/usr/bin/env python3
"""Throughput of whole jobs, file to file: SmolLM2 on its real weights and the Qwen3-0.6B shape on random ones.

usage: throughput.py FOREBAY [--rounds N] [--out FILE]
Prints a Markdown table; figures are medians of N rounds, with the least and the greatest.
"""
import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DEMO_MODEL = os.path.join(ROOT, "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
QWEN3_06B = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024,
    "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
    "head_dim": 128, "hidden_act": "silu", "max_position_embeddings": 40960, "rms_norm_eps": 1e-6,
    "rope_theta": 1000000, "tie_word_embeddings": True, "attention_bias": False, "torch_dtype": "bfloat16",
    "eos_token_id": 151645,
}


def write_requests(path, count, vocab, prompt_tokens, output_tokens):
    rng = random.Random(1)
    with open(path, "w") as out:
        for i in range(count):
            ids = [rng.randrange(vocab) for _ in range(prompt_tokens)]
            body = {"prompt": ids, "max_tokens": output_tokens, "ignore_eos": True, "temperature": 0}
            out.write(json.dumps({"custom_id": str(i), **body}) + "\n")


def run_job(forebay, model, requests, flags, folder):
    results, summary = os.path.join(folder, "results.jsonl"), os.path.join(folder, "summary.json")
    if os.path.exists(results):
        os.remove(results)
    subprocess.run([forebay, "run", "-m", model, "-i", requests, "-o", results, "--summary", summary, "--quiet", *flags],
                   check=True)
    return json.load(open(summary))


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("forebay")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--counts", default="1,32,128", help="requests of a job")
    parser.add_argument("--out")
    args = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "qwen3-0.6b")
        os.mkdir(config)
        json.dump(QWEN3_06B, open(os.path.join(config, "config.json"), "w"))
        random_flags = ["--random-weights", "--skip-tokenizer-init"]
        cases = [
            ("SmolLM2-135M (Q4_1 file)", DEMO_MODEL, [], 49152, 128, 128),
            ("Qwen3-0.6B shape, random", config, random_flags, 151936, 128, 128),
        ]
        isa = ""
        for name, model, flags, vocab, prompt, output in cases:
            for count in map(int, args.counts.split(",")):
                requests = os.path.join(folder, "requests.jsonl")
                write_requests(requests, count, vocab, prompt, output)
                rates = []
                for _ in range(args.rounds):
                    summary = run_job(args.forebay, model, requests, flags, folder)
                    rates.append((summary["tokens_per_second"], summary["output_tokens_per_second"],
                                  summary["startup_seconds"]))
                    isa = summary["isa"]
                total, out, start = (sorted(column) for column in zip(*rates))
                lines.append(f"| {name} | {count} x {prompt}+{output} | {statistics.median(total):.0f} "
                             f"({total[0]:.0f}-{total[-1]:.0f}) | {statistics.median(out):.0f} | {statistics.median(start):.2f} |")
                print(lines[-1], flush=True)
    head = [
        "# Throughput of whole jobs", "",
        f"`python3 bench/throughput.py build/release/forebay --rounds {args.rounds} --counts {args.counts}` on {cpu_name()}, "
        f"{os.cpu_count()} cores, instruction set {isa}; medians (least-greatest).", "",
        "| model | requests x prompt+output | tokens/s in all | output tokens/s | start-up s |", "| --- | --- | --- | --- | --- |",
    ]
    text = "\n".join(head + lines) + "\n"
    if args.out:
        open(args.out.replace("ISA", isa), "w").write(text)
    print(text)


if __name__ == "__main__":
    main()
