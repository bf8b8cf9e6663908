#!/usr/bin/env python3
"""The Python package beside `forebay run` on the same requests: whole processes, from their start to their end, in turns.

usage: python.py FOREBAY [--rounds N] [--rows tiny,job] [--requests N] [--threads N] [--out FILE], by a Python that has the package
and pyarrow. With one thread nobody waits in a loop for another, so that CPU time means something where other work shares the cores.
The last columns are of the call alone, beside the whole process of `forebay run`: the model is opened in it too, the interpreter, its imports
and the reading of the requests (`LLM.generate` takes them from memory) are not.
Rows: tiny (N requests of 16 + 4 on a tiny model, where overhead shows; 20,000), job (128 x 128+128 of the SmolLM2-135M shape),
gil (a second Python thread beside a job, with a core left free and without), iter (memory over --prompts of generate_iter).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from shapes import SMOLLM2_135M
from throughput import write_requests
from turns import cpu_in_turns, machine, python, share

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEAD = ["| job | way | seconds | times the first, of pairs | CPU s | times the first, of pairs | of the call, s | times the first | CPU s | times the first |",
        "|---" * 10 + "|"]
TINY = os.path.join(ROOT, "tests", "golden", "models", "llama3-gqa")
# Each prints the output tokens, and the seconds and CPU seconds of its call. Arguments: model, the package's arguments as JSON, requests, output.
BEGIN = """
import json, sys, time, forebay
model, arguments, source, output = sys.argv[1], json.loads(sys.argv[2]), *sys.argv[3:5]
def clocks():
    return time.monotonic(), time.process_time()
def tell(tokens):
    print(tokens, *(now - then for now, then in zip(ended, began)))
"""
RUN_BATCH = BEGIN + """
began = clocks()
summary = forebay.run_batch(source, output, model, use_tqdm=False, **arguments)
ended = clocks()
tell(summary["output_tokens"])
"""
GENERATE = BEGIN + """
with open(source, encoding="utf-8") as file:
    rows = [json.loads(line) for line in file]
params = forebay.SamplingParams(temperature=0, ignore_eos=True, max_tokens=rows[0]["max_tokens"])
prompts = [row["prompt"] for row in rows]
began = clocks()
with forebay.LLM(model, **arguments) as llm:
    outputs = llm.generate(prompts, params, use_tqdm=False)
    ended = clocks()
    tell(sum(len(each.outputs[0].token_ids) for each in outputs))
"""
RUN_TABLE = BEGIN + """
import pyarrow.parquet
with open(source, encoding="utf-8") as file:
    params = forebay.SamplingParams(temperature=0, ignore_eos=True, max_tokens=json.loads(file.readline())["max_tokens"])
began = clocks()
forebay.run_table(source[:-5] + "parquet", output + ".parquet", model, prompt="prompt", params=params, use_tqdm=False, **arguments)
ended = clocks()
tell(sum(pyarrow.parquet.ParquetFile(output + ".parquet").read(["num_generated_tokens"])[0].to_pylist()))
"""
# A thread that only counts, alone and beside jobs in turns. Prints its speed beside them as a part of that alone, and its longest waits
# in both, in milliseconds. Argument: the part's threads.
COUNTING = """
import json, statistics, sys, threading, time, forebay
llm = forebay.LLM(sys.argv[1], **json.loads(sys.argv[2]))
params = forebay.SamplingParams(temperature=0, ignore_eos=True, max_tokens=32)
prompts = [[5 + i] * 32 for i in range(64)]

def counted(work):
    found = [0, 0.0]
    ended = False
    def count():
        number, longest, last = 0, 0.0, time.perf_counter()
        while not ended:
            for _ in range(200):
                number += 1
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
        found[:] = number, longest
    thread = threading.Thread(target=count)
    began = time.perf_counter()
    thread.start()
    work()
    ended = True
    took = time.perf_counter() - began
    thread.join()
    return found[0] / took, 1e3 * found[1]

def job():
    llm.generate(prompts, params, use_tqdm=False)

job()
pairs = [(counted(lambda: time.sleep(2)), counted(job)) for _ in range(int(sys.argv[3]))]
part = sorted(beside[0] / alone[0] for alone, beside in pairs)
waits = [statistics.median(pair[i][1] for pair in pairs) for i in (0, 1)]
print(f"{statistics.median(part):.3f} ({part[0]:.3f}-{part[-1]:.3f}) | {waits[0]:.0f} | {waits[1]:.0f}")
"""
# Prompts that are made as they are asked for. Prints MiB of memory at each tenth, and seconds.
ITERATING = """
import json, resource, sys, time, forebay
count = int(sys.argv[3])
def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() >> 20
with forebay.LLM(sys.argv[1], **json.loads(sys.argv[2])) as llm:
    began, done, found = time.monotonic(), 0, []
    for _ in llm.generate_iter(([5 + i % 50, 6 + i // 50 % 50, 7] for i in range(count)), forebay.SamplingParams(max_tokens=1)):
        done += 1
        if done % (count // 10) == 0:
            found.append(rss())
    assert done == count
    print(", ".join(map(str, found)), "|", f"{time.monotonic() - began:.0f}")
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
        self.calls = {}  # way -> seconds and CPU seconds of each round's call
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

    def python(self, name, code):
        tokens, *clocks = python(code, self.model, json.dumps(self.arguments), self.path("in.jsonl"), self.output()).split()
        self.check(int(tokens))
        self.calls.setdefault(name, []).append(list(map(float, clocks)))

    def check(self, tokens):
        if tokens != self.expected:
            sys.exit(f"{tokens} tokens, not {self.expected}")

    def ways(self):
        codes = {"`run_batch`": RUN_BATCH, "`LLM.generate`": GENERATE, "`run_table`": RUN_TABLE}
        return {"`forebay run`": self.run} | {name: lambda name=name, code=code: self.python(name, code) for name, code in codes.items()}


def written(folder, name, config):
    model = os.path.join(folder, name)
    os.mkdir(model)
    json.dump(config, open(os.path.join(model, "config.json"), "w"))
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("forebay")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", default="tiny,job")
    parser.add_argument("--requests", type=int, default=20000)
    parser.add_argument("--prompts", type=int, default=1000000)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out")
    args = parser.parse_args()
    began, rows = machine(), args.rows.split(",")
    lines = list(HEAD) if "tiny" in rows or "job" in rows else []
    threads = {"threads": args.threads} if args.threads else {}
    print("\n".join(lines))
    with tempfile.TemporaryDirectory() as folder:
        jobs = {}
        if "tiny" in rows:
            vocabulary = json.load(open(os.path.join(TINY, "config.json")))["vocab_size"]
            jobs[f"{args.requests} x 16+4, tiny model"] = lambda: Job(
                args.forebay, folder, TINY, {"memory": "256MiB", **threads}, args.requests, vocabulary, 16, 4)
        if "job" in rows:
            model = written(folder, "smollm2", SMOLLM2_135M)
            jobs["128 x 128+128, SmolLM2-135M shape"] = lambda: Job(
                args.forebay, folder, model, {"random_weights": True, "skip_tokenizer_init": True, "memory": "2GiB", **threads}, 128,
                SMOLLM2_135M["vocab_size"], 128, 128)
        for name, make in jobs.items():
            job = make()
            times, cpu = cpu_in_turns(job.ways(), args.rounds)
            first = next(iter(times))
            for way in times:
                cells = [name, way]
                for firsts, own in zip((times[first], cpu[first]) * 2, (times[way], cpu[way], *zip(*job.calls.get(way, [])))):
                    cells += [f"{statistics.median(own):.2f}", share(firsts, own)]
                lines.append("| " + " | ".join(cells + [""] * (10 - len(cells))) + " |")
                print(lines[-1], flush=True)

        def emit(*more):
            lines.extend(more)
            print(*more, sep="\n", flush=True)

        if "gil" in rows:
            emit("", "| threads of the engine, of cores | speed of another Python thread, of its speed alone | longest wait alone, ms | beside, ms |", "|---|---|---|---|")
            # So large that what is made of its results is little.
            model, cores = written(folder, "smollm2-gil", SMOLLM2_135M), len(os.sched_getaffinity(0))
            for count in (cores - 1, cores):
                arguments = {"random_weights": True, "skip_tokenizer_init": True, "memory": "2GiB", "threads": count}
                emit(f"| {count} of {cores} | {python(COUNTING, model, json.dumps(arguments), args.rounds).strip()} |")
        if "iter" in rows:
            emit("", "| prompts of generate_iter | RSS at each tenth, MiB | seconds |", "|---|---|---|")
            emit(f"| {args.prompts} | {python(ITERATING, TINY, json.dumps({'memory': '256MiB', **threads}), args.prompts).strip()} |")
    if args.out:
        command = f"`bench/python.py build/release/forebay --rounds {args.rounds} --rows {args.rows} --requests {args.requests}{threads and f' --threads {args.threads}' or ''}`"
        with open(args.out, "w") as out:
            out.write("\n".join(["# The Python package beside `forebay run`", "", f"{command} on {began} at its begin, {machine()} at its end.", "",
                                 *lines]) + "\n")


if __name__ == "__main__":
    main()
