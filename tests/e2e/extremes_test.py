"""Random requests whose parameters take the ends of their ranges: each gets its answer, valid JSON, the same each time.

FOREBAY_EXTREMES (500 lines) and FOREBAY_EXTREMES_SEED change what is drawn.
"""
import json
import os
import random

import support

LINES = int(os.environ.get("FOREBAY_EXTREMES", 500))
SEED = int(os.environ.get("FOREBAY_EXTREMES_SEED", 1))
ALL = list(range(320))

PROMPTS = ["", " ", "x", "a" * 300, "\0", "\U0001f600" * 10, "é" * 50, "<|eot_id|>" * 20, "\u2028\u0085", "\ufffd", [5], [0], [319],
           ["a", "b", ""], ["a", "b"], [[1], [2, 3]]]
CONTENTS = ["hi", "", " ", None, "a" * 200, [{"type": "text", "text": "a"}, {"type": "text", "text": ""}], "\0", "<|eot_id|>"]
ROLES = ["user", "system", "assistant", "tool", "x", ""]
# Name, how often it is given, values.
BOTH = [
    ("temperature", 0.6, [0, 1e-320, 1e-45, 1e-38, 1e-30, 1e-6, 0.01, 1, 2]), ("top_p", 0.15, [1e-45, 1e-30, 1e-17, 1e-6, 0.5, 0.999999999, 1]),
    ("top_k", 0.15, [-1, 0, 1, 2, 319, 320, 321, 2**31 - 1]), ("min_p", 0.15, [0, 1e-45, 1e-30, 0.5, 1]),
    ("presence_penalty", 0.1, [-2, 2, 0, 1e-30]), ("frequency_penalty", 0.1, [-2, 2]),
    ("repetition_penalty", 0.1, [1e-45, 1e-30, 1e-6, 0.5, 2, 1e30, 2**31 - 1]),
    ("logit_bias", 0.1, [{}, {"5": 100}, {"5": -100}, {str(i): -100 for i in ALL}, {str(i): 100 for i in ALL}, {"317": 100}, {"0": 1e-300}]),
    ("seed", 0.15, [0, -1, 2**63 - 1, -2**63, 5]), ("max_tokens", 0.98, [1, 2, 3, 8, 30]), ("min_tokens", 0.1, [0, 1, 2, 30]),
    ("stop", 0.15, ["a", "x", ["a", "b"], "\ufffd", " ", "é", "a" * 160]), ("stop_token_ids", 0.15, [[], [5], ALL, ALL[::2]]),
    ("n", 0.15, [1, 2, 5, 20]), ("prompt_logprobs", 0.1, [0, 1, -1, 320]),
] + [(name, 0.15, [True, False]) for name in ("ignore_eos", "include_stop_str_in_output", "skip_special_tokens", "return_token_ids",
                                              "return_tokens_as_token_ids", "add_special_tokens")]


def request(rng):
    body = {name: rng.choice(values) for name, share, values in BOTH if rng.random() < share}
    if rng.random() < 0.6:
        body["prompt"] = rng.choice(PROMPTS + [[rng.choice(ALL) for _ in range(rng.randint(1, 400))]])
        body |= {"echo": rng.random() < 0.2}
        if rng.random() < 0.2:
            body["logprobs"] = rng.choice([0, 1, 5, 320, -1])
    else:
        body["messages"] = [{"role": rng.choice(ROLES), "content": rng.choice(CONTENTS)} for _ in range(rng.randint(1, 4))]
        body["logprobs"] = rng.random() < 0.3
        if body["logprobs"]:
            body["top_logprobs"] = rng.choice([0, 1, 5, 320, -1])
        if rng.random() < 0.1:
            body |= {"add_generation_prompt": False, "continue_final_message": True}
    return body


class Extremes(support.TestCase):
    def test_every_line_has_its_answer(self):
        rng = random.Random(SEED)
        lines = [request(rng) for _ in range(LINES)]
        answers = []
        for number, flags in enumerate((["--max-num-seqs", "64", "--threads", "2"], ["--max-num-seqs", "7", "--max-num-batched-tokens", "50", "--threads", "1"])):
            job = self.job(lines, f"run{number}", flags=["--max-logprobs", "-1", "--digest", "--quiet", *flags])
            self.expect(job.run(), support.COMPLETE)
            answers.append(job.answers())
        self.assertEqual(sorted(answers[0]), list(range(1, LINES + 1)))
        self.assertEqual(answers[0], answers[1])
        codes = {}
        for line in job.whole_lines():
            response = json.loads(line, parse_constant=lambda name: self.fail(f"{name} is no JSON"))["response"]
            code = response["body"].get("error", {}).get("code")
            codes[code] = codes.get(code, 0) + 1
            self.assertIn(response["status_code"], (200, 400))
        self.assertGreater(codes[None], LINES // 2, "most are answered")
        print(f"{LINES} random requests: {codes}")


if __name__ == "__main__":
    support.main()
