#!/usr/bin/env python3
"""The Python package beside `forebay run` on the same requests: whole processes, from their start to their end, in turns.

usage: python.py FOREBAY [--rounds N] [--rows tiny,job] [--requests N] [--threads N] [--out FILE], by a Python that has the package
and pyarrow. With one thread nobody waits in a loop for another, so that CPU time means something where other work shares the cores.
Rows: tiny (N requests of 16 + 4 on a tiny model, where overhead shows; 20,000), job (128 x 128+128 of the Qwen3-0.6B shape).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from shapes import QWEN3_06B
from throughput import write_requests
from turns import cpu_in_turns, machine, python, share

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEAD = ["| job | way | seconds | times the first, of pairs | CPU s | times the first, of pairs |", "|---|---|---|---|---|---|"]
TINY = os.path.join(ROOT, "tests", "golden", "models", "llama3-gqa")
# Each prints the output tokens. Arguments: model, the package's arguments as JSON, requests, output.
BEGIN = "import json, sys, forebay; model, arguments, source, output = sys.argv[1], json.loads(sys.argv[2]), *sys.argv[3:5]\n"
RUN_BATCH = BEGIN + "print(forebay.run_batch(source, output, model, use_tqdm=False, **arguments)['output_tokens'])"
ROWS = BEGIN + """
with open(source, encoding="utf-8") as file:
    rows = [json.loads(line) for line in file]
params = forebay.SamplingParams(temperature=0, ignore_eos=True, max_tokens=rows[0]["max_tokens"])
"""
GENERATE = ROWS + """
with forebay.LLM(model, **arguments) as llm:
    print(sum(len(each.outputs[0].token_ids) for each in llm.generate([row["prompt"] for row in rows], params, use_tqdm=False)))
"""
RUN_TABLE = BEGIN + """
import pyarrow.parquet
with open(source, encoding="utf-8") as file:
    params = forebay.SamplingParams(temperature=0, ignore_eos=True, max_tokens=json.loads(file.readline())["max_tokens"])
forebay.run_table(source[:-5] + "parquet", output + ".parquet", model, prompt="prompt", params=params, use_tqdm=False, **arguments)
print(sum(pyarrow.parquet.read_table(output + ".parquet", columns=["num_generated_tokens"])[0].to_pylist()))
"""
# The same requests as a table.
TABLE = """
import json, sys, pyarrow, pyarrow.parquet
rows = [json.loads(line)["prompt"] for line in open(sys.argv[1], encoding="utf-8")]
pyarrow.parquet.write_table(pyarrow.table({"prompt": rows}), sys.argv[1][:-5] + "parquet")
"""


class Job:
    def __init__(self, forebay, folder, model, arguments, count, vocabulary, prompt, generated):
        self.forebay, self.folder, self.model, self.arguments, self.expected = forebay, folder, model, arguments, count * generated
        write_requests(self.path("in.jsonl"), count, vocabulary, prompt, generated)
        python(TABLE, self.path("in.jsonl"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def output(self):
        for name in ("out", "out.parquet"):
            if os.path.exists(self.path(name)):
                os.remove(self.path(name))
        return self.path("out")

    def run(self):
        flags = [part for name, value in self.arguments.items() for part in (f"--{name.replace('_', '-')}", *([] if value is True else [str(value)]))]
        subprocess.run([self.forebay, "run", "-m", self.model, "-i", self.path("in.jsonl"), "-o", self.output(), "--quiet",
                        "--summary", self.path("summary.json"), *flags], check=True)
        self.check(json.load(open(self.path("summary.json")))["output_tokens"])

    def python(self, code):
        self.check(int(python(code, self.model, json.dumps(self.arguments), self.path("in.jsonl"), self.output())))

    def check(self, tokens):
        if tokens != self.expected:
            sys.exit(f"{tokens} tokens, not {self.expected}")

    def ways(self):
        return {"`forebay run`": self.run} | {name: lambda code=code: self.python(code) for name, code in
                                              {"`run_batch`": RUN_BATCH, "`LLM.generate`": GENERATE, "`run_table`": RUN_TABLE}.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("forebay")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", default="tiny,job")
    parser.add_argument("--requests", type=int, default=20000)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out")
    args = parser.parse_args()
    began, lines = machine(), list(HEAD)
    threads = {"threads": args.threads} if args.threads else {}
    print("\n".join(HEAD))
    with tempfile.TemporaryDirectory() as folder:
        jobs = {}
        if "tiny" in args.rows.split(","):
            vocabulary = json.load(open(os.path.join(TINY, "config.json")))["vocab_size"]
            jobs[f"{args.requests} x 16+4, tiny model"] = lambda: Job(
                args.forebay, folder, TINY, {"memory": "256MiB", **threads}, args.requests, vocabulary, 16, 4)
        if "job" in args.rows.split(","):
            model = os.path.join(folder, "qwen3-0.6b")
            os.mkdir(model)
            json.dump(QWEN3_06B, open(os.path.join(model, "config.json"), "w"))
            jobs["128 x 128+128, Qwen3-0.6B shape"] = lambda: Job(
                args.forebay, folder, model, {"random_weights": True, "skip_tokenizer_init": True, **threads}, 128, QWEN3_06B["vocab_size"], 128, 128)
        for name, make in jobs.items():
            times, cpu = cpu_in_turns(make().ways(), args.rounds)
            first = next(iter(times))
            for way in times:
                lines.append(f"| {name} | {way} | {statistics.median(times[way]):.2f} | {share(times[first], times[way])} | "
                             f"{statistics.median(cpu[way]):.2f} | {share(cpu[first], cpu[way])} |")
                print(lines[-1], flush=True)
    if args.out:
        command = f"`bench/python.py build/release/forebay --rounds {args.rounds} --rows {args.rows} --requests {args.requests}{threads and f' --threads {args.threads}' or ''}`"
        with open(args.out, "w") as out:
            out.write("\n".join(["# The Python package beside `forebay run`", "", f"{command} on {began} at its begin, {machine()} at its end.", "",
                                 *lines]) + "\n")


if __name__ == "__main__":
    main()
