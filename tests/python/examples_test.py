"""The examples run as they are printed, and so do README's lines."""
import ast
import json
import os
import re
import subprocess
import sys

import pytest

from conftest import HANGS, LLAMA, TESTS, prompts

ROOT = os.path.dirname(TESTS)


def example(name, *arguments):
    command = [sys.executable, os.path.join(ROOT, "examples", "python", name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANGS, stdin=subprocess.DEVNULL).stdout


def test_first():
    assert example("first.py", LLAMA).strip()


def test_stream():
    assert "\n" in example("stream.py", LLAMA)


def test_table():
    pytest.importorskip("pyarrow")
    rows = [ast.literal_eval(row) for row in example("table.py", LLAMA).splitlines()]
    assert [row["id"] for row in rows] == ["a", "b"] and all(row["generated_text"] for row in rows)


def test_evaluations(tmp_path):
    assert [line.split(":")[0] for line in example("pass_at_k.py", LLAMA).splitlines()] == ["pass@1", "pass@5", "pass@10"]
    pytest.importorskip("pandas")
    results = tmp_path / "results.jsonl"
    body = {"choices": [{"index": 0, "text": "hi"}], "usage": {"completion_tokens": 2}}
    results.write_text("".join(json.dumps({"custom_id": id, "response": {"status_code": 200, "body": body}}) + "\n" for id in ("007", "01")))
    assert example("results.py", str(results)).split()[4:6] == ["007", "200"]


def test_workers(tmp_path):
    requests, results = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    requests.write_text("".join(json.dumps({"prompt": text, "max_tokens": 4}) + "\n" for text in prompts(30)))
    assert example("workers.py", LLAMA, str(requests), str(results)) == "30 lines done, 0 were there, 0 failed\n"
    assert example("workers.py", LLAMA, str(requests), str(results)) == "0 lines done, 30 were there, 0 failed\n"


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_the_first_lines_of_a_page(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        found = re.search(r"^( *)from forebay import LLM, SamplingParams\n(?:\1.*\n|\n)*", file.read(), re.MULTILINE)
    assert found, f"{page} has no first lines"
    code = re.sub(f"^{found[1]}", "", found[0], flags=re.MULTILINE)
    code, count = re.subn(r'"models/[^"]*"', repr(LLAMA), code)
    assert count == 1
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS, stdin=subprocess.DEVNULL)
    assert done.returncode == 0 and done.stdout.strip(), done.stderr


def test_evaluate():
    assert re.fullmatch(r"200 questions, accuracy 0\.\d{3} \+- 0\.\d{3}\n", example("evaluate.py", LLAMA))
