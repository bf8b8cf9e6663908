"""pass@k of a task that a program checks: n answers a question, and the unbiased estimate. usage: pass_at_k.py MODEL"""

import math
import sys

from forebay import LLM, SamplingParams

questions = {"2 + 2 =": "4", "The opposite of hot is": "cold"}
n = 10

llm = LLM(sys.argv[1])
params = SamplingParams(n=n, temperature=0.8, seed=1, max_tokens=8)
passed = []
for output, wanted in zip(llm.generate(list(questions), params), questions.values()):
    passed.append(sum(wanted in choice.text for choice in output.outputs))
for k in (1, 5, 10):
    # 1 - C(n - c, k) / C(n, k): the chance that k of the n answers hold one that passes.
    rate = sum(1 - math.comb(n - c, k) / math.comb(n, k) for c in passed) / len(passed)
    print(f"pass@{k}: {rate:.3f}")
