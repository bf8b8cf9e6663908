"""Forebay on a Ray cluster: ``run_batch``, a job whose lines its nodes answer, and ``Predictor`` for Ray Data.

Needs the extra ``[ray]``. Ray places processes and restarts them; who computes which line is in the driver's books (driver.py).
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from typing import Any

import ray

from . import scale
from .async_llm import AsyncLLM
from .errors import Error, InvalidValueError
from .inputs import key_of
from .outputs import CompletionOutput, RequestOutput
from .params import RequestOutputKind, SamplingParams
from .worker import Lines, Worker
from .workers import Event

# How long a worker looks for results before it says that there are none.
_GLANCE = 0.1
# How long a Predictor without a batch looks on before it asks whether one can come.
_PATIENCE = 30.0
_log = logging.getLogger("forebay")


class _Actor:
    """A worker's process. It reports errors of its start itself, so that Ray does not retry."""

    def __init__(self, model: str, arguments: dict[str, Any]) -> None:
        self._worker: Worker | None = None
        try:
            if "memory" not in arguments:
                places = max(1, len(os.sched_getaffinity(0)) // int(arguments["threads"]))
                arguments = {**arguments, "memory": f"{scale.free_mib() // places}MiB"}
            self._worker = Worker(model, arguments)
        except (Error, TypeError) as error:
            self._why = str(error)

    def setting(self) -> tuple[str, Any]:
        return ("ready", self._worker.setting()) if self._worker is not None else ("failed", self._why)

    def exchange(self, lines: Lines) -> list[bytes]:
        assert self._worker is not None
        return self._worker.exchange(lines, _GLANCE)


class RayWorkers:
    """Actors of a cluster; each has one call under way, which carries lines there and results back."""

    def __init__(self, model: str, num_cpus: float) -> None:
        self._model = model
        self._actor = ray.remote(_Actor).options(num_cpus=num_cpus, max_restarts=0)
        self._actors: dict[int, Any] = {}
        self._waiting: dict[int, Lines] = {}
        self._calls: dict[Any, tuple[int, str]] = {}

    def start(self, process: int, arguments: dict[str, Any]) -> str:
        self._actors[process] = self._actor.remote(self._model, arguments)
        self._waiting[process] = []
        self._calls[self._actors[process].setting.remote()] = process, "setting"
        return f"worker {process}"

    def send(self, process: int, lines: Lines) -> None:
        self._waiting[process] += lines

    def poll(self, seconds: float) -> list[Event]:
        if not self._calls:
            time.sleep(seconds)
            return []
        done, _ = ray.wait(list(self._calls), num_returns=1, timeout=seconds)
        more, _ = ray.wait(list(self._calls), num_returns=len(self._calls), timeout=0) if done else ([], [])
        events: list[Event] = []
        for call in more:
            process, what = self._calls.pop(call)
            if process not in self._actors:
                continue
            try:
                value = ray.get(call)
            except Exception as error:  # the actor's death, or its engine's
                events.append((process, "died", str(error).strip().split("\n")[-1] or type(error).__name__))
                continue
            events.append((process, *value) if what == "setting" else (process, "done", value))
            if what == "setting" and value[0] != "ready":
                continue
            lines, self._waiting[process] = self._waiting[process], []
            self._calls[self._actors[process].exchange.remote(lines)] = process, "exchange"
        return events

    def stop(self, process: int) -> None:
        actor = self._actors.pop(process, None)
        if actor is not None:
            ray.kill(actor)

    def close(self) -> None:
        for process in list(self._actors):
            self.stop(process)


def run_batch(
    input: str | os.PathLike[str], output: str | os.PathLike[str], model: str | os.PathLike[str], *, num_workers: int, num_cpus: float = 1,
    **arguments: Any,
) -> dict[str, Any]:
    """``forebay.scale.run_batch`` with workers on the nodes of the cluster that ``ray.init`` joined. The model's path must exist on each."""
    if not ray.is_initialized():
        ray.init()
    workers = RayWorkers(os.fspath(model), num_cpus)
    return scale.run_batch(input, output, model, num_workers=num_workers, num_cpus=num_cpus, workers=workers, **arguments)


class Predictor:
    """For ``ds.map_batches(Predictor, fn_constructor_kwargs={"model": ...}, compute=ActorPoolStrategy(size=n), num_cpus=...)``.

    Rows have ``prompt``, ``prompt_token_ids`` or ``messages``, and may have ``sampling_params`` (a dict); what comes out has the names of
    ``ray.data.llm``. A bad row has ``__inference_error__``. ``id_column`` keys the draws: without it a request needs a seed, or temperature 0.
    """

    def __init__(
        self, model: str, sampling_params: dict[str, Any] | SamplingParams | None = None, id_column: str | None = None, **arguments: Any
    ) -> None:
        self._llm = AsyncLLM(model, **arguments)
        self._params, self._id = sampling_params, id_column
        self._idle = threading.Timer(_PATIENCE, say_if_nothing_can_be_read)
        self._idle.daemon = True
        self._idle.start()

    async def __call__(self, batch: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        self._idle.cancel()
        names = list(batch)
        rows = [dict(zip(names, values)) for values in zip(*(list(batch[name]) for name in names))]
        tasks = {asyncio.ensure_future(self._answer(row)) for row in rows}
        try:
            while tasks:
                # What ends together goes together: Ray takes about a millisecond for each piece.
                done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                answers = [task.result() for task in done]
                yield {name: [answer[name] for answer in answers] for name in answers[0]}
        finally:
            for each in tasks:
                each.cancel()

    def _params_of(self, row: dict[str, Any]) -> SamplingParams:
        given = row.get("sampling_params")
        if given is None:
            given = self._params if self._params is not None else self._llm.get_default_sampling_params()
        if not isinstance(given, SamplingParams):
            # Rows of a column have the same members: those that another row has are null here.
            given = SamplingParams(**{name: value for name, value in given.items() if value is not None})
        params = replace(given, output_kind=RequestOutputKind.FINAL_ONLY)
        if self._id is None and params.seed is None and params.temperature > 0:
            raise InvalidValueError(
                "invalid_value", "a request draws by chance and has no key: Ray cuts batches as it likes, so give id_column=, a seed, or temperature 0"
            )
        if params.n != 1:
            raise InvalidValueError("unsupported_parameter", f"`n` is {params.n}; expected 1, since a row holds one answer", param="n")
        return params

    async def _answer(self, row: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {**row, "generated_text": None, "generated_tokens": None, "num_input_tokens": None}
        found.update({"num_generated_tokens": None, "logprobs": None, "finish_reason": None, "time_taken_llm": None, "__inference_error__": ""})
        began = time.monotonic()
        try:
            params = self._params_of(row)
            key = 0 if self._id is None else key_of(_plain(row[self._id]))
            async for output in self._ask(row, params, key):
                choice, ids = output.outputs[0], output.prompt_token_ids or []
                found.update(
                    prompt=output.prompt if output.prompt is not None else self._text_of(ids), prompt_token_ids=ids, num_input_tokens=len(ids),
                    generated_text=choice.text, generated_tokens=choice.token_ids, num_generated_tokens=len(choice.token_ids),
                    logprobs=_positions(choice), finish_reason=choice.finish_reason, time_taken_llm=time.monotonic() - began,
                )
        except Exception as error:  # whatever is wrong with a row is the row's
            if isinstance(error, Error) and error.code in ("session_closed", "group_failed"):
                os._exit(1)  # the engine cannot go on; Ray starts another
            found["__inference_error__"] = f"{type(error).__name__}: {error}"
            found.setdefault("prompt", None)
            found.setdefault("prompt_token_ids", None)
        return found

    def _text_of(self, ids: list[int]) -> str | None:
        """The text of a prompt given as ids or messages."""
        try:
            text: str = self._llm.get_tokenizer().decode(ids)
        except Error:  # there is no tokenizer
            return None
        return text

    def _ask(self, row: dict[str, Any], params: SamplingParams, key: int) -> AsyncIterator[RequestOutput]:
        if row.get("messages") is not None:
            return self._llm.chat([dict(each) for each in row["messages"]], params, key=key)
        ids = row.get("prompt_token_ids")
        if ids is None:
            ids = row.get("tokenized_prompt")
        if ids is not None:
            return self._llm.generate({"prompt_token_ids": [int(each) for each in ids]}, params, key=key)
        return self._llm.generate(row["prompt"], params, key=key)


def say_if_nothing_can_be_read() -> None:
    free = free_cpus()
    if max(free, default=0) < 1:
        _log.warning(
            "no batch has come for %.0f s, and no node of the cluster has a whole CPU left, for which Ray Data's read tasks wait (left: %s): give "
            "the actors fewer (num_cpus=, ActorPoolStrategy(size=))", _PATIENCE, ", ".join(f"{each:g}" for each in sorted(free)),
        )


def free_cpus() -> list[float]:
    """The CPUs of each node that no task or actor holds."""
    from ray._private.state import available_resources_per_node

    return [float(node.get("CPU", 0)) for node in available_resources_per_node().values()]


def _positions(choice: CompletionOutput) -> list[list[dict[str, Any]]] | None:
    """Log probabilities as columns can hold them: a list a position, the token that was drawn first."""
    if choice.logprobs is None:
        return None
    return [[{"token_id": token, **asdict(each)} for token, each in (position or {}).items()] for position in choice.logprobs]


def _plain(value: Any) -> int | str:
    return value if isinstance(value, str) else int(value)
