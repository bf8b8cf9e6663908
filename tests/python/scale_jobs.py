"""Jobs for several processes to share, and what they answer."""
import json
import re

from conftest import LLAMA, PATIENT, prompts
from forebay import scale

ARGUMENTS = {"memory": "64MiB", "max_num_seqs": 16, "digest": True}
SHARED = {"num_workers": 2, "num_cpus": 1, "use_tqdm": False, **PATIENT, **ARGUMENTS}


def lines(count, tokens=12):
    texts = prompts(count)
    made = [{"custom_id": str(i), "prompt": text, "max_tokens": tokens, "temperature": 1, "n": 1 + i % 2} for i, text in enumerate(texts)]
    made[3] = {"custom_id": "bad", "prompt": "x", "temperature": 9}
    return made


def answers(path, torn=False):
    """Line -> the part of its result that is promised; twice is an error. `torn`: the last line may be none."""
    found = {}
    with open(path, "rb") as file:
        for text in file:
            if torn and not text.endswith(b"\n"):
                break
            result = json.loads(text)
            number = int(result["id"].split("_")[2])
            assert number not in found, f"line {number} twice"
            found[number] = re.sub(rb'"(created|cached_tokens)":\d+', rb'"\1":0', text)
    return found


def shared(run, folder, name="shared.jsonl", **kwargs):
    output = str(folder / name)
    summary = scale.run_batch(run.input, output, LLAMA, **{**SHARED, **kwargs})
    return output, summary
