"""The same job on the nodes of a Ray cluster. usage: ray_job.py MODEL INPUT OUTPUT [WORKERS]"""

import sys

import forebay.ray

model, requests, results = sys.argv[1:4]
workers = int(sys.argv[4]) if len(sys.argv) > 4 else 2
summary = forebay.ray.run_batch(requests, results, model, num_workers=workers, num_cpus=1)
for worker, lines in summary["by_worker"].items():
    print(f"{worker}: {lines} lines")
