"""One input, every way through: the same choices, line by line."""
import json
import subprocess

import pytest

import forebay
from conftest import FLAGS, FOREBAY, LLAMA, prompts
from forebay import SamplingParams, scale

COUNT = 60
PARAMS = SamplingParams(temperature=1.0, max_tokens=10, n=2)
WORKERS = {"num_workers": 2, "num_cpus": 1, "start_seconds": 600, "use_tqdm": False, "memory": "64MiB", "max_num_seqs": 16, "digest": True}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("one") / "in.jsonl"
    asked = {"temperature": 1.0, "max_tokens": 10, "n": 2, "return_token_ids": True}
    path.write_text("".join(json.dumps({"prompt": text, **asked}) + "\n" for text in prompts(COUNT)))
    return path


def forebay_run(source, output, *flags):
    command = [FOREBAY, "run", "-m", LLAMA, "-i", str(source), "-o", str(output), "--quiet", "--digest", "--memory", "64MiB", *flags]
    subprocess.run(command, check=True, timeout=600)
    return output


def choices(path):
    """(text, tokens, digest) of each choice, by line."""
    found = {}
    with open(path, encoding="utf-8") as file:
        for text in file:
            result = json.loads(text)
            line = int(result["id"].split("_")[2])
            assert line not in found
            found[line] = [(each["text"], each["token_ids"], each["digest"]) for each in result["response"]["body"]["choices"]]
    return [found[line] for line in sorted(found)]


@pytest.fixture(scope="module")
def expected(source):
    found = choices(forebay_run(source, source.parent / "run.jsonl"))
    assert len(found) == COUNT and all(len(each) == 2 for each in found)
    return found


def test_llm(expected):
    with forebay.LLM(LLAMA, **FLAGS) as llm:
        outputs = llm.generate(prompts(COUNT), PARAMS, use_tqdm=False)
    assert [[(each.text, each.token_ids, f"{each.digest:016x}") for each in output.outputs] for output in outputs] == expected


def test_run_batch(source, expected, tmp_path):
    forebay.run_batch(source, tmp_path / "out.jsonl", LLAMA, use_tqdm=False, **FLAGS)
    assert choices(tmp_path / "out.jsonl") == expected


def test_table(expected):
    pa = pytest.importorskip("pyarrow")
    out = forebay.run_table(pa.table({"q": prompts(COUNT)}), None, LLAMA, prompt="q", params=PARAMS, use_tqdm=False, **FLAGS)
    found = [list(zip(row["generated_text"], row["generated_tokens"])) for row in out.to_pylist()]
    assert found == [[choice[:2] for choice in each] for each in expected]


def test_shards_and_merge(source, expected, tmp_path):
    parts = [str(forebay_run(source, tmp_path / f"part-{i}.jsonl", "--shard", f"{i}/2")) for i in (1, 2)]
    subprocess.run([FOREBAY, "merge", "-o", str(tmp_path / "all.jsonl"), "-i", str(source), *parts], check=True, timeout=600)
    assert choices(tmp_path / "all.jsonl") == expected


def test_shards_in_python_and_merge(source, expected, tmp_path):
    parts = [str(tmp_path / f"part-{i}.jsonl") for i in (1, 2)]
    for i, part in enumerate(parts, 1):
        forebay.run_batch(source, part, LLAMA, shard=f"{i}/2", use_tqdm=False, **FLAGS)
    subprocess.run([FOREBAY, "merge", "-o", str(tmp_path / "all.jsonl"), "-i", str(source), *parts], check=True, timeout=600)
    assert choices(tmp_path / "all.jsonl") == expected


def test_workers(source, expected, tmp_path):
    scale.run_batch(source, tmp_path / "out.jsonl", LLAMA, **WORKERS)
    assert choices(tmp_path / "out.jsonl") == expected


def test_ray(cluster, source, expected, tmp_path):
    from forebay import ray

    ray.run_batch(source, tmp_path / "out.jsonl", LLAMA, **WORKERS)
    assert choices(tmp_path / "out.jsonl") == expected
