"""forebay.ray on a cluster of this machine: the answers of one process, every line once, whoever is killed."""
import asyncio
import gc
import inspect
import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import forebay
from conftest import FLAGS, HANGS, LLAMA, TESTS, killed, prompts, wait_until
from forebay import SamplingParams
from scale_jobs import ARGUMENTS, SHARED, answers, lines

pytest.importorskip("ray", reason="Ray is not installed (the extra [ray])")


def shared(job, output, **kwargs):
    from forebay import ray as forebay_ray

    return forebay_ray.run_batch(job.input, output, LLAMA, **{**SHARED, **kwargs})


def actors():
    return processes(b"ray::_Actor")


def processes(title):
    """The processes of this machine that Ray calls so."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                if file.read().startswith(title):
                    found.append(int(name))
        except OSError:
            pass
    return found


def test_two_workers_give_the_file_of_one(cluster, run, tmp_path):
    job = run(lines(120))
    output = str(tmp_path / "ray.jsonl")
    summary = shared(job, output, preserve_order=True)
    assert list(answers(output)) == list(range(1, 121))
    assert answers(output) == answers(job.output)
    assert summary["num_requests"] == 120 and sum(summary["by_worker"].values()) == 120
    assert all(name.endswith(f" on {socket.gethostname()}") for name in summary["by_worker"])
    # The file is forebay run's: it goes on, here with nothing to do.
    assert forebay.run_batch(job.input, output, LLAMA, use_tqdm=False, threads=1, **ARGUMENTS)["num_resumed"] == 120


def test_a_killed_worker_costs_nothing(cluster, run, tmp_path, monkeypatch):
    from forebay import ray as forebay_ray

    job = run(lines(1000, tokens=60))
    output = str(tmp_path / "ray.jsonl")
    before, victims = actors(), []  # an earlier job's may still be ending

    class Killer(forebay_ray.RayWorkers):
        """Kills one of its actors when some results have come."""

        come = 0

        def poll(self, seconds):
            events = super().poll(seconds)
            self.come += sum(len(value) for _, kind, value in events if kind == "done")
            if self.come > 30 and not victims:
                victims.append(next(each for each in actors() if each not in before))
                os.kill(victims[0], signal.SIGKILL)
            return events

    monkeypatch.setattr(forebay_ray, "RayWorkers", Killer)
    summary = shared(job, output)
    assert victims and summary["end"] == "complete"
    assert summary["num_requests"] == 1000
    assert answers(output) == answers(job.output)
    wait_until(lambda: not actors(), HANGS)


def test_the_driver_may_die(cluster, run, tmp_path):
    job = run(lines(1000, tokens=80))
    output = str(tmp_path / "ray.jsonl")
    code = f"""
        import ray, forebay.ray
        ray.init(address={cluster!r}, log_to_driver=False)
        forebay.ray.run_batch({job.input!r}, {output!r}, {LLAMA!r}, **{SHARED!r})
        """
    killed(code, output)
    wait_until(lambda: not actors(), 30)
    assert shared(job, output)["num_resumed"] > 0
    assert answers(output) == answers(job.output)


def test_a_node_may_die_and_another_may_come(run, tmp_path):
    job = run(lines(1000, tokens=60))
    output = str(tmp_path / "ray.jsonl")
    # A cluster of its own in a process of its own. Ray takes 127.0.0.1 for the host's address, under which two nodes never meet.
    code = f"""
        import os, threading, time
        import ray
        from ray.cluster_utils import Cluster
        from forebay import ray as forebay_ray
        died = threading.Event()
        class Workers(forebay_ray.RayWorkers):
            came, kept = False, []
            def poll(self, seconds):
                events = super().poll(seconds)
                if died.is_set() and not self.came:
                    # What the first ones say is kept back until one on the node that comes has answered.
                    self.came = any(process > 1 and kind == "done" and value for process, kind, value in events)
                    self.kept += [event for event in events if event[0] < 2 and event[1] == "done"]
                    return [event for event in events if event not in self.kept]
                self.kept, kept = [], self.kept
                return kept + events
        forebay_ray.RayWorkers = Workers
        # Waiting is for half a minute.
        cluster = Cluster(initialize_head=True, head_node_args={{"wait": False, "num_cpus": 1, "node_ip_address": "127.0.0.2", "include_dashboard": False}})
        # The driver is the first node's, which stays: Ray 2.51 takes any that is there.
        ray.init(address=cluster.address, log_to_driver=False)
        second = cluster.add_node(wait=False, num_cpus=1, node_ip_address="127.0.0.3")
        while sum(node["Alive"] for node in ray.nodes()) < 2:
            time.sleep(0.1)
        def run():
            forebay_ray.run_batch({job.input!r}, {output!r}, {LLAMA!r}, summary={output + ".summary"!r}, **{SHARED!r})
        thread = threading.Thread(target=run)
        thread.start()
        while thread.is_alive() and (not os.path.exists({output!r}) or os.path.getsize({output!r}) < 20000):
            time.sleep(0.02)
        cluster.remove_node(second, allow_graceful=False)
        died.set()
        # Ray sets handlers of signals then: in the main thread alone.
        cluster.add_node(wait=False, num_cpus=1, node_ip_address="127.0.0.4")
        thread.join()
        ray.shutdown()
        cluster.shutdown()
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=HANGS)
    with open(output + ".summary", encoding="utf-8") as file:
        summary = json.load(file)
    assert summary["end"] == "complete" and summary["num_requests"] == 1000 and [(each["code"], each["count"]) for each in summary["failures"]] == [("invalid_value", 1)]
    assert any(count > 0 and not name.startswith(("worker 0 ", "worker 1 ")) for name, count in summary["by_worker"].items()), summary["by_worker"]
    assert answers(output) == answers(job.output)


def test_memory_of_a_node_is_dealt_among_its_workers(monkeypatch):
    from forebay import ray as forebay_ray

    given = []
    monkeypatch.setattr(forebay_ray, "Worker", lambda model, arguments: given.append(arguments["memory"]))
    monkeypatch.setattr(forebay_ray.scale, "free_mib", lambda: 900)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)))
    forebay_ray._Actor(LLAMA, {"threads": 2})
    forebay_ray._Actor(LLAMA, {"threads": 2, "memory": "64MiB"})
    assert given == ["300MiB", "64MiB"]


def test_no_worker_can_start(cluster, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"prompt": "x"}\n')
    from forebay import ray as forebay_ray

    with pytest.raises(forebay.Error, match="model_not_found") as caught:
        forebay_ray.run_batch(tmp_path / "in.jsonl", tmp_path / "out.jsonl", "/no/such", num_workers=2, start_seconds=HANGS, use_tqdm=False)
    assert caught.value.code == "no_worker"


def predicted(rows, predictor=None, calls=1, **kwargs):
    import ray.data

    from forebay.ray import Predictor

    pool, at_once = {"size": 1, "max_concurrent_calls_per_actor": calls}, {}
    if "max_concurrent_calls_per_actor" not in inspect.signature(ray.data.ActorPoolStrategy).parameters:  # Ray 2.51
        at_once["max_concurrency"] = pool.pop("max_concurrent_calls_per_actor")
    done = ray.data.from_items(rows).map_batches(
        predictor or Predictor, fn_constructor_kwargs={"model": LLAMA, **{k: v for k, v in FLAGS.items() if k != "digest"}, **kwargs},
        compute=ray.data.ActorPoolStrategy(**pool), num_cpus=1, batch_size=16, **at_once,
    )
    return {row["id"]: row for row in done.take_all()}


def test_rows_of_a_dataset(cluster):
    names = [f"row {i}" for i in range(50)]
    rows = [{"id": name, "prompt": text} for name, text in zip(names, prompts(50))]
    with forebay.LLM(LLAMA, **FLAGS) as llm:
        outputs = llm.generate(prompts(50), SamplingParams(max_tokens=6, temperature=1), keys=names, use_tqdm=False)
    found = predicted(rows, sampling_params={"max_tokens": 6, "temperature": 1, "logprobs": 1}, id_column="id")
    assert set(found) == set(names)
    for name, output in zip(names, outputs):
        assert found[name]["generated_text"] == output.outputs[0].text
        assert list(found[name]["generated_tokens"]) == output.outputs[0].token_ids
        assert list(found[name]["prompt_token_ids"]) == output.prompt_token_ids
        assert [position[0]["token_id"] for position in found[name]["logprobs"]] == output.outputs[0].token_ids
        assert found[name]["time_taken_llm"] > 0
        assert found[name]["__inference_error__"] == ""


def rows_of(piece):
    """The rows of columns."""
    return [dict(zip(piece, values)) for values in zip(*piece.values())]


def test_what_a_row_gets():
    from forebay.ray import Predictor

    chat, ids, params = [{"role": "user", "content": "the river"}], [5, 6, 7], {"max_tokens": 4, "temperature": 0, "logprobs": 2}
    rows = {"prompt": ["the water", None, None, "the water", None], "prompt_token_ids": [None, ids, None, None, None],
            "tokenized_prompt": [None, None, None, None, ids], "messages": [None, None, chat, None, None],
            "sampling_params": [{**params, "logprobs": None}, params, params, {**params, "n": 2}, params], "id": [0, 1, 2, 3, 4]}

    async def predict():
        predictor = Predictor(LLAMA, **FLAGS)
        found = [row async for piece in predictor(rows) for row in rows_of(piece)]
        predictor._llm.shutdown()
        return {row["id"]: row for row in found}

    found = asyncio.run(predict())
    with forebay.LLM(LLAMA, **FLAGS) as llm:
        text = llm.get_tokenizer().apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        assert [found[i]["prompt"] for i in range(3)] == ["the water", llm.get_tokenizer().decode(ids), text]
        output = llm.generate([ids], SamplingParams(**params), use_tqdm=False)[0].outputs[0]
    assert found[0]["logprobs"] is None and found[1]["logprobs"] == [
        [{"token_id": token, "logprob": each.logprob, "rank": each.rank, "decoded_token": each.decoded_token} for token, each in position.items()]
        for position in output.logprobs]
    assert all(0 < found[i]["time_taken_llm"] < HANGS and found[i]["__inference_error__"] == "" for i in range(3))
    assert found[4]["prompt_token_ids"] == ids and found[4]["generated_tokens"] == found[1]["generated_tokens"]
    # A row holds one answer.
    assert "`n` is 2; expected 1" in found[3]["__inference_error__"] and found[3]["time_taken_llm"] is found[3]["logprobs"] is None
    # All rows have the same columns: those that came in, and those of `ray.data.llm`.
    added = {"num_input_tokens", "generated_tokens", "generated_text", "num_generated_tokens", "logprobs", "time_taken_llm", "finish_reason", "__inference_error__"}
    assert {frozenset(row) for row in found.values()} == {frozenset({*rows, *added})}
    assert {found[i]["finish_reason"] for i in (0, 1, 2, 4)} <= {"stop", "length"} and found[1]["num_generated_tokens"] == len(found[1]["generated_tokens"])


def test_whatever_is_wrong_with_a_row_is_the_rows():
    from forebay.ray import Predictor

    bad = [{"id": float("nan"), "prompt": "the water"}, {"id": 1, "messages": ["text"]}, {"id": 2, "prompt_token_ids": ["x"]},
           {"id": 3, "prompt": "the water", "sampling_params": "text"}]
    # As a column of Arrow's has them: what another row says is null.
    good = {"id": 4, "prompt": "the water", "sampling_params": {"temperature": None, "max_tokens": None, "seed": 7}}
    rows = [{name: row.get(name) for name in ("id", "prompt", "messages", "prompt_token_ids", "sampling_params")} for row in [*bad, good]]

    async def predict():
        predictor = Predictor(LLAMA, id_column="id", **FLAGS)
        batch = {name: [row[name] for row in rows] for name in rows[0]}
        found = [row async for piece in predictor(batch) for row in rows_of(piece)]
        predictor._llm.shutdown()
        return found

    found = asyncio.run(asyncio.wait_for(predict(), HANGS))
    assert len(found) == 5
    (answered,) = [row for row in found if row["__inference_error__"] == ""]
    assert answered["id"] == 4
    with forebay.LLM(LLAMA, **FLAGS) as llm:
        expected = llm.generate("the water", SamplingParams(seed=7), use_tqdm=False)[0].outputs[0]
    assert answered["generated_tokens"] == expected.token_ids


def test_batches_overlap(cluster):
    from forebay.ray import Predictor

    class Gated(Predictor):
        """A batch begins when as many are there as may be."""

        def __init__(self, *arguments, **kwargs):
            super().__init__(*arguments, **kwargs)
            self.all_there = asyncio.Barrier(4)

        async def __call__(self, batch):
            await asyncio.wait_for(self.all_there.wait(), HANGS)
            async for rows in super().__call__(batch):
                yield rows

    rows = [{"id": str(i), "prompt": text, "sampling_params": {"max_tokens": 100, "temperature": 0, "ignore_eos": True}}
            for i, text in enumerate(prompts(64))]
    found = predicted(rows, Gated, calls=4)
    assert len(found) == 64 and {row["num_generated_tokens"] for row in found.values()} == {100}


def test_batches_that_overlap_keep_the_engine_full():
    from forebay.ray import Predictor

    # Of very different lengths, so that the last of a batch would have the engine to itself.
    params = [{"max_tokens": 10 + 37 * i % 90, "temperature": 0, "ignore_eos": True} for i in range(320)]
    with forebay.LLM(LLAMA, **FLAGS) as llm:
        outputs = llm.generate(prompts(320), [SamplingParams(**each) for each in params], use_tqdm=False)
        steps = llm.stats()["steps"]

    async def steps_of(at_once):
        predictor, found = Predictor(LLAMA, **FLAGS), {}
        room = asyncio.Semaphore(at_once)

        async def answer(begin):
            part = range(begin, begin + 16)
            async with room:
                async for rows in predictor({"id": list(part), "prompt": prompts(320)[begin : begin + 16], "sampling_params": params[begin : begin + 16]}):
                    found.update(zip(rows["id"], rows["generated_tokens"]))

        await asyncio.gather(*(answer(begin) for begin in range(0, 320, 16)))
        assert [found[i] for i in range(320)] == [output.outputs[0].token_ids for output in outputs]
        taken = predictor._llm.stats()["steps"]
        predictor._llm.shutdown()
        return taken

    # As Ray runs them: one after the other where nothing is said, and several at once. An engine whose feeder gets no core takes
    # steps of few rows meanwhile: the best of as many as it takes.
    assert steps / asyncio.run(steps_of(1)) < 0.7
    best = 0.0
    for _ in range(10):
        best = max(best, steps / asyncio.run(steps_of(4)))
        if best > 0.95:
            break
    assert best > 0.95


def test_a_bad_row_is_an_error_in_its_row(cluster):
    rows = [{"id": str(i), "prompt": text} for i, text in enumerate(prompts(10))]
    rows[4]["prompt"] = "the water " * 2000
    found = predicted(rows, sampling_params={"max_tokens": 3, "temperature": 0})
    assert [name for name, row in found.items() if row["__inference_error__"]] == ["4"]
    assert "context_length_exceeded" in found["4"]["__inference_error__"]
    # Draws by chance need a key.
    unkeyed = predicted(rows[:2], sampling_params={"max_tokens": 3, "temperature": 1})
    assert all("id_column" in row["__inference_error__"] for row in unkeyed.values())


def test_where_nothing_can_be_read_it_is_said(cluster, caplog):
    import ray

    from forebay.ray import free_cpus, say_if_nothing_can_be_read

    @ray.remote(num_cpus=0.5)
    class Holder:
        def here(self):
            return True

    # Ray 2.51 lets a job's actors go when the job is collected.
    wait_until(lambda: gc.collect() >= 0 and max(free_cpus()) >= 3, HANGS)
    say_if_nothing_can_be_read()
    assert "whole CPU" not in caplog.text
    holders = [Holder.remote() for _ in range(5)]
    assert all(ray.get([holder.here.remote() for holder in holders]))
    wait_until(lambda: max(free_cpus()) < 1, HANGS)
    say_if_nothing_can_be_read()
    assert "no node of the cluster has a whole CPU left" in caplog.text and "left: 0.5" in caplog.text
    for holder in holders:
        ray.kill(holder)
    wait_until(lambda: max(free_cpus()) >= 3, HANGS)


def test_who_has_had_no_batch_asks_why(monkeypatch):
    from forebay import ray as forebay_ray

    asked = threading.Event()
    monkeypatch.setattr(forebay_ray, "say_if_nothing_can_be_read", asked.set)
    monkeypatch.setattr(forebay_ray, "_PATIENCE", 0.05)
    waiting = forebay_ray.Predictor(LLAMA, **FLAGS)
    assert asked.wait(HANGS)
    waiting._llm.shutdown()
    # Who has one does not.
    asked.clear()
    monkeypatch.setattr(forebay_ray, "_PATIENCE", 3600.0)

    async def predict():
        busy = forebay_ray.Predictor(LLAMA, **FLAGS)
        assert len([row async for piece in busy({"prompt": ["the water"], "sampling_params": [{"seed": 1}]}) for row in rows_of(piece)]) == 1
        busy._idle.join(HANGS)
        assert not busy._idle.is_alive() and not asked.is_set()
        busy._llm.shutdown()

    asyncio.run(predict())


def test_rows_of_a_killed_actor_come_again_and_are_the_same(cluster, tmp_path):
    from forebay.ray import Predictor

    killed_one = tmp_path / "killed"

    class Killed(Predictor):
        """The first one is killed in the middle of its second batch."""

        async def __call__(self, batch):
            async for rows in super().__call__(batch):
                yield rows
                if not killed_one.exists() and "row 20" in rows["id"]:
                    killed_one.write_text(str(os.getpid()))
                    os.kill(os.getpid(), signal.SIGKILL)

    names = [f"row {i}" for i in range(80)]
    rows = [{"id": name, "prompt": text} for name, text in zip(names, prompts(80))]
    params = {"max_tokens": 60, "temperature": 1, "ignore_eos": True}
    with forebay.LLM(LLAMA, **FLAGS) as llm:
        outputs = llm.generate(prompts(80), SamplingParams(**params), keys=names, use_tqdm=False)
    found = predicted(rows, Killed, sampling_params=params, id_column="id")
    assert killed_one.exists() and set(found) == set(names)
    for name, output in zip(names, outputs):
        assert list(found[name]["generated_tokens"]) == output.outputs[0].token_ids


def test_a_dead_engine_ends_its_process_and_another_goes_on(cluster, tmp_path):
    from forebay.ray import Predictor

    died = tmp_path / "died"

    class Mortal(Predictor):
        """The engine of the first one ends in the middle of its second batch, as that of a device that failed does."""

        async def __call__(self, batch):
            async for rows in super().__call__(batch):
                yield rows
                if not died.exists() and "row 20" in rows["id"]:
                    died.write_text(str(os.getpid()))
                    self._llm._llm._model.close()

    names = [f"row {i}" for i in range(48)]
    params = {"max_tokens": 60, "temperature": 1, "ignore_eos": True}
    with forebay.LLM(LLAMA, **FLAGS) as llm:
        outputs = llm.generate(prompts(48), SamplingParams(**params), keys=names, use_tqdm=False)
    found = predicted([{"id": name, "prompt": text} for name, text in zip(names, prompts(48))], Mortal, sampling_params=params, id_column="id")
    assert died.exists() and not os.path.exists(f"/proc/{died.read_text()}"), "its process lives"
    assert {name: list(found[name]["generated_tokens"]) for name in names} == {
        name: output.outputs[0].token_ids for name, output in zip(names, outputs)}
    assert {row["__inference_error__"] for row in found.values()} == {""}


def test_rows_under_a_checkpoint(cluster, tmp_path):
    """The driver is killed in the middle; the same program goes on with the rows that Ray had not noted."""
    pytest.importorskip("ray.data.checkpoint", reason="this Ray has no checkpoints")
    names, params = [f"row {i}" for i in range(240)], {"max_tokens": 12, "temperature": 1}
    source, out, noted, computed = (tmp_path / name for name in ("in", "out", "checkpoint", "computed"))
    source.mkdir()
    for begin in range(0, 240, 20):
        rows = [{"id": name, "prompt": text} for name, text in zip(names, prompts(240))][begin : begin + 20]
        (source / f"{begin:03}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code = textwrap.dedent(f"""
        import asyncio, json, ray, ray.data
        from ray.data.checkpoint import CheckpointConfig
        from forebay.ray import Predictor
        class Noted(Predictor):
            async def __call__(self, batch):
                async for rows in super().__call__(batch):
                    with open({str(computed)!r}, "a") as file:
                        for name, ids in zip(rows["id"], rows["generated_tokens"]):
                            print(json.dumps([str(name), list(map(int, ids))]), file=file)
                    yield rows
                await asyncio.sleep(0.3)
        ray.init(address={cluster!r}, log_to_driver=False)
        ray.data.DataContext.get_current().checkpoint_config = CheckpointConfig(
            id_column="id", checkpoint_path={str(noted)!r}, delete_checkpoint_on_success=False)
        ray.data.read_json({str(source)!r}, override_num_blocks=12).map_batches(
            Noted, fn_constructor_kwargs={{"model": {LLAMA!r}, "sampling_params": {params!r}, "id_column": "id", "memory": "64MiB", "threads": 1}},
            compute=ray.data.ActorPoolStrategy(size=1), num_cpus=1, batch_size=16).write_json({str(out)!r})
        """)
    # Ray's newer way of reading Parquet, its own checkpoints among it, waits for minutes where cores are busy; and who was killed keeps
    # a part of the cores for three, without which the next one's actor waits.
    environment = {**os.environ, "RAY_DATA_USE_DATASOURCE_V2": "0", "RAY_DATA_AUTOSCALING_REQUEST_EXPIRE_TIME_S": "20"}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    wait_until(lambda: process.poll() is not None or (noted.exists() and sum(1 for _ in noted.iterdir()) > 2), HANGS)
    assert process.poll() is None, "it ended before it could be killed"
    process.kill()
    process.wait()
    wait_until(lambda: not processes(b"ray::MapWorker") and not processes(b"ray::Write"), HANGS)
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=HANGS)

    found = [json.loads(line) for path in out.iterdir() for line in path.read_text().splitlines()]
    assert sorted(row["id"] for row in found) == sorted(names)
    with forebay.LLM(LLAMA, **FLAGS) as llm:
        outputs = llm.generate(prompts(240), SamplingParams(**params), keys=names, use_tqdm=False)
    expected = {name: output.outputs[0].token_ids for name, output in zip(names, outputs)}
    assert {row["id"]: row["generated_tokens"] for row in found} == expected
    # What was computed twice, since its block was not whole, is the same.
    every = [json.loads(line) for line in computed.read_text().splitlines()]
    print(f"240 rows, {len(every) - 240} of them computed twice")
    assert 240 <= len(every) < 480 and all(tokens == expected[name] for name, tokens in every)


def test_readmes_job(cluster, tmp_path):
    """README's requests, and its job on a cluster, as they are printed."""
    with open(os.path.join(os.path.dirname(TESTS), "README.md"), encoding="utf-8") as file:
        text = file.read()
    requests, code = (textwrap.dedent(re.search(rf"(?:^    .*\n)*^    {begin}.*\n(?:^    .*\n)*", text, re.MULTILINE)[0])
                      for begin in ('{"custom_id"', "import forebay.ray"))
    (tmp_path / "requests.jsonl").write_text(requests)
    code, count = re.subn(r'"models/[^"]*"', repr(LLAMA), code)
    assert count == 1
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "RAY_ADDRESS": cluster}, check=True, timeout=HANGS)
    assert sorted(answers(tmp_path / "shared.jsonl")) == [1, 2]


def test_the_examples(cluster, tmp_path):
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "python")
    environment = {**os.environ, "RAY_ADDRESS": cluster}
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"prompt": text, "max_tokens": 4}) + "\n" for text in prompts(30)))
    for name, arguments in (("ray_job.py", [str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl"), "1"]), ("ray_data.py", [])):
        command = [sys.executable, os.path.join(folder, name), LLAMA, *arguments]
        out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=HANGS).stdout
        assert "30 lines" in out if name == "ray_job.py" else len([line for line in out.splitlines() if line.startswith("row ")]) == 20
