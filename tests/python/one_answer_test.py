"""One input, every way through: the same choices, line by line."""
import dataclasses
import json
import os
import subprocess

import pytest

import forebay
from conftest import FLAGS, FOREBAY, HANGS, LLAMA, PATIENT, TESTS, prompts
from forebay import SamplingParams, scale

COUNT = 60
PARAMS = SamplingParams(temperature=1.0, max_tokens=10, n=2)
WORKERS = {"num_workers": 2, "num_cpus": 1, "use_tqdm": False, "memory": "64MiB", "max_num_seqs": 16, "digest": True, **PATIENT}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("one") / "in.jsonl"
    asked = {"temperature": 1.0, "max_tokens": 10, "n": 2, "return_token_ids": True}
    path.write_text("".join(json.dumps({"prompt": text, **asked}) + "\n" for text in prompts(COUNT)))
    return path


def forebay_run(source, output, *flags):
    command = [FOREBAY, "run", "-m", LLAMA, "-i", str(source), "-o", str(output), "--quiet", "--digest", "--memory", "64MiB", *flags]
    subprocess.run(command, check=True, timeout=HANGS)
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


def asked(name, value):
    """In Python integers are no floats, and `logprobs` of a chat is no boolean."""
    if isinstance(value, list):
        return [asked(name, each) for each in value]
    if name == "logprobs" and isinstance(value, bool):
        return 0 if value else None
    return int(value) if isinstance(value, float) and value.is_integer() else value


def test_requests_as_people_bring_them(run):
    """The shapes of tests/e2e that are answered and that a call can ask for: a prompt of one text or of ids, or a chat."""
    with open(os.path.join(TESTS, "e2e", "request_shapes.jsonl"), encoding="utf-8") as file:
        shapes = [json.loads(row) for row in file]
    known = {field.name for field in dataclasses.fields(SamplingParams)}
    bodies = []
    for shape in shapes:
        body = shape.get("line", {}).get("body", shape.get("line"))
        if shape["fate"] == "ok" and body and {name for name, value in body.items() if value is not None} <= {*known, "custom_id", "model", "prompt", "messages"}:
            prompt = body.get("prompt")
            if prompt is None or isinstance(prompt, str) or not isinstance(prompt[0], (str, list)):
                bodies.append({name: value for name, value in body.items() if value is not None and name not in ("custom_id", "model")})
    job = run([{**body, "return_token_ids": True} for body in bodies])
    assert len(bodies) > 100 and {name for body in bodies for name in body} >= {"prompt", "messages", "n", "stop", "logit_bias", "logprobs", "top_k"}
    with forebay.LLM(LLAMA, **FLAGS) as llm:
        for kind, ask in (("prompt", llm.generate), ("messages", llm.chat)):
            which = [index for index, body in enumerate(bodies) if kind in body]
            params = []
            for index in which:
                params.append(llm.get_default_sampling_params())
                params[-1].max_tokens = 16 if kind == "prompt" else None  # as lines have it
                for name, value in bodies[index].items():
                    if name in known:
                        setattr(params[-1], name, asked(name, value))
            outputs = ask([asked(kind, bodies[index][kind]) for index in which], params, keys=which, use_tqdm=False)
            for output, index in zip(outputs, which, strict=True):
                theirs = [(each["text"] if kind == "prompt" else each["message"]["content"], each["token_ids"], each["digest"], each["finish_reason"])
                          for each in job.choices()[index]]
                ours = [(each.text, each.token_ids, f"{each.digest:016x}", each.finish_reason) for each in output.outputs]
                assert ours == theirs, bodies[index]


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
    subprocess.run([FOREBAY, "merge", "-o", str(tmp_path / "all.jsonl"), "-i", str(source), *parts], check=True, timeout=HANGS)
    assert choices(tmp_path / "all.jsonl") == expected


def test_shards_in_python_and_merge(source, expected, tmp_path):
    parts = [str(tmp_path / f"part-{i}.jsonl") for i in (1, 2)]
    for i, part in enumerate(parts, 1):
        forebay.run_batch(source, part, LLAMA, shard=f"{i}/2", use_tqdm=False, **FLAGS)
    subprocess.run([FOREBAY, "merge", "-o", str(tmp_path / "all.jsonl"), "-i", str(source), *parts], check=True, timeout=HANGS)
    assert choices(tmp_path / "all.jsonl") == expected


def test_workers(source, expected, tmp_path):
    scale.run_batch(source, tmp_path / "out.jsonl", LLAMA, **WORKERS)
    assert choices(tmp_path / "out.jsonl") == expected


def test_ray(cluster, source, expected, tmp_path):
    from forebay import ray

    ray.run_batch(source, tmp_path / "out.jsonl", LLAMA, **WORKERS)
    assert choices(tmp_path / "out.jsonl") == expected
