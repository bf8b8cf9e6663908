"""Jobs that several processes share: the answers of one, who may take part, and how long any is waited for."""
import fcntl
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import textwrap
import types

import pytest

import forebay
from conftest import FOREBAY, LLAMA, begun, drawn
from forebay import scale
from forebay import worker
from forebay.worker import Worker
from scale_jobs import ARGUMENTS, SHARED, answers, lines, shared


class Watched(scale.LocalWorkers):
    """Notes who was given lines, and which cores it may use. Whose results come first, and count, is the machine's affair."""

    def __init__(self, model):
        super().__init__(model)
        self.given, self.cores = set(), {}

    def send(self, process, lines):
        self.given.add(process)
        self.cores[process] = os.sched_getaffinity(self._processes[process][0].pid)
        super().send(process, lines)


def test_two_workers_give_the_file_of_one(run, tmp_path, monkeypatch):
    job = run(lines(120))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # workers of nobody else take cores there
    workers = Watched(LLAMA)
    output, summary = shared(job, tmp_path, preserve_order=True, workers=workers)
    assert len(workers.given) == 2
    if len(os.sched_getaffinity(0)) > 1:
        assert sorted(len(cores) for cores in workers.cores.values()) == [1, 1] and len(set.union(*workers.cores.values())) == 2
    assert list(answers(output)) == list(range(1, 121)), "in the input's order"
    assert answers(output) == answers(job.output)
    assert summary["end"] == "complete" and summary["num_requests"] == 120 and summary["num_failed"] == 1
    assert sum(summary["by_worker"].values()) == 120
    assert all(name.endswith(f" on {socket.gethostname()}") for name in summary["by_worker"])
    # Both go on with the file, and find it complete.
    subprocess.run([FOREBAY, "run", "-m", LLAMA, "-i", job.input, "-o", output, "--quiet", "--digest", "--memory", "64MiB"], check=True)
    assert shared(job, tmp_path)[1]["num_resumed"] == 120


@pytest.mark.parametrize("arguments, text", [
    ({"num_workers": 0}, "num_workers is 0; expected an integer of at least 1"), ({"num_workers": "2"}, "num_workers is '2'"),
    ({"num_cpus": 0}, "num_cpus is 0"), ({"num_cpus": 0.5}, "num_cpus is 0.5"), ({"max_num_seqs": "x"}, '--max-num-seqs: "x"'),
    ({"silent_seconds": float("nan")}, "silent_seconds is nan"), ({"silent_seconds": float("inf")}, r"silent_seconds is inf; .* at most 1e\+09"),
    ({"least_lines": 9, "most_lines": 8}, "least_lines is 9; expected at most most_lines, 8"),
])
def test_arguments_that_no_job_can_have(tmp_path, arguments, text):
    (tmp_path / "in.jsonl").write_text('{"prompt": "a"}\n')
    with pytest.raises(ValueError, match=text):
        scale.run_batch(tmp_path / "in.jsonl", tmp_path / "out.jsonl", LLAMA, **arguments)


class Asked(Exception):
    pass


class Nobody(scale.LocalWorkers):
    """Says which threads a worker would have."""

    def start(self, process, arguments):
        raise Asked(arguments["threads"])


def test_workers_of_others_may_have_a_part_of_a_core(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"prompt": "a"}\n')
    for num_cpus, threads in ((0.5, 1), (2.0, 2), (0, max(1, len(os.sched_getaffinity(0)) // 2))):
        with pytest.raises(Asked) as caught:
            scale.run_batch(tmp_path / "in.jsonl", tmp_path / "out.jsonl", LLAMA, num_cpus=num_cpus, workers=Nobody(LLAMA))
        assert caught.value.args == (threads,)


def test_numbers_of_numpy_are_numbers(tmp_path):
    numpy = pytest.importorskip("numpy")
    (tmp_path / "in.jsonl").write_text('{"prompt": "a"}\n')
    numbers = {"num_workers": numpy.int64(1), "most_lines": numpy.int32(8), "grace": numpy.float32(1), "silent_seconds": numpy.float64(1)}
    with pytest.raises(Asked):
        scale.run_batch(tmp_path / "in.jsonl", tmp_path / "out.jsonl", LLAMA, **numbers, workers=Nobody(LLAMA))


def test_its_summary_has_the_members_of_runs(run, tmp_path):
    job = run(lines(30))
    output, summary = shared(job, tmp_path, summary=tmp_path / "shared.json")
    theirs = forebay.run_batch(job.input, tmp_path / "mine.jsonl", LLAMA, use_tqdm=False, threads=1, **ARGUMENTS)
    assert json.loads((tmp_path / "shared.json").read_text()) == summary
    assert set(summary) - set(theirs) == {"by_worker", "computed_twice", "refused"}
    for name in ("num_lines", "num_requests", "num_resumed", "num_failed", "num_failed_in_file", "failures", "total_num_tokens", "output_tokens", "end",
                 "isa", "model", "numerics_class"):
        assert summary[name] == theirs[name], name
    assert shared(job, tmp_path)[1]["num_failed_in_file"] == 1
    with pytest.raises(forebay.Error) as caught:
        shared(job, tmp_path, "other.jsonl", summary=job.input)
    assert caught.value.code == "output_taken"
    # A job of which nothing succeeds says so.
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": "x", "temperature": 9}\n')
    assert scale.run_batch(bad, tmp_path / "none.jsonl", LLAMA, **SHARED)["end"] == "all_failed"


def test_a_results_file_has_one_writer(run, tmp_path, monkeypatch):
    job = run(lines(20))
    shutil.copy(job.output, tmp_path / "held.jsonl")
    with open(tmp_path / "held.jsonl", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as `forebay run` and drivers do
        with pytest.raises(forebay.Error) as caught:
            shared(job, tmp_path, "held.jsonl", workers=Told(job, monkeypatch))
        assert caught.value.code == "results_locked" and isinstance(caught.value, RuntimeError)
    assert shared(job, tmp_path, "held.jsonl", workers=Told(job, monkeypatch))[1]["num_resumed"] == 20


def test_strict_runs_nothing_where_a_line_is_bad(run, tmp_path, capfd):
    job = run([*lines(30), {"prompt": "the river " * 60, "max_tokens": 200}], flags=["--max-model-len", "256"])
    output = tmp_path / "mine.jsonl"
    with pytest.raises(forebay.Error, match="2 of 31 lines are bad") as caught:
        shared(job, tmp_path, output.name, strict=True, max_model_len=256)
    assert caught.value.code == "input_has_bad_lines" and not output.exists()
    said = capfd.readouterr().err
    assert "line 4: " in said and "line 31: " in said and "context_length_exceeded" in said
    good = tmp_path / "good.jsonl"
    good.write_text("".join(line for line in open(job.input) if "temperature\": 9" not in line and "200" not in line))
    assert scale.run_batch(good, output, LLAMA, strict=True, **SHARED)["num_requests"] == 29


def test_progress_has_a_line_a_worker(tmp_path):
    requests = tmp_path / "in.jsonl"
    requests.write_text("".join(json.dumps(line) + "\n" for line in lines(300, tokens=60)))
    code = f"""
        from forebay import scale
        scale.run_batch({str(requests)!r}, {str(tmp_path / "out.jsonl")!r}, {LLAMA!r}, **{SHARED | {"use_tqdm": True}!r})
        """
    last = drawn(code).rsplit("\r\x1b[?7l", 1)[1]
    assert "100%" in last and "300/300 done, 1 failed" in last
    # One may hold what the other has done meanwhile.
    done = re.findall(rf"process \d+ on {re.escape(socket.gethostname())}: (\d+) done, \d+ held", last)
    assert len(done) == 2 and sum(map(int, done)) == 300


def test_each_goes_on_where_the_other_ended(run, tmp_path):
    job = run(lines(60))
    whole = answers(job.output)
    for begin in ("forebay run", "scale"):
        part = str(tmp_path / f"part-{begin[0]}.jsonl")
        with open(job.output, "rb") as file, open(part, "wb") as to:
            kept = file.readlines()[:25]
            to.writelines([*kept, b'{"id":"batch_req_40_'])  # and a torn tail
        if begin == "scale":
            summary = scale.run_batch(job.input, part, LLAMA, **SHARED)
            assert summary["num_resumed"] == 25 and summary["num_requests"] == 35
        else:
            forebay.run_batch(job.input, part, LLAMA, use_tqdm=False, threads=1, **ARGUMENTS)
        assert answers(part) == whole


def test_workers_of_another_setting_are_refused(run, tmp_path, caplog):
    job = run(lines(60))

    class Mixed(scale.LocalWorkers):
        def start(self, process, arguments):
            return super().start(process, {**arguments, "dtype": "float32"} if process == 1 else arguments)

    output, summary = shared(job, tmp_path, workers=Mixed(LLAMA))
    assert answers(output) == answers(job.output)
    assert "is refused" in caplog.text and "pair-f32" in caplog.text and "pair-bf16" in caplog.text
    assert len(summary["by_worker"]) == 1


def test_a_worker_of_another_template_is_refused(run, tmp_path, caplog):
    job = run(lines(60))
    (tmp_path / "template").write_text("{{ messages[0].content }}")

    class Mixed(scale.LocalWorkers):
        def start(self, process, arguments):
            return super().start(process, {**arguments, "chat_template": str(tmp_path / "template")} if process == 1 else arguments)

    output, summary = shared(job, tmp_path, workers=Mixed(LLAMA))
    assert answers(output) == answers(job.output) and len(summary["by_worker"]) == 1
    found = re.search(r"is refused: it has .*'settings': '(\w{16})'.*, the job .*'settings': '(\w{16})'.*; what differs: (.*)", caplog.text)
    assert found and found[1] != found[2] and found[3] == "the chat template or tokenizer_config.json (--chat-template)"


def test_workers_agree_on_the_length(run, tmp_path):
    job = run(lines(60), flags=["--max-model-len", "128"])

    class Shorter(Watched):
        def start(self, process, arguments):
            return super().start(process, {"max_model_len": 128 if process == 1 else 256, **arguments})

    workers = Shorter(LLAMA)
    output, summary = shared(job, tmp_path, workers=workers)
    assert summary["max_model_len"] == 128 and len(workers.given) == 2
    assert answers(output) == answers(job.output)


class Told:
    """Workers without processes, in a time of their own: who is ready, and with which setting, is `setting_of`'s affair; they answer
    with the lines of a results file."""

    def __init__(self, job, monkeypatch, setting_of=lambda process, setting: setting, answers_of=lambda process: True):
        worker = Worker(LLAMA, ARGUMENTS)
        self.setting = worker.setting()
        worker.close()
        self.setting_of, self.answers_of = setting_of, answers_of
        with open(job.output, "rb") as file:
            self.results = [text.rstrip(b"\n") for text in file]
        self.started, self.given, self.events, self.clock = [], set(), [], 0.0
        for module in ("driver", "crew"):
            monkeypatch.setattr(f"forebay.{module}.time", types.SimpleNamespace(monotonic=lambda: self.clock))

    def start(self, process, arguments):
        self.started.append({**arguments})
        setting = self.setting_of(process, {**self.setting})
        if setting is not None:
            self.events.append((process, "ready", setting))
        return f"worker {process}"

    def send(self, process, given):
        self.given.add(process)
        death = (process, "died", "it ended")
        if self.answers_of(process):
            self.events.append((process, "done", [self.results[number] for number, _ in given]))
        elif death not in self.events:
            self.events.append(death)

    def poll(self, seconds):
        events, self.events = self.events, []
        self.clock += 0 if events else seconds
        return events

    def stop(self, process):
        self.events = [event for event in self.events if event[0] != process]

    def close(self):
        pass


@pytest.mark.parametrize("key, value", [("version", "0.0.1"), ("model", "another")])
def test_workers_of_another_version_or_model_are_refused(run, tmp_path, monkeypatch, caplog, key, value):
    job = run(lines(40))

    def setting_of(process, setting):
        if process == 1:
            setting[key] = value
            if key == "model":
                setting["fingerprints"] = [7, *setting["fingerprints"][1:]]
        return setting

    workers = Told(job, monkeypatch, setting_of)
    output, summary = shared(job, tmp_path, workers=workers)
    assert answers(output) == answers(job.output) and workers.given == {0}
    assert "worker 1 is refused" in caplog.text and value in caplog.text and workers.setting[key] in caplog.text


def test_the_set_beside_tiles_is_for_machines_that_have_them(run, tmp_path, monkeypatch):
    job = run(lines(120))

    def setting_of(process, setting):
        if process == 1:  # and its place is taken with the other set
            setting.update(numerics_class="amx_split-bf16-kvbf16", fingerprints=[7, *setting["fingerprints"][1:]])
        return setting

    # Another comes in the place of the first, which dies: on a machine of which nobody knows what it has.
    workers = Told(job, monkeypatch, setting_of, lambda process: process > 0)
    output, summary = shared(job, tmp_path, workers=workers)
    assert answers(output) == answers(job.output) and summary["numerics_class"] == workers.setting["numerics_class"]
    assert len(workers.started) == 4 and workers.given == {0, 2, 3}
    assert all("isa" not in arguments for arguments in workers.started)
    assert ["isa_beside_tiles" in arguments for arguments in workers.started] == [False, False, True, True]
    # With tiles it is the worker's flag; without it is none.
    for tiles in (True, False):
        monkeypatch.setattr(worker, "has_tiles", lambda: tiles)
        told = Worker(LLAMA, {**ARGUMENTS, "isa_beside_tiles": "avx2"})
        assert told.setting()["isa"] == ("avx2" if tiles else workers.setting["isa"])
        told.close()


def test_differing_answers_name_both_machines(run, tmp_path, monkeypatch):
    job = run(lines(60))

    class Late(Told):
        """Worker 0 falls silent with its lines; it gives another answer to one of them as soon as worker 1 has answered that."""

        held = set()

        def send(self, process, given):
            numbers = {number for number, _ in given}
            if process == 0:
                self.held = self.held | numbers
                return
            # The last line keeps the job open.
            self.events.append((process, "done", [self.results[number] for number in sorted(numbers - {59})]))
            both = [number for number in sorted(self.held & numbers - {59}) if b'"text":"' in self.results[number]]
            if both:
                self.events.append((0, "done", [self.results[both[0]].replace(b'"text":"', b'"text":"not ', 1)]))

        def poll(self, seconds):
            return super().poll(seconds) or [(1, "done", [])]

    workers = Late(job, monkeypatch, lambda process, setting: {**setting, "host": ["east", "west"][process]})
    with pytest.raises(forebay.Error, match=r"input line \d+: worker 1 on west and worker 0 on east gave different answers") as caught:
        shared(job, tmp_path, workers=workers, silent_seconds=30)
    assert caught.value.code == "results_differ" and isinstance(caught.value, RuntimeError)


def test_memory_is_dealt_among_workers(run, tmp_path, monkeypatch):
    job = run(lines(20))
    workers = Told(job, monkeypatch)
    monkeypatch.setattr(scale, "LocalWorkers", lambda model: workers)
    monkeypatch.setattr(scale, "free_mib", lambda: 1000)
    scale.run_batch(job.input, tmp_path / "mine.jsonl", LLAMA, num_workers=4, use_tqdm=False, max_num_seqs=16, digest=True)
    assert len(workers.started) == 4 and {each["memory"] for each in workers.started} == {"250MiB"}


def test_each_worker_has_cores_of_its_own(tmp_path):
    cores = sorted(os.sched_getaffinity(0))[:3]
    code = f"""
        import os, sys, forebay.worker
        os.sched_setaffinity(0, {cores})
        forebay.worker.take_cores(int(sys.argv[1]))
        print(sorted(os.sched_getaffinity(0)), flush=True)
        sys.stdin.read()
        """

    def begin(count):
        process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True, env={**os.environ, "TMPDIR": str(tmp_path)})
        return process, json.loads(process.stdout.readline())

    begun = [begin(1) for _ in cores]
    assert [taken for _, taken in begun] == [[core] for core in cores]
    # Where none is left all may be used, and of too few none is kept from others.
    begun += [begin(1), begin(2)]
    assert [taken for _, taken in begun[-2:]] == [cores, cores]
    begun[0][0].kill()
    begun[0][0].wait()
    begun += [begin(2), begin(1)]
    assert [taken for _, taken in begun[-2:]] == [cores, [cores[0]]]
    for process, _ in begun:
        process.communicate()


def test_who_is_not_ready_in_time_begins_again_and_may_come_later(run, tmp_path, monkeypatch):
    job = run(lines(200))
    workers = Told(job, monkeypatch, lambda process, setting: None if process == 1 else setting)
    output, summary = shared(job, tmp_path, workers=workers, start_seconds=60, least_lines=4, most_lines=4)
    assert answers(output) == answers(job.output)
    assert workers.clock >= 60 and workers.given == {0, 2} and len(workers.started) == 3
    assert workers.started[2]["max_model_len"] == summary["max_model_len"]


def test_nobody_is_waited_for_without_end(run, tmp_path, monkeypatch):
    job = run(lines(40))
    workers = Told(job, monkeypatch, lambda process, setting: None)
    with pytest.raises(forebay.Error, match="worker 0: not ready after 60 s; worker 1: not ready after 60 s") as caught:
        shared(job, tmp_path, workers=workers, start_seconds=60)
    assert caught.value.code == "no_worker" and 60 <= workers.clock < 70
    # Nor for those that are to take the places of dead ones.
    workers = Told(job, monkeypatch, lambda process, setting: setting if process < 2 else None, lambda process: False)
    with pytest.raises(forebay.Error, match=rf"worker 1 on {re.escape(socket.gethostname())}: it ended; those that were started since are not ready after 6") as caught:
        shared(job, tmp_path, workers=workers, start_seconds=60)
    assert caught.value.code == "no_worker" and 60 <= workers.clock < 70


def test_where_all_are_silent_others_begin(run, tmp_path, monkeypatch, caplog):
    job = run(lines(40))

    class Mute(Told):
        """Some take lines and say nothing."""

        mute = (0, 1)

        def send(self, process, given):
            if process not in self.mute:
                super().send(process, given)

    workers = Mute(job, monkeypatch)
    output, _ = shared(job, tmp_path, workers=workers, silent_seconds=30, start_seconds=60)
    assert answers(output) == answers(job.output) and workers.given <= {2, 3} and len(workers.started) == 4
    assert 90 <= workers.clock < 100 and "silent for 30 s" in caplog.text
    # The others never come: who was silent is named.
    workers = Mute(job, monkeypatch, lambda process, setting: setting if process < 2 else None)
    with pytest.raises(forebay.Error, match=r"worker 0 on \S+: silent for 30 s; worker 1 on \S+: silent for 30 s; those that were started since") as caught:
        shared(job, tmp_path, "none.jsonl", workers=workers, silent_seconds=30, start_seconds=60)
    assert caught.value.code == "no_worker" and 150 <= workers.clock < 160
    # One dies, its place is not taken, and the other falls silent.
    workers = Mute(job, monkeypatch, lambda process, setting: setting if process < 2 else None, lambda process: False)
    workers.mute = (0,)
    with pytest.raises(forebay.Error, match=r"worker 1.*: it ended; worker 0 on \S+: silent for 30 s; those that were started since") as caught:
        shared(job, tmp_path, "none.jsonl", workers=workers, silent_seconds=30, start_seconds=60)
    assert caught.value.code == "no_worker" and 90 <= workers.clock < 100


def test_no_worker_can_start(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"prompt": "x"}\n')
    with pytest.raises(forebay.Error, match="model_not_found") as caught:
        scale.run_batch(tmp_path / "in.jsonl", tmp_path / "out.jsonl", "/no/such", num_workers=2, use_tqdm=False)
    assert caught.value.code == "no_worker"
