#!/usr/bin/env python3
"""Whether two builds give the same bytes: python3 tests/byte_equality.py OLD NEW [NAME...]

Runs the commands below under both binaries and compares what they print and write: memory plans, simulated runs with every
step, rows of `forebay repro`, answers with digests on real CPU ranks. Left out by name: time and memory of this machine
(VOLATILE), and the order in which real ranks finish. NAME: only commands whose name contains it.
Exits 1 and shows the first difference of each command that differs.
"""
import concurrent.futures
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "e2e"))
import support  # noqa: E402

# Of a summary: what this machine had to do with it.
VOLATILE = re.compile(r'"(startup_seconds|peak_rss_bytes)":[0-9.e+-]+')
# Of an answer: when it was made, what the cache held, and the hashes that name the job's settings.
ANSWER_VOLATILE = re.compile(r'"(created|cached_tokens)":\d+|(?<="id":"batch_req_)(\d+)_[0-9a-f-]+')
# Of the log: lines about this machine, and what the summary says again as `expected_ms`.
HOST_LINES = re.compile(r"^forebay: (simulated in|peak RSS|the whole job was expected) .*\n", re.M)

MOE = os.path.join(support.GOLDEN, "models", "qwen3-moe")
DENSE = ("builtin:Qwen3-32B", "builtin:Llama-3.1-70B", "builtin:Qwen2.5-72B")
MIXED = random.Random(5)
REAL_LINES = support.mixed_requests(MIXED, 40)


def plan(model, devices, layouts, *flags, form="--json"):
    """One column a layout, as JSON or (form="") as the table."""
    columns = [part for layout in layouts for part in ("--layout", layout)]
    name = f"plan {os.path.basename(model)} {devices} {' '.join(map(str, flags))} {' '.join(layouts)} {form}"
    return [(name, "plain", ["plan", "--memory", "-m", model, "--devices", devices, *columns, *flags, *form.split()])]


def simulated(model, devices, layout, trace, *flags):
    """A trace: its steps, summary and report."""
    layouts = ["--layout", layout] if layout else []
    return [(f"simulated {model} {devices} {layout} {trace} {' '.join(map(str, flags))}", "simulated",
             ["run", "-m", model, "--devices", devices, *layouts, "--trace", "synthetic:" + trace, *flags])]


def real(devices, layout, *flags, model=support.LLAMA):
    """A job on CPU ranks, its answers with digests."""
    layouts = ["--layout", layout] if layout else []
    return [(f"real {os.path.basename(model)} {devices} {layout} {' '.join(map(str, flags))}", "real",
             ["run", "-m", model, "--devices", devices, *layouts, "--memory", "128MiB", "--max-model-len", 512, "--digest",
              "--quiet", "--threads", 2, *flags])]


def real_trace(*flags):
    """A trace on one CPU rank: the plan of each step."""
    return [("real trace " + " ".join(map(str, flags)), "plans",
             ["run", "-m", support.LLAMA, "--memory", "64MiB", "--threads", 1, "--trace", "synthetic:n=30,prompt=40,output=20",
              *flags])]


def repro(row):
    return [(f"repro {row}", "plain", ["repro", "--quick", "--json", row])]


EIGHT = ["dp=8", "tp=8", "pp=8", "dp=4,tp=2", "dp=8,weights=sharded,pool=16", "dp=4,tp=2,weights=by_layer,pool=32",
         "dp=2,tp=2,pp=2,weights=striped,pool=16", "groups=2,dp=4,weights=by_layer,pool=48"]
AUTO = ["dp=8,weights=by_layer,pool=auto", "groups=2,dp=2,tp=2,weights=striped,pool=auto"]
POOLED = ["dp=8,weights=by_layer,pool=64", "dp=8,weights=striped,pool=64,pool-attention=on", "dp=4,tp=2,weights=striped,pool=64"]
TINY = ["dp=4", "dp=4,weights=by_layer,pool=2", "dp=2,tp=2,weights=sharded,pool=2", "dp=2,pp=2",
        "groups=2,dp=2,weights=striped,pool=2,pool-attention=on", "groups=2,dp=2,weights=striped,pool=auto"]

COMMANDS = [
    *(command for model in DENSE for command in plan(model, "sim:8xh20", EIGHT)),
    *plan("builtin:Qwen3-32B", "sim:8xh20", EIGHT, form=""),
    *plan("builtin:Qwen3-32B", "sim:8xh20", AUTO),
    *plan("builtin:Qwen3-32B", "sim:8xh200", [*EIGHT, AUTO[0]], "--gpu-memory-utilization", 0.6),
    *plan("builtin:Llama-3.1-70B", "sim:8xb200", EIGHT, "--max-model-len", 4096),
    *plan("builtin:Llama-3-8B", "sim:2xa10", ["dp=2", "dp=2,weights=by_layer,pool=auto", "tp=2"], "--max-num-batched-tokens", 512),
    *plan("builtin:Llama-3-8B", "sim:2xa10", ["dp=2,weights=striped,pool=auto"], "--mean-context", 700, "--max-num-seqs", 64,
          form=""),
    *plan("builtin:Llama-3-8B", "sim:a10", [], "--dtype", "float32", form=""),
    *plan("builtin:Llama-3-8B", "sim:4xzen4", ["dp=4,weights=striped,pool=auto", "tp=4", "dp=4"]),
    *(command for mode in ("auto", "pull", "ship", "gather")
      for command in plan("builtin:Qwen3-32B", "sim:8xh20", POOLED[:1], "--mode", mode)),
    *plan("builtin:Qwen3-32B", "sim:8xh20", POOLED, "--pool-parts", "matrix", "--pool-slots", "8GiB"),
    *plan("builtin:Qwen3-32B", "sim:8xh20", POOLED[:1], "--pool-parts", "matrix", "--pool-slots", "2GiB"),
    *plan("builtin:Qwen3-32B", "sim:8xh20", POOLED[:2], "--pool-order", "as-used", "--pool-streams", "one", "--pool-look-ahead", 3),
    *plan("builtin:Qwen3-32B", "sim:8xh20", ["dp=1,tp=2,pp=4", "dp=4,pp=2"], "--steps-in-flight", 6, "--memory-per-rank", "60GiB"),
    *plan("builtin:Qwen3-32B", "sim:8xh20", ["dp=8"], "--memory-per-rank", "64GiB", form=""),
    *plan("builtin:Qwen3-32B", "sim:8xh20", ["dp=8"], "--memory-per-rank", "74GiB", "--max-model-len", 40000),
    *(command for model in (support.LLAMA, support.QWEN)
      for command in plan(model, "4xcpu", TINY, "--memory-per-rank", "64MiB", "--threads", 4)),
    *plan(support.LLAMA, "4xcpu", TINY[1:2], "--memory-per-rank", "64MiB", "--threads", 4, "--mode", "ship", form=""),
    *plan(support.LLAMA, "cpu", [], "--memory-per-rank", "6MiB", "--threads", 1, form=""),
    *plan(support.LLAMA, "cpu", [], "--memory-per-rank", "5MiB", "--threads", 1, form=""),
    *plan(support.LLAMA, "cpu", [], "--memory-per-rank", "5.9MiB", "--threads", 1, "--max-model-len", 512),

    *simulated("builtin:Llama-3.1-70B", "sim:2xa10", "dp=2,weights=striped,pool=80", "n=1"),  # does not fit
    *simulated("builtin:Qwen3-32B", "sim:8xh200", "", "n=300,prompt=300,output=lognormal(4,1),shared=64,choices=2"),
    *simulated("builtin:Qwen3-32B", "sim:8xh200", "dp=2,tp=4", "n=100,prompt=400,output=60,rate=40"),
    *simulated("builtin:Qwen3-32B", "sim:8xh200", "dp=1,tp=2,pp=4", "n=60,prompt=200,output=30"),
    *simulated("builtin:Qwen3-32B", "sim:8xh20", "groups=2,dp=4,weights=by_layer,pool=64", "n=64,prompt=300,output=normal(40,20)",
               "--mode", "pull"),
    *simulated("builtin:Qwen3-32B", "sim:4xh20", "dp=4,weights=striped,pool=64", "n=32,prompt=200,output=normal(30,20)",
               "--mode", "ship"),
    *simulated("builtin:Qwen3-32B", "sim:4xh20", "dp=4,weights=by_layer,pool=64", "n=24,prompt=200,output=20", "--mode", "gather"),
    *simulated("builtin:Qwen3-32B", "sim:4xh20", "dp=4,weights=by_layer,pool=64", "n=40,prompt=200,output=lognormal(4,1)",
               "--steal", "always"),
    *simulated("builtin:Llama-3-8B", "sim:8xh20", "dp=4,tp=2,weights=sharded,pool=32", "n=40,prompt=200,output=lognormal(4,1)",
               "--ship-threshold", 12),
    *simulated("builtin:Llama-3-8B", "sim:4xh20", "dp=2,pp=2,weights=striped,pool=16", "n=40,prompt=200,output=50",
               "--pool-parts", "matrix", "--sim-detail", "full"),
    *simulated("builtin:Llama-3-8B", "sim:a10", "", "n=200,prompt=lognormal(6,1),output=lognormal(5,1)", "--scheduling-policy",
               "adaptive"),
    *simulated(support.LLAMA, "sim:2xzen4", "dp=2,weights=striped,pool=3", "n=100,prompt=30,output=40", "--memory", "64MiB",
               "--sim-uncalibrated"),
    *simulated("builtin:Llama-3-8B", "sim:4xh200", "sp=4", "n=40,prompt=900,output=normal(60,30)"),
    *simulated("builtin:Llama-3-8B", "sim:4xh200", "sp=2,tp=2", "n=24,prompt=600,output=40", "--shift-mode", "4x1"),
    *simulated("builtin:Llama-3-8B", "sim:4xh200", "", "n=40,prompt=900,output=normal(60,30)", "--context", "dp=2", "--generation",
               "tp=2"),
    *simulated("builtin:Llama-3-8B", "sim:a10", "", "n=60,prompt=1500,output=900", "--kv-offloading-size", "16GiB"),
    *simulated("builtin:Llama-3-8B", "sim:a10", "", "n=60,prompt=1500,output=900", "--kv-offloading-size", "16GiB", "--kv-offload",
               "uniform"),
    *(command for mode in ("pull", "routed", "ship", "auto")
      for command in simulated("builtin:Qwen3-30B-A3B", "sim:4xh20", "dp=4,experts=by_expert", "n=24,prompt=200,output=20", "--mode",
                               mode)),
    *plan("builtin:Qwen3-30B-A3B", "sim:4xh20", ["dp=4,experts=by_expert", "tp=4"]),
    *plan("builtin:Llama-3-8B", "sim:8xh200", ["sp=8", "sp=4,tp=2", "sp=2,weights=striped"]),
    *plan("builtin:Llama-3-8B", "sim:a10", [], "--kv-offloading-size", "16GiB"),

    *(command for row in ("model", "SI0", "SI0.prefetch", "SI1.fits", "SI2", "SI6.step", "SI8", "DW3", "VA7") for command in repro(row)),

    *real("cpu", ""),
    *real("cpu", "", "--dtype", "float32", model=support.QWEN),
    *real("cpu", "", "--isa", "avx2"),
    *real("2xcpu", "dp=2"),
    *real("2xcpu", "tp=2"),
    *real("2xcpu", "dp=1,pp=2", "--steps-in-flight", 3),
    *real("2xcpu", "dp=2,weights=by_layer,pool=3", "--mode", "pull"),
    *real("2xcpu", "dp=2,weights=striped,pool=3", "--mode", "ship"),
    *real("2xcpu", "dp=2,weights=striped,pool=auto,pool-attention=on", model=support.QWEN),
    *real("3xcpu", "dp=3,weights=sharded,pool=1", "--mode", "gather"),
    *real("4xcpu", "groups=2,dp=2,weights=by_layer,pool=3", "--steal", "always", "--max-num-seqs", 4),
    *real("2xcpu", "sp=2", "--shift-parallel-threshold", 8),
    *real("2xcpu", "", "--context", "dp=1", "--generation", "dp=1"),
    *real("cpu", "", "--kv-offloading-size", "64MiB", "--num-kv-blocks-override", 20),
    *(command for mode in ("pull", "routed", "ship")
      for command in real("2xcpu", "dp=2,experts=by_expert", "--skip-tokenizer-init", "--mode", mode, model=MOE)),
    *real_trace(),
    *real_trace("--max-num-seqs", 5, "--max-num-batched-tokens", 33),
]


def outputs(binary, kind, arguments, folder):
    """{part: text} of one command."""
    def path(name):
        return os.path.join(folder, name)

    def text(name):
        if not os.path.exists(path(name)):
            return ""
        with open(path(name), encoding="utf-8") as file:
            return file.read()

    if kind == "simulated":
        arguments = [*arguments, "--steps", path("steps"), "--summary", path("summary"), "--report", path("report")]
    elif kind == "plans":
        arguments = [*arguments, "--steps", path("steps")]
    elif kind == "real":
        job = support.Job(folder, "job", REAL_LINES)
        arguments = [*arguments, "-i", job.input, "-o", job.output]
    done = subprocess.run([binary, *map(str, arguments)], capture_output=True, timeout=300)
    found = {"exit code": str(done.returncode)}
    if kind == "plans":
        found["plans"] = "\n".join(json.loads(line)["plan"] for line in text("steps").splitlines())
    elif kind == "real":
        answers = (ANSWER_VOLATILE.sub(lambda m: m[1] or m[2].zfill(6), line.decode()) for line in job.whole_lines())
        found["answers"] = "\n".join(sorted(answers))
    else:
        found["stdout"], found["stderr"] = done.stdout.decode(), HOST_LINES.sub("", done.stderr.decode())
    if kind == "simulated" and done.returncode == 0:
        found["steps"], found["report"] = text("steps"), text("report")
        found["summary"] = VOLATILE.sub(r'"\1":0', text("summary"))
    return found


def first_difference(old, new):
    for part in old:
        if old[part] == new.get(part):
            continue
        before, after = old[part], new.get(part, "")
        at = next((i for i, (a, b) in enumerate(zip(before, after)) if a != b), min(len(before), len(after)))
        begin = max(0, at - 60)
        return f"  {part}, character {at}:\n    old: {before[begin:at + 100]!r}\n    new: {after[begin:at + 100]!r}"
    return None


def compare(command, binaries):
    _, kind, arguments = command
    both = []
    for binary in binaries:
        with tempfile.TemporaryDirectory(prefix="forebay-bytes-") as folder:
            try:
                both.append(outputs(binary, kind, arguments, folder))
            except (ValueError, KeyError, subprocess.TimeoutExpired) as error:
                return f"  {binary}: {type(error).__name__}: {error}"
    return first_difference(*both)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    binaries, names = [os.path.abspath(path) for path in sys.argv[1:3]], sys.argv[3:]
    chosen = [command for command in COMMANDS if not names or any(name in command[0] for name in names)]
    began, different = time.time(), 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for command, difference in zip(chosen, pool.map(lambda c: compare(c, binaries), chosen)):
            if difference:
                different += 1
                print(f"DIFFERS {command[0]}\n{difference}", flush=True)
    print(f"{len(chosen)} commands, {different} differ ({time.time() - began:.0f} s)")
    sys.exit(1 if different or not chosen else 0)


if __name__ == "__main__":
    main()
