"""The accuracy of a model on questions with several answers. usage: evaluate.py MODEL [QUESTIONS.jsonl]

A question is {"question", "answers": [...], "right": index}. Without a file: 200 sums, four answers each.
"""

import json
import math
import random
import sys

from forebay import LLM

if len(sys.argv) > 2:
    with open(sys.argv[2], encoding="utf-8") as file:
        questions = [json.loads(line) for line in file]
else:
    draw = random.Random(0)
    questions = []
    for _ in range(200):
        a, b = draw.randrange(1, 50), draw.randrange(1, 50)
        sums = draw.sample([a + b, a + b + 1, a + b - 1, a + b + 10], 4)
        answers = [f" {each}" for each in sums]
        questions.append({"question": f"Question: What is {a} + {b}?\nAnswer:", "answers": answers, "right": sums.index(a + b)})

llm = LLM(sys.argv[1])
outputs = llm.loglikelihood([each["question"] for each in questions], [each["answers"] for each in questions])
right = 0
for question, output in zip(questions, outputs):
    # Longer answers are less likely: per byte, as lm_eval's acc_norm has it.
    scores = [each.logprob / len(answer.encode()) for each, answer in zip(output.likelihoods, question["answers"])]
    right += scores.index(max(scores)) == question["right"]
part = right / len(questions)
print(f"{len(questions)} questions, accuracy {part:.3f} +- {math.sqrt(part * (1 - part) / max(1, len(questions) - 1)):.3f}")
