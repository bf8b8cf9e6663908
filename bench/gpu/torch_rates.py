#!/usr/bin/env python3
"""The linear layers of `gpu_check rates` by PyTorch, in its library's own order: lines of JSON. Ends with 3 without PyTorch or a GPU."""
import sys

try:
    import torch
except ImportError:
    sys.exit(3)
if not torch.cuda.is_available():
    sys.exit(3)

LAYERS = {"8B qkv": (6144, 4096), "8B o": (4096, 4096), "8B gate and up": (28672, 4096), "8B down": (4096, 14336)}
ROWS = (1, 16, 64, 256, 1024, 4096)
POOL_BYTES = 1 << 30  # weights take turns, so that they come from memory


def seconds_of(launch, count):
    """The median of three runs of `count` launches, a launch."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for i in range(3):
        launch(i)
    runs = []
    for _ in range(3):
        begin.record()
        for i in range(count):
            launch(i)
        end.record()
        torch.cuda.synchronize()
        runs.append(begin.elapsed_time(end) * 1e-3 / count)
    return sorted(runs)[1]


def measure(name, columns, k, all_rows):
    weight_bytes = columns * k * 2
    weights = [torch.randn(columns, k, device="cuda", dtype=torch.bfloat16) * 0.02 for _ in range(max(1, min(16, POOL_BYTES // weight_bytes)))]
    for rows in all_rows:
        x = torch.randn(rows, k, device="cuda", dtype=torch.bfloat16)
        y = torch.empty(rows, columns, device="cuda", dtype=torch.bfloat16)
        flops = 2 * rows * columns * k
        count = max(3, min(200, int(4e-3 / (flops / 6e14 + weight_bytes / 4e12))))
        seconds = seconds_of(lambda i: torch.mm(x, weights[i % len(weights)].t(), out=y), count)
        for value, unit in ((seconds * 1e6, "us"), (weight_bytes / seconds * 1e-9, "GB/s") if rows <= 64 else (flops / seconds * 1e-12, "TFLOP/s")):
            print(f'{{"figure": "PyTorch, {name} ({columns} x {k}), {rows} rows", "value": {value:.4g}, "unit": "{unit}"}}', flush=True)


torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
for layer, (n, depth) in LAYERS.items():
    measure(layer, n, depth, ROWS)
measure("8192 x 8192", 8192, 8192, (8192,))
