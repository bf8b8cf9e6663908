"""The engine in five lines. usage: first.py MODEL"""

import sys

from forebay import LLM, SamplingParams

llm = LLM(sys.argv[1])
for output in llm.generate(["The capital of France is"], SamplingParams(temperature=0, max_tokens=8)):
    print(output.outputs[0].text)
