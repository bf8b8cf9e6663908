"""What the tests of the Python package share: tiny models, the command line, and its answers to compare with."""
import json
import os
import secrets
import signal
import subprocess
import sys
import textwrap
import time

import pytest

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LLAMA = os.path.join(TESTS, "golden", "models", "llama3-gqa")
FLAGS = {"memory": "64MiB", "threads": 1, "max_num_seqs": 16, "digest": True}
# Two ranks, whose prices nobody need measure.
RANKS = {"devices": "2xcpu", "device_profile": "zen4", "memory": "128MiB", "threads": 2, "max_model_len": 512, "digest": True}
FOREBAY = os.environ.get("FOREBAY", "forebay")
# Seconds after which what still runs hangs. A machine that other work keeps busy may take twenty times as long as an idle one.
HANGS = 1200
# Of shared jobs: on such a machine, or one that stands still for minutes, a worker is neither dead nor silent.
PATIENT = {"start_seconds": HANGS, "silent_seconds": HANGS}
# Ray tells nobody of its use, and takes a token of this run alone; else it leaves one in the user's home.
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_TOKEN=secrets.token_hex(32))


class Job:
    """One run of `forebay run` over lines; its bodies by line."""

    def __init__(self, folder, lines, model=LLAMA, flags=()):
        self.input, self.output = str(folder / "in.jsonl"), str(folder / "out.jsonl")
        with open(self.input, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        argv = [FOREBAY, "run", "-m", model, "-i", self.input, "-o", self.output, "--quiet", "--preserve-order", "--digest",
                "--memory", "64MiB", "--threads", "1", *flags]
        subprocess.run(argv, check=True, timeout=HANGS)
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


def wait_until(true, seconds):
    """Seconds of a machine that runs: those in which this process stands still do not count."""
    for _ in range(int(seconds / 0.02)):
        if true():
            return
        time.sleep(0.02)
    raise AssertionError(f"not after {seconds} s")


def begun(code, output):
    """A process that runs the Python `code`, in the middle: some results are in `output`, and it goes on."""
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    wait_until(lambda: process.poll() is not None or (os.path.exists(output) and os.path.getsize(output) > 20000), HANGS)
    assert process.poll() is None, "it ended before it could be disturbed"
    return process


def interrupted(imports, call, output):
    """Ctrl-C in the middle of `call`, whose results go to `output`: it raises KeyboardInterrupt."""
    process = begun(f"""
        import signal
        {imports}
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            {call}
        except KeyboardInterrupt:
            print("interrupted")
        """, output)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=HANGS)[0] == "interrupted\n"


def killed(code, output):
    """kill -9 in the middle of `code`, whose results go to `output`."""
    process = begun(code, output)
    process.kill()
    process.communicate()


def drawn(code):
    """What the Python `code` draws where its stderr is a terminal."""
    terminal, inside = os.openpty()
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stderr=inside)
    os.close(inside)
    found = b""
    try:
        while part := os.read(terminal, 65536):
            found += part
    except OSError:  # its end
        pass
    os.close(terminal)
    assert process.wait() == 0
    return found.decode()


@pytest.fixture(scope="session")
def cluster():
    """The address of Ray on this machine, which has no more cores than it is told here. Once a process: Ray remembers its first token."""
    ray = pytest.importorskip("ray", reason="Ray is not installed (the extra [ray])")
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    yield ray.get_runtime_context().gcs_address  # "auto" finds other clusters too
    ray.shutdown()
