"""An engine in the process of its user: memory that comes back, fork, Ctrl-C, the interpreter's end, the GIL, imports."""
import contextlib
import ctypes
import gc
import itertools
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import forebay
from conftest import FLAGS, HANGS, LLAMA, prompts, wait_until
from forebay import LLM, SamplingParams


def rss():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("by", ["with", "del", "close"])
def test_memory_comes_back(by):
    kept = []  # closed, and still known to somebody

    def once():
        # So many places that the cache is large; the tiny model's is not.
        model = LLM(LLAMA, **{**FLAGS, "memory": "512MiB", "max_num_seqs": 1024}, touch_kv="128MiB")
        with model if by == "with" else contextlib.nullcontext():
            model.generate(prompts(20), SamplingParams(max_tokens=20), use_tqdm=False)
            inside = rss()
        if by == "close":
            model.close()
            assert model.stats()["requests_finished"] == 20 and model.facts()["vocab_size"] and model.get_metrics()
            kept.append((model, model.get_tokenizer()))
            assert kept[-1][1].decode(kept[-1][1].encode("a", add_special_tokens=False)) == "a"
        del model
        return inside

    once()
    gc.collect()
    before = rss()
    inside = once()
    gc.collect()
    assert inside - before > 64 << 20, "the test holds nothing"
    assert rss() < 1.05 * before


PROMPTS = int(os.environ.get("FOREBAY_PROMPTS", 6000))  # tools/soak.sh: a million


def test_memory_of_an_iterator_is_bounded(llm):
    # What is kept of a prompt or its answer is 4 kB at least.
    source = ({"prompt_token_ids": [5 + i % 50, 6 + i // 50 % 50], "prompt": f"{i:4000}"} for i in range(PROMPTS))
    done, before = 0, 0
    for output in llm.generate_iter(source, SamplingParams(max_tokens=1)):
        assert len(output.prompt) == 4000
        done += 1
        if done == 2000:
            before = rss()
    grown = (rss() - before) / 2**20
    print(f"{done} prompts: {grown:.1f} MiB more than after 2,000")
    assert done == PROMPTS
    assert grown < 6


def in_child(work):
    """Whether `work` is true in a child of fork. A child that hangs is ended."""
    child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(HANGS)
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


def test_fork(llm):
    def is_refused(use):
        try:
            use()
        except forebay.Error as error:
            return error.code == "process_forked"
        return False

    for use in (lambda: llm.generate("x", use_tqdm=False), llm.stats, llm.get_metrics, llm.reset_prefix_cache):
        assert in_child(lambda use=use: is_refused(use))
    assert len(llm.generate("x", use_tqdm=False)) == 1


def test_what_runs_is_left_alone_in_a_child(llm):
    params = SamplingParams(max_tokens=20, ignore_eos=True)
    results = llm.generate_iter(itertools.repeat("the river"), params)
    call = forebay._forebay.Call(llm._model)
    call.add(['{"prompt": "the river", "max_tokens": 200}'], [0], [False], False)
    call.start()
    # The engine's thread holds locks now and then.
    for _ in range(20):
        next(results)
        assert in_child(lambda: (results.close(), call.cancel(0), llm.close()) == (None, None, None))
    next(results)
    results.close()
    assert len(llm.generate("x", use_tqdm=False)) == 1


def test_several_threads_may_close():
    for _ in range(5):
        model = LLM(LLAMA, **FLAGS)
        results = model.generate_iter(prompts(200), SamplingParams(max_tokens=100, ignore_eos=True))
        next(results)
        together = threading.Barrier(4)

        def close(model=model, together=together):
            together.wait()
            model.close()

        threads = [threading.Thread(target=close) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert model.stats()["steps"] > 0 and model.get_metrics()
        with pytest.raises(forebay.Error, match="session_closed"):
            list(results)


def script(text, **kwargs):
    # A test that is run in the background of a shell inherits an ignored SIGINT, which Python leaves so.
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **kwargs)


def test_control_c_cancels_and_the_model_works_on():
    process = script(f"""
        import forebay, time
        llm = forebay.LLM({LLAMA!r}, memory="64MiB", threads=1, max_num_seqs=4)
        params = forebay.SamplingParams(max_tokens=100, ignore_eos=True, seed=1)
        try:
            print("ready", flush=True)
            llm.generate(["the river"] * 20000, params, use_tqdm=False)
        except KeyboardInterrupt:
            steps = llm.stats()["steps"]
            print("interrupted", flush=True)
        while llm.stats()["choices_running"] or llm.stats()["choices_waiting"]:
            time.sleep(0.001)
        print(steps, llm.stats()["steps"], flush=True)
        print(len(llm.generate(["x"], use_tqdm=False)), llm.stats()["choices_waiting"], flush=True)
        """)
    assert process.stdout.readline() == "ready\n"
    time.sleep(1.5)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n", process.stderr.read()
    assert time.monotonic() - began < 60
    given_up, ended = map(int, process.stdout.readline().split())
    assert 0 < given_up <= ended <= given_up + 1, "the step that ran, and no other"
    assert process.stdout.readline() == "1 0\n"
    assert process.wait(HANGS) == 0


def test_a_signal_is_heard_while_prompts_become_tokens(llm):
    def ask(count, after=0.0):
        """How long it takes, and what it raises: each prompt is too long, which is found when it is tokens."""
        signal.setitimer(signal.ITIMER_REAL, after)
        began = time.monotonic()
        with pytest.raises((forebay.Error, KeyboardInterrupt)) as caught:
            llm.generate(["the river " * 3000] * count, use_tqdm=False)
        return time.monotonic() - began, caught.value

    count, tries, before = 500, [], signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        while (took := min(ask(count)[0] for _ in range(2))) < 1:
            count *= 2
        # A machine that other work keeps busy may hold any call up.
        for _ in range(3):
            heard, error = ask(count, took / 10)
            if isinstance(error, forebay.Interrupted) and error.outputs == {} and heard < 0.75 * took:
                return
            tries.append((heard, took, error))
            took = min(ask(count)[0] for _ in range(2))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    pytest.fail(f"heard after s, of s, as: {tries}")


def test_a_child_leaves_a_running_batch_alone(tmp_path):
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"prompt": "the river", "max_tokens": 50}\n' * 3000)
    # In the call itself, which the child leaves by an exception, and beside it.
    process = script(f"""
        import forebay, os, signal, sys, threading, time
        class Child(Exception):
            pass
        children = []
        def fork(*_):
            if not children and os.path.exists({str(output)!r}) and os.path.getsize({str(output)!r}) > 0:
                children.append(os.fork())
                if children[0] == 0:
                    raise Child
        def batch(output):
            return forebay.run_batch({str(source)!r}, output, {LLAMA!r}, memory="64MiB", threads=1, use_tqdm=False)["end"]
        signal.signal(signal.SIGALRM, fork)
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        try:
            print(batch({str(output)!r}), flush=True)
        except Child:
            pass
        signal.setitimer(signal.ITIMER_REAL, 0)
        if children == [0]:
            sys.exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]), flush=True)
        thread = threading.Thread(target=lambda: print(batch({str(output) + ".2"!r}), flush=True))
        thread.start()
        while not os.path.exists({str(output) + ".2"!r}):
            time.sleep(0.01)
        child = os.fork()
        if child == 0:
            sys.exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        thread.join()
        """)
    out, err = process.communicate(timeout=HANGS)
    assert out.split() == ["complete", "7", "7", "complete"], err


LONG = 'llm.generate(["the river"] * 3000, forebay.SamplingParams(max_tokens=50), use_tqdm=False)'
SHORT = 'llm.generate(["the river"], forebay.SamplingParams(max_tokens=1), use_tqdm=False)'
ERRORS = "llm.generate([[10**6]], use_tqdm=False)"
BATCH = "forebay.run_batch({input!r}, {output!r}, {model!r}, memory='64MiB', threads=1, use_tqdm=False)"
STREAMS = "asyncio.run(stream())"
ATEXIT = "atexit.register(lambda: llm.generate(['the river'], use_tqdm=False))"
DEL = """
        class Late:
            def __del__(self, generate=llm.generate):
                try:
                    generate(["the river"], use_tqdm=False)
                except BaseException:
                    pass
        late = [Late() for _ in range(3)]
        """


WORKS = {"long": LONG, "short": SHORT, "errors": ERRORS, "batch": BATCH, "streams": STREAMS}
ENDS = {"end": "", "exit": "sys.exit(0)", "del": DEL, "atexit": ATEXIT}


# What exit calls asks waits for what was asked before: of long jobs it would be all of them.
@pytest.mark.parametrize("work, end", [(work, end) for work in WORKS for end in ENDS if end != "atexit" or work in ("short", "streams")])
def test_the_interpreter_may_end_while_a_job_runs(work, end, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text('{"prompt": "the river", "max_tokens": 50}\n' * 3000)
    processes = [script(f"""
        import asyncio, atexit, forebay, sys, threading, time
        llm = forebay.LLM({LLAMA!r}, memory="64MiB", threads=1)
        async def stream():
            streaming = forebay.AsyncLLM({LLAMA!r}, memory="64MiB", threads=1)
            async def ask():
                async for output in streaming.generate("the river", forebay.SamplingParams(max_tokens=50)):
                    output.outputs[0].text
            while True:
                await asyncio.gather(*(ask() for _ in range(20)))
        def work():
            while True:
                try:
                    {WORKS[work].format(input=str(source), output=str(tmp_path / f"out-{i}.jsonl"), model=LLAMA)}
                except forebay.Error:
                    pass
        threading.Thread(target=work, daemon=True).start()
        time.sleep({0.05 * i})
        {ENDS[end]}
        """) for i in range(9)]
    for process in processes:
        out, err = process.communicate(timeout=HANGS)
        assert process.returncode == 0, err


def test_the_engine_needs_no_gil(llm):
    """Requests finish while another thread keeps the GIL: their results wait in C++."""
    hold = ctypes.PyDLL(None).usleep  # called with the GIL
    enough = threading.Event()

    def ask():
        for _ in llm.generate_iter(itertools.repeat("the river"), SamplingParams(max_tokens=20, ignore_eos=True)):
            if enough.is_set():
                break

    thread = threading.Thread(target=ask)
    thread.start()
    finished, interval = [], sys.getswitchinterval()
    try:
        while len(finished) < 100 and not any(finished):
            begin = llm.stats()["requests_finished"]
            wait_until(lambda: llm.stats()["requests_finished"] > begin, HANGS)
            sys.setswitchinterval(1000)
            begin = llm.stats()["requests_finished"]
            hold(200_000)
            finished.append(llm.stats()["requests_finished"] - begin)
            sys.setswitchinterval(interval)
    finally:
        sys.setswitchinterval(interval)
        enough.set()
        thread.join()
    assert any(finished)


def test_another_thread_keeps_its_speed(llm):
    longest = 0.0
    stop = False

    def tick():
        nonlocal longest
        last = time.monotonic()
        while not stop:
            time.sleep(0)
            now = time.monotonic()
            longest = max(longest, now - last)
            last = now

    thread = threading.Thread(target=tick)
    thread.start()
    llm.generate(prompts(100), SamplingParams(max_tokens=30), use_tqdm=False)
    stop = True
    thread.join()
    # A machine that other work keeps busy may hold any thread up; a step that held the GIL would hold it up always.
    assert longest < 5


def test_import_is_quick_and_needs_little():
    # Of the CPU, which other work does not stretch as it does the clock.
    code = """if True:
        import sys, time
        began = time.process_time()
        import forebay
        print(time.process_time() - began, *({"numpy", "pyarrow", "pandas", "ray", "asyncio"} & set(sys.modules)))
        """
    found = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() for _ in range(3)]
    assert min(float(each[0]) for each in found) < 0.2
    assert all(len(each) == 1 for each in found), found
