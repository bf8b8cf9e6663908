"""What the end-to-end tests share: the binary, jobs and how answers are compared.

A test is run as `python3 NAME_test.py FOREBAY [unittest arguments]`; skips are counted and printed.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(TESTS)
GOLDEN = os.path.join(TESTS, "golden")
LLAMA = os.path.join(GOLDEN, "models", "llama3-gqa")
QWEN = os.path.join(GOLDEN, "models", "qwen3")
DEMO_MODEL = os.environ.get("FOREBAY_DEMO_MODEL") or os.path.join(ROOT, "models", "SmolLM2-135M-Instruct.Q4_1.gguf")

# How `forebay run` ends (docs/formats/exit-codes.md).
COMPLETE, ERROR, USAGE, BAD_INPUT, DRAINED, ABORTED, RESULTS_IO, LOCKED, MISMATCH, STALLED, ALL_FAILED = range(11)

forebay = os.path.join(ROOT, "build", "release", "forebay")


def main():
    """Takes the binary's path off the command line, runs the tests, prints what was skipped and why."""
    global forebay
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        forebay = os.path.abspath(sys.argv.pop(1))
    # unittest loads the tests from __main__, which shares this module's `forebay` through functions alone.
    program = unittest.main(module="__main__", exit=False, verbosity=2)
    for test, reason in program.result.skipped:
        print(f"SKIPPED {test}: {reason}")
    print(f"{program.result.testsRun} run, {len(program.result.skipped)} skipped")
    sys.exit(0 if program.result.wasSuccessful() else 1)


def command(*args):
    return [forebay, *map(str, args)]


class Finished:
    """A process that ended: `code` as a shell sees it (-9: killed), `out` and `err` as text."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err


def call(*args, stdin=b"", timeout=300, env=None, preexec_fn=None):
    done = subprocess.run(command(*args), input=stdin, capture_output=True, timeout=timeout, env=env, preexec_fn=preexec_fn)
    return Finished(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))


class Job:
    """One input, one results file and the flags they are run with, in a folder of its own; one thread where these say nothing else."""

    def __init__(self, folder, name, lines, model=LLAMA, flags=()):
        self.folder, self.model, self.flags = folder, model, list(flags)
        self.input = os.path.join(folder, name + ".in.jsonl")
        self.output = os.path.join(folder, name + ".out.jsonl")
        self.summary_path = os.path.join(folder, name + ".summary.json")
        self.write(lines)

    def write(self, lines):
        """`lines` are objects, or bytes that go into the file as they are; or the whole file as bytes."""
        with open(self.input, "wb") as file:
            if isinstance(lines, bytes):
                file.write(lines)
                return
            for line in lines:
                file.write(line if isinstance(line, bytes) else json.dumps(line).encode())
                file.write(b"\n")

    def arguments(self, *flags):
        given = [*self.flags, *flags]
        memory = [] if "--memory" in given else ["--memory", "64MiB"]
        # Threads of a tiny model's steps do little but wait for each other.
        several = self.model == DEMO_MODEL or {"--threads", "--devices"} & set(map(str, given))
        threads = [] if several else ["--threads", "1"]
        return ["run", "-m", self.model, "-i", self.input, "-o", self.output, "--summary", self.summary_path, *memory, *threads,
                *given]

    def run(self, *flags, **kwargs):
        return call(*self.arguments(*flags), **kwargs)

    def start(self, *flags, **kwargs):
        """The process, running; its stderr is a pipe."""
        return subprocess.Popen(command(*self.arguments(*flags)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, **kwargs)

    def raw(self):
        try:
            with open(self.output, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""

    def whole_lines(self):
        data = self.raw()
        return data[: data.rfind(b"\n") + 1].splitlines(keepends=True)

    def results(self):
        """Input line number -> result."""
        return {line_number(line): json.loads(line) for line in self.whole_lines()}

    def bodies(self):
        """Bodies by custom_id."""
        return {result["custom_id"]: result["response"]["body"] for result in self.results().values()}

    def answers(self):
        """Input line number -> the part of its result that is promised to be the same. Duplicates raise."""
        found = {}
        for line in self.whole_lines():
            number = line_number(line)
            if number in found:
                raise AssertionError(f"{self.output}: two results for input line {number}")
            found[number] = answer(line)
        return found

    def summary(self):
        with open(self.summary_path, encoding="utf-8") as file:
            return json.load(file)

    def forget(self):
        for path in (self.output, self.summary_path):
            if os.path.exists(path):
                os.remove(path)


_ID = re.compile(rb'^\{"id":"batch_req_(\d+)_[0-9a-f]{16}(?:-[0-9a-f]{16}){4}","custom_id":')
# Outside the promise (docs/formats/results-log.md). Quotes inside strings are escaped, so members alone match.
_VOLATILE = re.compile(rb'"(created|cached_tokens)":\d+')


def line_number(line):
    match = _ID.match(line)
    if not match:
        raise AssertionError(f"no result line: {line[:120]!r}")
    return int(match.group(1))


def answer(line):
    """The bytes of a result line but for what may differ between runs. Raises where it is no JSON."""
    json.loads(line)
    return _VOLATILE.sub(rb'"\1":0', line)


WORDS = ("the water stands ready before every turbine so that none of them waits for the river again 17 and 4 (x) "
         "naïve 水 text {\"a\": 1}").split()


def sentence(rng, most=24):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, most)))


def mixed_requests(rng, count, vocab=300, most_tokens=24):
    """Lines of every kind a job may hold, bad ones included."""
    lines = []
    for i in range(count):
        kind = rng.randrange(10)
        common = {"max_tokens": rng.randint(1, most_tokens), "temperature": rng.choice([0, 0, 0.7, 1])}
        if rng.random() < 0.2:
            common["ignore_eos"] = True
        if kind <= 2:
            body = {"messages": [{"role": "user", "content": sentence(rng)}], "logprobs": rng.random() < 0.2, **common}
            lines.append({"custom_id": f"chat-{i}", "method": "POST", "url": "/v1/chat/completions", "body": body})
        elif kind <= 4:
            body = {"prompt": "Always the same beginning, long enough for a block of the cache. " + sentence(rng), **common}
            lines.append({"custom_id": f"text-{i}", "method": "POST", "url": "/v1/completions", "body": body})
        elif kind == 5:
            ids = [rng.randrange(vocab) for _ in range(rng.randint(1, 80))]
            lines.append({"custom_id": f"ids-{i}", "prompt": ids, "return_token_ids": True, **common})
        elif kind == 6:
            lines.append({"custom_id": f"n2-{i}", "prompt": sentence(rng), "n": 2, **common, "temperature": 1})
        elif kind == 7:
            lines.append({"custom_id": f"list-{i}", "prompt": [sentence(rng), sentence(rng)], "logprobs": 2, **common})
        elif kind == 8:
            lines.append({"custom_id": f"echo-{i}", "prompt": sentence(rng), "echo": True, "logprobs": 1, "max_tokens": 0})
        else:
            lines.append(rng.choice([b"{not json", b"[1, 2]", b'{"custom_id": "no prompt"}', b'{"prompt": "x", "temperature": 9}',
                                     b'{"prompt": "x", "wrong": 1}', b'{"prompt": [1, 100000]}', b'{"prompt": [' + b"1," * 600 + b"1]}"]))
    return lines


class TestCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="forebay-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def job(self, lines, name="job", **kwargs):
        return Job(self.folder, name, lines, **kwargs)

    def expect(self, finished, code, *texts):
        """The exit code, and that stderr holds each text; never a crash, whatever was expected."""
        self.assertEqual(finished.code, code, finished.err[-3000:])
        for text in texts:
            self.assertIn(text, finished.err)
        return finished
