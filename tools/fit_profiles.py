#!/usr/bin/env python3
"""Fits the device profiles of src/cost/profiles from measured kernels.

    tools/fit_profiles.py CALIB_DIR [--out src/cost/profiles] [--held-out tests/golden/cost/held_out.csv]

A development tool: the engine needs only the JSON it writes (format: docs/profiles.md). Every fifth row of a CSV is held
out of its table; the table's residual is the relative error on those rows, and a sample of them goes to --held-out.
"""
import argparse
import csv
import itertools
import json
import math
import os
import statistics

BYTES = {"bf16": 2, "fp8": 1, "fp8_block": 1, "nvfp4": 0.5625, "int8": 1, "int4": 0.5625}
DTYPE = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
SHEET = "vendor datasheet, dense"
MEMORY_MIB = "nvidia-smi total"

# bf16, fp8, fp4 TFLOP/s; MiB; HBM, link, host GB/s a direction; watts.
GPUS = {
    "h20": ("NVIDIA H20-3e", 148, 296, 0, 143771, 4800, 450, 64, 500),
    "h100": ("NVIDIA H100 SXM", 989, 1979, 0, 81559, 3350, 450, 64, 700),
    "h200": ("NVIDIA H200 SXM", 989, 1979, 0, 143771, 4800, 450, 64, 700),
    "b200": ("NVIDIA B200", 2250, 4500, 9000, 183359, 7700, 900, 64, 1000),
    "gb200-nvl72": ("NVIDIA GB200 NVL72", 2500, 5000, 10000, 189471, 8000, 900, 450, 1200),
    "a100-80g": ("NVIDIA A100 80 GB SXM", 312, 0, 0, 81920, 2039, 300, 32, 400),
    "a10": ("NVIDIA A10", 125, 0, 0, 23028, 600, 0, 32, 150),
    "a10-as-a40": ("NVIDIA A10 with the kernels of an A40, as Vasuki's simulator has it", 149.7, 0, 0, 23028, 696, 0, 32, 150),
    "a40": ("NVIDIA A40", 149.7, 0, 0, 46068, 696, 56, 32, 300),
    "rtx4090": ("NVIDIA GeForce RTX 4090", 165, 330, 0, 24564, 1008, 0, 32, 450),
}
NOTES = {("h20", "memory_bytes_per_s"): ("assumed equal to H200's", "derived"),
         ("a10-as-a40", "bf16_flops"): ("A40's", "derived"),
         ("a10-as-a40", "memory_bytes_per_s"): ("A40's", "derived"),
         ("b200", "memory_bytes_per_s"): ("lower end of the published 7.7-8.0 TB/s", "datasheet"),
         ("gb200-nvl72", "host_bytes_per_s"): ("NVLink-C2C to Grace (PCIe beside it: 64 GB/s)", "datasheet")}
# What the default of an unmeasured quantity is, and why.
GPU_DEFAULTS = {
    "mfu": (0.72, "share of the peak that large GEMMs reach"),
    "mbu": (0.80, "share of the memory bandwidth that streaming kernels reach"),
    "op_floor_s": (3e-6, "least time of a kernel"),
    "decode_floor_s": (12e-6, "least time of a decode attention kernel"),
    "launch_s": (0.5e-6, "gap between two kernels of a replayed graph"),
    "step_overhead_s": (2e-3, "host time of a step, 1-4 ms in today's engines"),
    "runtime_bytes": (3.4e9, "context, graphs, communicators and allocator slack"),
    "link_efficiency": (0.80, "share of a link that copies reach, 0.72-0.85"),
    "link_latency_s": (10e-6, "one-sided copy between peers"),
}
# A table may be faster than the datasheet at some point, or slower than a tenth of it at its largest, for these reasons.
OUTSIDE = {
    ("h200", "all_reduce"): "on 8 GPUs the switch adds: a rank sends its buffer once, where the roofline has it sent 1.75 times",
    ("emerald-rapids-amx", "linear"): "weights of few rows stream at 36 GB/s, where the probe of the memory read 34",
}
# The usual case of what was measured; the worst kernel, beside short copies, lost .226.
FREQUENCY_LOSS = (0.049, "attention kernel time 1.049 at frequency 0.963 beside long copies, the usual case; 1.226 at 0.798 beside "
                         "short ones, the worst (DWDP, table 7)")

CPU_NUMBERS = {
    "emerald-rapids-amx": ("Intel Emerald Rapids, 2 vCPU, AMX", dict(
        bf16_flops=(6.5e12, "AMX TDPBF16PS from registers, random data, 2 cores"),
        int8_flops=(12.9e12, "AMX TDPBSSD from registers, 2 cores"),
        f32_flops=(480e9, "AVX-512 FMA, 2 cores"),
        memory_bytes_per_s=(34e9, "stream read of 4 GB on huge pages, 2 cores"),
        copy_bytes_per_core_s=(11e9, "memcpy, 1 core"), link_bytes_per_s=(11e9, "memcpy, 1 core"))),
    "zen4": ("AMD EPYC Genoa (Zen 4), 2 vCPU, AVX-512 BF16", dict(
        bf16_flops=(469e9, "vdpbf16ps from registers, 2 cores"),
        int8_flops=(937e9, "vpdpbusd from registers, 2 cores"),
        f32_flops=(234e9, "AVX-512 FMA, 2 cores"),
        memory_bytes_per_s=(62e9, "weights streamed by the bf16 GEMM at 1-6 rows, 55-67 GB/s in the memory's fast state"),
        copy_bytes_per_core_s=(11e9, "Emerald Rapids' figure; not measured on Zen 4"),
        link_bytes_per_s=(11e9, "Emerald Rapids' figure; not measured on Zen 4"))),
}
CPU_DEFAULTS = {
    "mfu": (0.5, "share of the register peak that GEMMs reach"),
    "mbu": (0.9, "share of the stream rate that kernels reach"),
    "op_floor_s": (1e-6, "a few microseconds of work and two barriers"),
    "decode_floor_s": (2e-6, "a few microseconds of work and two barriers"),
    "launch_s": (0.28e-6, "a spin barrier of two threads"),
    "step_overhead_s": (50e-6, "host time of a step"),
    "runtime_bytes": (0.3e9, "process, threads, tokenizer"),
    "link_efficiency": (1.0, "the link is a measured memcpy"),
    "link_latency_s": (1e-6, "hand-over to the copy-engine thread"),
}
# GFLOP/s by rows of the engine's GEMMs: {(k, n): [...]}; ranges are given by their middle.
CPU_GEMM = {
    ("emerald-rapids-amx", "bf16"): ([1, 4, 16, 32, 64, 128, 256, 512, 1024], {
        (2048, 2048): [36, 144, 578, 1073, 1716, 2332, 3482, 2912, 3181],
        (2048, 5632): [35.5, 142, 578, 1081, 1638, 2254, 3280, 2996, 2972],
        (1024, 3072): [35, 138, 535, 960, 1450, 1980, 2890, 2970, 2990],
        (3072, 1024): [35, 140, 560, 1045, 1670, 2280, 2550, 2650, 2670]}),
    ("emerald-rapids-amx", "int8"): ([1, 4, 16, 32, 64, 128, 256, 512, 1024], {
        (2048, 2048): [66, 260, 1006, 1855, 2885, 3826, 5451, 5057, 4823],
        (2048, 5632): [66, 264, 1028, 1920, 2880, 3846, 4453, 3798, 4068],
        (1024, 3072): [66, 270, 1085, 1877, 2636, 3519, 4419, 4315, 4305],
        (3072, 1024): [69, 274, 1087, 1939, 3015, 4248, 6262, 5836, 5792]}),
    ("zen4", "bf16"): ([1, 2, 4, 6, 12, 18, 30, 66, 132, 258, 516, 1026], {
        (2048, 2048): [61, 120, 234, 341, 385, 405, 416, 440, 440, 457, 454, 445],
        (2048, 5632): [62, 94, 144, 341, 383, 404, 425, 437, 449, 451, 450, 447],
        (3072, 1024): [57, 115, 224, 333, 367, 394, 416, 440, 453, 457, 457, 454]}),
}

# hidden, FFN, heads, KV heads (head size 128) of the models in vidur_mlp.csv.
MODELS = {"Meta-Llama-3-8B": (4096, 14336, 32, 8), "Meta-Llama-3-70B": (8192, 28672, 64, 8),
          "Llama-2-7b-hf": (4096, 11008, 32, 32), "Llama-2-70b-hf": (8192, 28672, 64, 8)}

GRID = [512, 1024, 2048, 4096, 8192, 16384, 65536]
HEAD_DIM = 128
# Keys of 192 elements and values of 128: a prompt's flops are those of heads of their mean.
EXPANDED_HEAD_DIM = 160

ROWS = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768]
POW2 = lambda first, last: [2**i for i in range(first, last + 1)]


def rows_of(path):
    with open(path, newline="") as f:
        return list(csv.DictReader(f))


class Device:
    def __init__(self, numbers):
        self.v = {k: n["value"] for k, n in numbers.items()}

    def peak(self, fmt):
        key = {"fp8": "fp8_flops", "fp8_block": "fp8_flops", "nvfp4": "fp4_flops", "int8": "int8_flops"}.get(fmt)
        return self.v.get(key, 0) or self.v["bf16_flops"]

    def roofline(self, op, fmt, p, head_dim=HEAD_DIM):
        """Seconds at datasheet rates of a table's point; src/cost/model.cc has the same formulas."""
        a, b, c = p
        memory = self.v["memory_bytes_per_s"]
        if op == "linear":
            weights = b * c
            return max(2 * a * weights / self.peak(fmt), weights * BYTES[fmt] / memory)
        if op == "experts":
            return max(2 * a * c / self.peak(fmt), c * BYTES[fmt] / memory)
        if op == "decode_attention":
            return max(4 * head_dim * a * b * c / self.v["bf16_flops"], 2 * head_dim * BYTES[fmt] * a * b / memory)
        if op == "prefill_attention":
            return 2 * head_dim * a * b * b / self.v["bf16_flops"]
        return a * (2 if op == "all_reduce" else 1) * (b - 1) / b / self.v["link_bytes_per_s"]


AXES = {"linear": ["rows", "n", "k"], "experts": ["rows", "skew", "weights"], "decode_attention": ["streams", "context", "group"],
        "prefill_attention": ["streams", "tokens", "group"]}
MONOTONE = {"linear": 1, "experts": 2, "decode_attention": 2, "prefill_attention": 2}  # leading axes along which time never falls


def axis_names(op):
    return AXES.get(op, ["bytes", "ranks", "one"])


def locate(axis, x):
    """Index and weight of the cell that holds x, in log2; held at both ends."""
    x = min(max(x, axis[0]), axis[-1])
    i = max(i for i in range(max(1, len(axis) - 1)) if axis[i] <= x)
    if len(axis) == 1:
        return 0, 0.0
    return i, math.log(x / axis[i]) / math.log(axis[i + 1] / axis[i])


def interpolate(axes, log_time, p):
    cells = [locate(axis, x) for axis, x in zip(axes, p)]
    total = 0.0
    for corner in itertools.product((0, 1), repeat=3):
        weight = math.prod(w if bit else 1 - w for bit, (_, w) in zip(corner, cells))
        if weight > 0:
            total += weight * log_time[tuple(i + bit for bit, (i, _) in zip(corner, cells))]
    return math.exp(total)


def corner_value(point, by_first, first_axis, utilisation):
    """Mean log utilisation of the nearest measured rows; one on the point itself decides alone."""
    logs = [math.log2(x) for x in point]
    near = sorted(by_first, key=lambda x: abs(math.log2(x / point[0])))[:3]
    found = []
    for x in near:
        for q in by_first[x]:
            found.append((sum((math.log2(v) - w) ** 2 for v, w in zip(q, logs)), q))
    found.sort()
    if found[0][0] < 1e-9:
        return utilisation[found[0][1]]
    best = found[:4]
    weights = [1 / d for d, _ in best]
    return sum(w * utilisation[q] for w, (_, q) in zip(weights, best)) / sum(weights)


def make_monotone(axes, log_time, leading):
    """The geometric mean of the largest value before a point and the least one after it, along the leading axes."""
    upper, lower = dict(log_time), dict(log_time)
    for d in range(leading):
        for i in itertools.product(*(range(len(a)) for a in axes)):
            if i[d]:
                before = i[:d] + (i[d] - 1,) + i[d + 1:]
                upper[i] = max(upper[i], upper[before])
        for i in itertools.product(*(range(len(a) - 1, -1, -1) for a in axes)):
            if i[d] + 1 < len(axes[d]):
                lower[i] = min(lower[i], lower[i[:d] + (i[d] + 1,) + i[d + 1:]])
    return {i: (upper[i] + lower[i]) / 2 for i in log_time}


def nearest(first_axis, utilisation):
    """The usual corners of a grid: means of the nearest measured points."""
    by_first = {}
    for p in utilisation:
        by_first.setdefault(p[0], []).append(p)
    return lambda point: corner_value(point, by_first, first_axis, utilisation)


def fit(device, op, fmt, measured, axes, mark, source, head_dim=HEAD_DIM, corners=nearest):
    """measured: [(point, seconds)] in the CSV's order. corners(first axis, {point: log utilisation}) gives the log utilisation of any
    point. Returns the table and its held-out rows."""
    roofline = lambda p: device.roofline(op, fmt, p, head_dim)
    held = [m for i, m in enumerate(measured) if i % 5 == 4]
    train = {}
    for i, (p, seconds) in enumerate(measured):
        if i % 5 != 4:
            train[p] = min(seconds, train.get(p, math.inf))
    utilisation = {p: math.log(roofline(p) / s) for p, s in train.items()}
    corner = corners(axes[0], utilisation)
    log_time = {}
    for i in itertools.product(*(range(len(a)) for a in axes)):
        point = tuple(a[j] for a, j in zip(axes, i))
        log_time[i] = math.log(roofline(point)) - corner(point)
    log_time = make_monotone(axes, log_time, MONOTONE.get(op, 1))
    inside = [(p, s) for p, s in held if all(a[0] <= x <= a[-1] for x, a in zip(p, axes))]
    errors = sorted(abs(interpolate(axes, log_time, p) / s - 1) for p, s in inside)
    values = [float(f"{roofline(tuple(a[j] for a, j in zip(axes, i))) / math.exp(log_time[i]):.4g}")
              for i in itertools.product(*(range(len(a)) for a in axes))]
    table = {"op": op, "format": fmt, "mark": mark, "source": source,
             "residual": {"median": round(statistics.median(errors), 4), "p90": round(errors[int(0.9 * len(errors))], 4),
                          "held_out": len(errors), "fitted": len(train)},
             "axes": dict(zip(axis_names(op), axes)), "utilisation": values}
    if head_dim != HEAD_DIM:
        table["head_dim"] = head_dim
    by_size = lambda p: (p[1], p[0], p[2]) if op == "prefill_attention" else p  # the longest prompts are the largest
    check_points(source, [(by_size(p), roofline(p) / s) for p, s in measured], op)
    return table, inside


ROUNDING = 1.005  # of measured times and of the datasheet's figures


def check_points(source, points, op):
    """[(point, share of the datasheet's rate)]: a CSV whose units were misread shows here."""
    top_point, top = max(points, key=lambda x: x[1])
    last_point, last = max(points)
    print(f"{source:32} {op:18} at most {top:.3f} of the datasheet at {top_point}, {last:.3f} at the largest, {last_point}")
    excused = any(op == o and table for (_, o), table in OUTSIDE.items())
    if (top > ROUNDING or last < 0.1) and not excused:
        raise SystemExit(f"{source}, {op}: {top:.3f} of the datasheet's rate at {top_point}, {last:.3f} at {last_point}; "
                         "expected at most 1 anywhere and at least .1 at the largest, or a reason in OUTSIDE")


def check_table(name, table):
    """The same of a finished table; a table with a reason must need it."""
    values, source = table["utilisation"], "h200" if table["op"] in COLLECTIVES else name
    reason = OUTSIDE.get((source, table["op"]))
    needed = max(values) > ROUNDING or values[-1] < 0.1
    if needed and reason is None:
        raise SystemExit(f"{name}, {table['op']} {table['format']}: utilisation up to {max(values)}, {values[-1]} at the largest "
                         "point, and no reason in OUTSIDE")
    if needed:
        table["outside"] = reason


def gemm_tables(device, path, mark="measured"):
    by_format = {}
    for r in rows_of(path):
        if r["dtype"] in DTYPE:
            point = (int(r["m"]), int(r["n"]), int(r["k"]))
            by_format.setdefault(DTYPE[r["dtype"]], []).append((point, float(r["us"]) * 1e-6))
    return [fit(device, "linear", f, m, [ROWS, GRID, GRID], mark, os.path.basename(path)) for f, m in by_format.items()]


def attention_tables(device, path):
    out = []
    for kind, op in (("gen", "decode_attention"), ("ctx", "prefill_attention")):
        for kv, fmt in (("bfloat16", "bf16"), ("fp8", "fp8")):
            measured = []
            for r in rows_of(path):
                if r["kind"] != kind or r["kv"] != kv:
                    continue
                heads, kv_heads, batch, seq = (int(r[c]) for c in ("heads", "kvheads", "batch", "seq"))
                point = (batch * kv_heads, seq + 1, heads // kv_heads) if kind == "gen" else \
                        (batch * heads, seq, heads // kv_heads)
                measured.append((point, float(r["us"]) * 1e-6))
            axes = [POW2(0, 14), POW2(1, 17), [1, 8, 64]] if kind == "gen" else [POW2(3, 14), POW2(4, 14), [1, 8, 64]]
            out.append(fit(device, op, fmt, measured, axes, "measured", os.path.basename(path)))
    return out


def expanded_tables(device, path):
    """Latent attention's prompts in the expanded form. Of equal sequences x heads (1 x 128, 16 x 8) the fastest counts."""
    out = []
    for kv, fmt in (("bfloat16", "bf16"), ("fp8", "fp8")):
        measured = [((int(r["heads"]) * int(r["batch"]), int(r["isl"]), 1), float(r["us"]) * 1e-6)
                    for r in rows_of(path) if r["kv"] == kv]
        out.append(fit(device, "prefill_attention", fmt, measured, [POW2(0, 15), POW2(4, 15), [1]], "measured",
                       os.path.basename(path), EXPANDED_HEAD_DIM))
    return out


def collective_tables(device, path):
    """all_reduce takes the faster of NCCL and vLLM's kernel under graphs at each size. The column "bytes" counts 16-bit
    elements: the kernel changes at 131,072 of them on 8 GPUs and at 4,194,304 on 2 and 4, which are the 256 KiB and 8 MiB at
    which the measured library changes; and only so is an all-reduce on 8 GPUs as fast as the link."""
    out = []
    for op in ("all_reduce", "all_gather", "reduce_scatter", "alltoall"):
        measured = [((2 * int(r["bytes"]), int(r["gpus"]), 1), float(r["us"]) * 1e-6) for r in rows_of(path)
                    if r["op"] == op and r["impl"] in ("nccl", "vllm_graph")]
        best = {}
        for p, s in measured:
            best[p] = min(s, best.get(p, math.inf))
        sizes = sorted({p[0] for p in best})
        out.append(fit(device, op.replace("alltoall", "all_to_all"), "bf16", list(best.items()), [sizes, [2, 4, 8], [1]],
                       "measured", os.path.basename(path)))
    return out


def weight_grid(measured):
    sizes = [p[1] * p[2] for p, _ in measured]
    return [2**i for i in range(math.floor(math.log2(min(sizes))), math.ceil(math.log2(max(sizes))) + 1)]


def fit_by_weights(device, fmt, measured, mark, source):
    """Few shapes: the table knows a linear by rows and n * k alone (k's axis is one point)."""
    folded = [((p[0], p[1] * p[2], 1), s) for p, s in measured]
    rows = sorted({p[0] for p, _ in folded})
    table, held = fit(device, "linear", fmt, folded, [rows, weight_grid(measured), [1]], mark, source)
    table["axes"] = {"rows": rows, "weights": table["axes"]["n"], "one": [1]}
    return table, held


# DeepSeek-R1: hidden size, experts, those that a token goes to, weights of an expert.
HIDDEN, EXPERTS, TOP_K, EXPERT_WEIGHTS = 7168, 256, 8, 3 * 7168 * 2048


def rows_of_experts(tokens, exponent):
    """Rows of each expert. They were drawn from x^-exponent between 1 and .8 of the tokens; here their quantiles. None: all alike."""
    if exponent is None:
        return [tokens * TOP_K / min(EXPERTS, tokens * TOP_K)] * min(EXPERTS, tokens * TOP_K)
    most, power = max(2, .8 * tokens), 1 - exponent
    loads = [((most**power - 1) * (i + .5) / EXPERTS + 1)**(1 / power) for i in range(EXPERTS)]
    rows = [round(min(tokens, load * tokens * TOP_K / sum(loads))) for load in loads]
    return [r for r in rows if r > 0]


def expert_tables(device, path):
    """Grouped experts of one rank that holds all of them: the faster of two kernels, of times that are no shorter than reading the experts
    that have rows takes. Of a point all experts take the same part."""
    best = {}
    for r in rows_of(path):
        tokens, law = int(r["tokens"]), r["dist"]
        if r["ep"] != "1" or tokens * TOP_K < EXPERTS:  # which experts few rows meet is not said
            continue
        rows = rows_of_experts(tokens, None if law == "balanced" else float(law.rsplit("_", 1)[1]))
        mean, seconds = sum(rows) / len(rows), float(r["us"]) * 1e-6 / len(rows)
        point = (mean, max(rows) / mean, EXPERT_WEIGHTS)
        if seconds >= device.roofline("experts", "nvfp4", point):
            best[law, point] = min(seconds, best.get((law, point), math.inf))
    law_of = {point: law for law, point in best}

    def corners(_, utilisation):
        """Along a law's points by their rows (no batch takes longer than a larger one), between laws by their skews."""
        curves = {}
        for p in sorted(utilisation):
            curves.setdefault(law_of[p], []).append((p, device.roofline("experts", "nvfp4", p) / math.exp(utilisation[p])))
        for curve in curves.values():
            for i in reversed(range(len(curve) - 1)):
                curve[i] = curve[i][0], min(curve[i][1], curve[i + 1][1])

        def of_law(curve, rows):
            axis = [p[0] for p, _ in curve]
            i, w = locate(axis, rows)
            mean = lambda f: (1 - w) * f(*curve[i]) + w * f(*curve[i + 1])
            return mean(lambda p, s: math.log(p[1])), mean(lambda p, s: math.log(device.roofline("experts", "nvfp4", p) / s))

        def corner(point):
            found = sorted(of_law(curve, point[0]) for curve in curves.values())
            i, w = locate([math.exp(skew) for skew, _ in found], point[1])
            return (1 - w) * found[i][1] + w * found[i + 1][1]
        return corner

    measured = [(point, seconds) for (_, point), seconds in sorted(best.items())]
    return [fit(device, "experts", "nvfp4", measured, [POW2(0, 9), POW2(0, 4), [EXPERT_WEIGHTS]], "measured", os.path.basename(path),
                corners=corners)]


def check_unfitted(device, calib):
    """The CSVs of which no profile has a table, or of a part of them alone: DeepSeek-R1's shapes on GB200."""
    link, peak = device.v["link_bytes_per_s"], device.peak
    points = []
    for r in rows_of(os.path.join(calib, "gb200_a2a.csv")):
        tokens, ranks, fmt = int(r["tokens"]), int(r["ep"]), DTYPE[r["dtype"]]
        if r["op"] == "alltoall_dispatch" and ranks > 1:  # a token goes once to each other rank that has one of its experts
            others = (ranks - 1) * (1 - (1 - 1 / ranks) ** TOP_K)
            points.append(((tokens, ranks), tokens * HIDDEN * BYTES[fmt] * others / link / (float(r["us"]) * 1e-6)))
    check_points("gb200_a2a.csv", points, "all_to_all")
    points = []
    for r in rows_of(os.path.join(calib, "gb200_moe_dsr1_nvfp4.csv")):
        tokens, ranks = int(r["tokens"]), int(r["ep"])  # tokens of all ranks: as one rank's they would exceed the peak
        # Which experts a batch reads is not said (32 tokens take less than reading all would), so arithmetic alone bounds it.
        work = tokens * TOP_K * 2 * EXPERT_WEIGHTS / ranks / peak("nvfp4")
        points.append(((tokens, -ranks), work / (float(r["us"]) * 1e-6)))
    check_points("gb200_moe_dsr1_nvfp4.csv", points, "experts")


def vidur_tables(device, path, name):
    measured = []
    for r in rows_of(path):
        if r["device"] != name:
            continue
        hidden, ffn, heads, kv = MODELS[r["model"]]
        tp = int(r["tp"])
        shapes = {"attn_pre_proj": ((heads + 2 * kv) * 128 // tp, hidden), "attn_post_proj": (hidden, heads * 128 // tp),
                  "mlp_up_proj": (2 * ffn // tp, hidden), "mlp_down_proj": (hidden, ffn // tp)}
        if r["op"] in shapes:
            measured.append(((int(r["tokens"]), *shapes[r["op"]]), float(r["ms_median"]) * 1e-3))
    return [fit_by_weights(device, "bf16", measured, "measured", f"{os.path.basename(path)}, {name}")]


def cpu_tables(device, name):
    out = []
    for (cpu, fmt), (rows, shapes) in CPU_GEMM.items():
        if cpu == name:
            measured = [((m, n, k), 2 * m * n * k / (g * 1e9)) for (k, n), rates in shapes.items()
                        for m, g in zip(rows, rates)]
            out.append(fit_by_weights(device, fmt, measured, "derived", "the engine's GEMM prototype, medians, 2 threads"))
    return out


COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def same_links(tables):
    """The collectives among H200's tables, for a device with the same links."""
    return [(dict(table, mark="derived", source="H200's: same links; " + table["source"]), [])
            for table, _ in tables if table["op"] in COLLECTIVES]


def slow_compute(tables, source, target):
    """H200's tables with the compute-bound branch at the target's peak: the slower of the measured time and of the work
    at the utilisation of the table's largest point."""
    out = []
    for table, _ in tables:
        op, fmt, axes = table["op"], table["format"], list(table["axes"].values())
        if op in COLLECTIVES:
            continue
        points = list(itertools.product(*axes))
        best = max(table["utilisation"][-len(points) // len(axes[0]):]) if op != "decode_attention" else 0.72
        scaled = []
        for point, u in zip(points, table["utilisation"]):
            flops = 2 * math.prod(point) if op == "linear" else 4 * 128 * math.prod(point) \
                if op == "decode_attention" else 2 * 128 * point[0] * point[1] ** 2
            peak = target.peak(fmt) if op == "linear" else target.v["bf16_flops"]
            seconds = max(source.roofline(op, fmt, point) / u, flops / (peak * min(best, 0.95)))
            scaled.append(float(f"{target.roofline(op, fmt, point) / seconds:.4g}"))
        out.append((dict(table, mark="derived", utilisation=scaled,
                         source="H200's with the compute-bound branch scaled by 148/989; " + table["source"]), []))
    return out + same_links(tables)


def number(value, source, mark):
    return {"value": value, "mark": mark, "source": source}


def gpu_numbers(name):
    _, bf16, fp8, fp4, mib, memory, link, host, watts = GPUS[name]
    sheet = {"bf16_flops": bf16 * 1e12, "fp8_flops": fp8 * 1e12, "fp4_flops": fp4 * 1e12,
             "memory_bytes": mib * 2**20, "memory_bytes_per_s": memory * 1e9, "link_bytes_per_s": link * 1e9,
             "host_bytes_per_s": host * 1e9, "tdp_w": watts}
    numbers = {}
    for key, value in sheet.items():
        source, mark = NOTES.get((name, key), (MEMORY_MIB if key == "memory_bytes" else SHEET, "datasheet"))
        if value:
            numbers[key] = number(value, source, mark)
    for key, (value, source) in GPU_DEFAULTS.items():
        numbers[key] = number(value, source, "uncalibrated")
    own = name == "gb200-nvl72"
    numbers["frequency_loss"] = number(FREQUENCY_LOSS[0], FREQUENCY_LOSS[1] + ("" if own else ", GB200's"),
                                       "measured" if own else "uncalibrated")
    return numbers


def cpu_numbers(name):
    source = "measured with the engine's probes, "
    numbers = {k: number(v, source + s, "derived") for k, (v, s) in CPU_NUMBERS[name][1].items()}
    numbers["memory_bytes"] = number(24 * 2**30, "the machine's RAM", "derived")
    numbers["cores"] = number(2, "vCPU of the machine", "derived")
    for key, (value, why) in CPU_DEFAULTS.items():
        numbers[key] = number(value, why, "uncalibrated")
    numbers["frequency_loss"] = number(0.05, "copies and AMX share the power budget; a guess", "uncalibrated")
    return numbers


def write_profile(folder, name, kind, description, numbers, tables):
    for table, _ in tables:
        check_table(name, table)
    profile = {"format": 1, "name": name, "description": description, "kind": kind, "numbers": numbers,
               "tables": [t for t, _ in tables]}
    lines = json.dumps(profile, indent=1)
    with open(os.path.join(folder, name + ".json"), "w") as f:
        f.write(compact(lines) + "\n")
    for t, _ in tables:
        r = t["residual"]
        print(f"{name:20} {t['op']:18} {t['format']:10} {t['mark']:9} median {r['median']:.3f} p90 {r['p90']:.3f} "
              f"held out {r['held_out']}")


def compact(text):
    """Objects indented, arrays of numbers on one line."""
    out, row = [], None
    for line in text.split("\n"):
        if row is not None:
            row += line.strip() + ("" if line.strip().startswith("]") else " ")
            if line.strip().startswith("]"):
                out.append(row.replace(" ]", "]").replace(", ", ","))
                row = None
        elif line.endswith("[") and "tables" not in line:
            row = line
        else:
            out.append(line)
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("calib", help="folder of the measured kernels")
    parser.add_argument("--out", default="src/cost/profiles")
    parser.add_argument("--held-out", default="tests/golden/cost/held_out.csv")
    parser.add_argument("--sample", type=int, default=60, help="held-out rows kept a table")
    args = parser.parse_args()
    at = lambda name: os.path.join(args.calib, name)
    numbers = {name: gpu_numbers(name) for name in GPUS} | {name: cpu_numbers(name) for name in CPU_NUMBERS}
    device = {name: Device(n) for name, n in numbers.items()}
    tables = {name: [] for name in numbers}
    tables["h200"] = (gemm_tables(device["h200"], at("h200_gemm.csv")) +
                      attention_tables(device["h200"], at("h200_attn.csv")) +
                      collective_tables(device["h200"], at("h200_comm.csv")))
    tables["gb200-nvl72"] = (gemm_tables(device["gb200-nvl72"], at("gb200_gemm.csv")) +
                             expanded_tables(device["gb200-nvl72"], at("gb200_mla_ctx.csv")) +
                             expert_tables(device["gb200-nvl72"], at("gb200_moe_dsr1_nvfp4.csv")))
    for name, column in (("a100-80g", "a100"), ("a40", "a40"), ("h100", "h100")):
        tables[name] = vidur_tables(device[name], at("vidur_mlp.csv"), column)
    tables["h100"] += same_links(tables["h200"])
    tables["a10-as-a40"] = [(dict(table, mark="derived", source="A40's: " + table["source"]), [])
                            for table, _ in tables["a40"]]
    for name in CPU_NUMBERS:
        tables[name] = cpu_tables(device[name], name)
    tables["h20"] = slow_compute(tables["h200"], device["h200"], device["h20"])
    check_unfitted(device["gb200-nvl72"], args.calib)
    with open(args.held_out, "w") as f:
        f.write("device,op,format,axis0,axis1,axis2,seconds\n")
        for name in numbers:
            write_profile(args.out, name, "cpu" if name in CPU_NUMBERS else "gpu",
                          (CPU_NUMBERS.get(name) or GPUS[name])[0], numbers[name], tables[name])
            for table, held in tables[name]:
                for p, s in held[::max(1, len(held) // args.sample)]:
                    f.write(f"{name},{table['op']},{table['format']},{p[0]},{p[1]},{p[2]},{s:.6g}\n")


if __name__ == "__main__":
    main()
