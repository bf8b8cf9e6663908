"""A question a row, and its answer beside it. usage: table.py MODEL"""

import sys

import pyarrow as pa

import forebay

questions = pa.table({"id": ["a", "b"], "question": ["What is the capital of France?", "Say hello."]})
params = forebay.SamplingParams(temperature=0, max_tokens=16)
answers = forebay.run_table(questions, None, sys.argv[1], prompt="question", params=params, id="id")
for row in answers.select(["id", "generated_text"]).to_pylist():
    print(row)
