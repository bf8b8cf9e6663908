"""What the tests of the Python package share: tiny models, the command line, and its answers to compare with."""
import json
import os
import subprocess

import pytest

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LLAMA = os.path.join(TESTS, "golden", "models", "llama3-gqa")
FLAGS = {"memory": "64MiB", "threads": 1, "max_num_seqs": 16, "digest": True}
FOREBAY = os.environ.get("FOREBAY", "forebay")


class Job:
    """One run of `forebay run` over lines; its bodies by line."""

    def __init__(self, folder, lines, model=LLAMA, flags=()):
        self.input, self.output = str(folder / "in.jsonl"), str(folder / "out.jsonl")
        with open(self.input, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        argv = [FOREBAY, "run", "-m", model, "-i", self.input, "-o", self.output, "--quiet", "--preserve-order", "--digest",
                "--memory", "64MiB", "--threads", "1", *flags]
        subprocess.run(argv, check=True, timeout=300)
        with open(self.output, encoding="utf-8") as file:
            self.bodies = [json.loads(line)["response"]["body"] for line in file]

    def choices(self):
        return [body["choices"] for body in self.bodies]


@pytest.fixture
def run(tmp_path):
    return lambda lines, **kwargs: Job(tmp_path, lines, **kwargs)


@pytest.fixture(scope="module")
def llm():
    import forebay

    with forebay.LLM(LLAMA, **FLAGS) as made:
        yield made


def prompts(count):
    words = "the water stands ready before every turbine so that none of them waits for the river again".split()
    return [" ".join(words[i % 5: i % 5 + 3 + i % 9]) + f" {i}" for i in range(count)]
