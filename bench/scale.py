#!/usr/bin/env python3
"""Jobs that several processes share, beside one process; and the driver alone, under simulated workers.

usage: scale.py FOREBAY [--rounds N] [--rows local,job,ray,rayjob,predictor,simulated] [--requests N] [--lines N] [--workers N] [--out FILE],
by a Python that has the package (and Ray)
local: two workers of one core beside `--devices 2xcpu`, N requests of 16 + 32 on a tiny model, in turns; ray: the same by one worker of all
cores of a cluster that is up beside `forebay run`. job, rayjob: as these two, 256 x 128+128 of the SmolLM2-135M shape. predictor: Ray Data's batches of
16, four at once, beside one of all requests, 512 of 16 + 1 to 64 of that shape in 64 places, from the first row's begin to the last one's end.
simulated: the driver's CPU time and memory over N lines, and how busy N workers of 16 places are
in the last 5 % of the time, beside places that take the next line at once; a worker answers after a time that was drawn, with the line that
`forebay run` gave.
"""
import argparse
import array
import heapq
import json
import os
import random
import resource
import secrets
import subprocess
import sys
import tempfile
import time

from shapes import SMOLLM2_135M
from throughput import write_lengths, write_requests
from turns import HEAD, in_turns, machine, python, table

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TINY = os.path.join(ROOT, "tests", "golden", "models", "llama3-gqa")
ARGUMENTS = {"memory": "256MiB", "max_model_len": 128}
PLACES, MEAN_TOKENS, STEP_SECONDS = 16, 10, 0.05
SHARED = """
import json, sys, forebay.{module} as scale
source, output, model, arguments = *sys.argv[1:4], json.loads(sys.argv[4])
assert scale.run_batch(source, output, model, use_tqdm=False, **arguments)["end"] == "complete"
"""
# A cluster of one node, as long as its input is open; says where it is.
CLUSTER = """
import sys, ray
ray.init(num_cpus=int(sys.argv[1]), include_dashboard=False, log_to_driver=False)
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""
# Prints the seconds in which a Predictor had rows. Arguments: requests, model, the package's arguments as JSON, rows of a batch, CPUs.
PREDICT = """
import json, sys, time, ray, ray.data
from forebay.ray import Predictor
source, model, arguments, size, cores = *sys.argv[1:3], json.loads(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
ray.init(address="auto", log_to_driver=False)
class Timed(Predictor):
    async def __call__(self, batch):
        began = time.monotonic()
        async for rows in super().__call__(batch):
            count = len(rows["prompt_token_ids"])
            yield {**rows, "began": [began] * count, "ended": [time.monotonic()] * count}
with open(source, encoding="utf-8") as file:
    prompts = [json.loads(line)["prompt"] for line in file]
rows = [{"prompt_token_ids": ids, "sampling_params": {"temperature": 0, "ignore_eos": True, "max_tokens": 1 + 37 * i % 64}}
        for i, ids in enumerate(prompts)]
done = ray.data.from_items(rows).map_batches(
    Timed, fn_constructor_kwargs={"model": model, **arguments}, compute=ray.data.ActorPoolStrategy(size=1, max_concurrent_calls_per_actor=4),
    num_cpus=cores, batch_size=size).take_all()
assert len(done) == len(rows) and not any(row["__inference_error__"] for row in done)
print(max(row["ended"] for row in done) - min(row["began"] for row in done))
"""
SETTING = """
import json, sys
from forebay.worker import Worker
print(json.dumps(Worker(sys.argv[1], json.loads(sys.argv[2])).setting()))
"""


def busy_at_end(spans, began, places):
    """How much of so many places is taken in the last 5 % of the time; (begin, end) of each line."""
    end = max(end for _, end in spans)
    last = (end - began) / 20
    return sum(max(0, to - max(begin, end - last)) for begin, to in spans) / (last * places)


def ideal_spans(seconds, places):
    """Lines of these lengths in places that take the next one at once."""
    free, spans = [0.0] * places, []
    for length in seconds:
        begin = heapq.heappop(free)
        heapq.heappush(free, begin + length)
        spans.append((begin, begin + length))
    return spans


class SimulatedWorkers:
    """Answers each line after a step for each of its tokens, at most PLACES at once a worker."""

    def __init__(self, setting, results, tokens):
        self.setting, self.file, self.tokens = setting, os.open(results, os.O_RDONLY), tokens
        self.at = array.array("q", [0])
        with open(results, "rb") as file:
            for number, text in enumerate(file, 1):
                assert int(text.split(b"_", 3)[2]) == number
                self.at.append(self.at[-1] + len(text))
        self.events, self.running, self.waiting, self.busy, self.done = [], [], {}, {}, []

    def start(self, process, arguments):
        self.waiting[process], self.busy[process] = [], 0
        self.events.append((process, "ready", self.setting))
        return f"simulated {process}"

    def begin(self, process, now):
        while self.waiting[process] and self.busy[process] < PLACES:
            line = self.waiting[process].pop()
            self.busy[process] += 1
            heapq.heappush(self.running, (now + STEP_SECONDS * self.tokens[line], now, process, line))

    def send(self, process, lines):
        self.waiting[process][:0] = [number for number, _ in reversed(lines)]
        self.begin(process, time.monotonic())

    def poll(self, seconds):
        if not self.events and self.running:
            time.sleep(max(0, min(seconds, self.running[0][0] - time.monotonic() + 0.02)))
        now, found = time.monotonic(), {}
        while self.running and self.running[0][0] <= now:
            end, begin, process, line = heapq.heappop(self.running)
            self.busy[process] -= 1
            self.done.append((begin, end))
            found.setdefault(process, []).append(os.pread(self.file, self.at[line + 1] - self.at[line] - 1, self.at[line]))
        for process in found:
            self.begin(process, now)
        events, self.events = self.events, []
        return events + [(process, "done", texts) for process, texts in found.items()]

    def stop(self, process):
        pass

    def close(self):
        pass


def simulated(args, folder, emit):
    from forebay import scale

    source, results = os.path.join(folder, "lines.jsonl"), os.path.join(folder, "results.jsonl")
    rng = random.Random(1)
    tokens = [min(5 * MEAN_TOKENS, max(1, round(rng.expovariate(1 / MEAN_TOKENS)))) for _ in range(args.lines)]
    write_lengths(source, 64, [(4, count) for count in tokens])
    flags = [part for name, value in ARGUMENTS.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    subprocess.run([args.forebay, "run", "-m", TINY, "-i", source, "-o", results, "--quiet", "--preserve-order", *flags], check=True)
    workers = SimulatedWorkers(json.loads(python(SETTING, TINY, json.dumps(ARGUMENTS))), results, tokens)
    cpu, began = time.process_time(), time.monotonic()
    summary = scale.run_batch(source, os.path.join(folder, "simulated.jsonl"), TINY, num_workers=args.workers, workers=workers, use_tqdm=False,
                              max_num_seqs=PLACES, **ARGUMENTS)
    cpu, took = time.process_time() - cpu, time.monotonic() - began
    assert summary["end"] == "complete" and summary["num_requests"] == args.lines and summary["refused"] == 0
    places = PLACES * args.workers
    busy = busy_at_end(workers.done, began, places)
    ideal = busy_at_end(ideal_spans([STEP_SECONDS * count for count in tokens], places), 0, places)
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    emit("")
    emit("| simulated workers | lines | seconds | CPU of driver and simulation, us a line | of a core | peak RSS, MiB | busy in the last 5 % | in the input's order, with no driver |")
    emit("|---|---|---|---|---|---|---|---|")
    emit(f"| {args.workers} | {args.lines} | {took:.1f} | {1e6 * cpu / args.lines:.0f} | {cpu / took:.2f} | {rss:.0f} | {busy:.3f} | {ideal:.3f} |")


def predictor(args, source, model, arguments, cores):
    """Rows of the table: what the first batch size takes, as a part of what each takes."""
    seconds, arguments = {}, json.dumps({**arguments, "memory": "2GiB", "max_num_seqs": 64, "threads": cores})
    for _ in range(args.rounds):
        for size, name in ((512, "`Predictor`, one batch"), (16, "`Predictor`, batches of 16")):
            seconds.setdefault(name, []).append(float(python(PREDICT, source, model, arguments, size, cores)))
    return table("512 x 16+1 to 64, SmolLM2-135M shape", seconds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("forebay")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", default="local,simulated")
    parser.add_argument("--requests", type=int, default=20000)
    parser.add_argument("--lines", type=int, default=100000)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--out")
    args = parser.parse_args()
    began, lines, rows = machine(), [], args.rows.split(",")

    def emit(line):
        lines.append(line)
        print(line, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        source, output = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")
        write_requests(source, args.requests, 64, 16, 32)

        def run(*flags, source=source, model=TINY):
            if os.path.exists(output):
                os.remove(output)
            subprocess.run([args.forebay, "run", "-m", model, "-i", source, "-o", output, "--quiet", *flags], check=True)

        def shared(module, source=source, model=TINY, **arguments):
            if os.path.exists(output):
                os.remove(output)
            python(SHARED.format(module=module), source, output, model, json.dumps(arguments))

        model, job_source = os.path.join(folder, "smollm2"), os.path.join(folder, "job.jsonl")
        os.mkdir(model)
        with open(os.path.join(model, "config.json"), "w") as file:
            json.dump(SMOLLM2_135M, file)
        write_requests(job_source, 256, SMOLLM2_135M["vocab_size"], 128, 128)
        job, random_flags = {"source": job_source, "model": model}, ["--random-weights", "--skip-tokenizer-init"]
        random_weights = {"random_weights": True, "skip_tokenizer_init": True}

        if rows != ["simulated"]:
            for line in HEAD:
                emit(line)
        cores, clustered = len(os.sched_getaffinity(0)), any(row in rows for row in ("ray", "rayjob", "predictor"))
        if clustered:
            os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
            cluster = subprocess.Popen([sys.executable, "-c", CLUSTER, str(cores + 1)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            os.environ["RAY_ADDRESS"] = cluster.stdout.readline().strip()
        tiny, smollm2 = f"{args.requests} x 16+32, tiny model", "256 x 128+128, SmolLM2-135M shape"
        for row, name, ways in (
            ("local", tiny, {"`--devices 2xcpu`": lambda: run("--devices", "2xcpu", "--memory", "256MiB"),
                             "`scale.run_batch`, 2 workers": lambda: shared("scale", num_workers=2, num_cpus=1, memory="128MiB")}),
            ("job", smollm2, {"`--devices 2xcpu`": lambda: run("--devices", "2xcpu", "--memory", "4GiB", *random_flags, **job),
                              "`scale.run_batch`, 2 workers": lambda: shared("scale", num_workers=2, num_cpus=1, memory="2GiB", **random_weights, **job)}),
            ("ray", tiny, {"`forebay run`": lambda: run("--memory", "256MiB"),
                           "`forebay.ray.run_batch`, 1 worker": lambda: shared("ray", num_workers=1, num_cpus=cores, memory="256MiB")}),
            ("rayjob", smollm2, {"`forebay run`": lambda: run("--memory", "4GiB", *random_flags, **job),
                                 "`forebay.ray.run_batch`, 1 worker": lambda: shared("ray", num_workers=1, num_cpus=cores, memory="4GiB",
                                                                                     **random_weights, **job)}),
        ):
            if row in rows:
                for line in table(name, in_turns(ways, args.rounds)):
                    emit(line)
        if "predictor" in rows:
            predicted = os.path.join(folder, "predicted.jsonl")
            write_requests(predicted, 512, SMOLLM2_135M["vocab_size"], 16, 1)
            for line in predictor(args, predicted, model, random_weights, cores):
                emit(line)
        if clustered:
            cluster.communicate()
        if "simulated" in rows:
            simulated(args, folder, emit)
    if args.out:
        command = f"`bench/scale.py build/release/forebay --rounds {args.rounds} --rows {args.rows} --requests {args.requests} --lines {args.lines}`"
        with open(args.out, "w") as out:
            out.write("\n".join(["# Jobs that processes share", "", f"{command} on {began} at its begin, {machine()} at its end.", "", *lines]) + "\n")


if __name__ == "__main__":
    main()
