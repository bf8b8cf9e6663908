"""Answers as a column of a Ray dataset. usage: ray_data.py MODEL"""

import sys

import ray

import forebay.ray

rows = [{"id": f"row {i}", "prompt": f"Question {i}: what is {i} + {i}?"} for i in range(20)]
answers = ray.data.from_items(rows).map_batches(
    forebay.ray.Predictor,
    fn_constructor_kwargs={"model": sys.argv[1], "sampling_params": {"max_tokens": 16}, "id_column": "id", "threads": 1},
    compute=ray.data.ActorPoolStrategy(size=1),
    num_cpus=1,
    batch_size=8,
)
for row in sorted(answers.take_all(), key=lambda row: str(row["id"])):
    print(row["id"], repr(row["generated_text"]))
