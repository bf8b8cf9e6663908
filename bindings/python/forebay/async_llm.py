"""``AsyncLLM``: each request is an asynchronous iterator over its output so far."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace
from typing import Any

from . import _forebay
from .errors import prompt_error
from .inputs import Key, Lines, Prompt, chat_json, check_params, conversations_of, key_of, prompt_json, text_of
from .llm import LLM
from .metrics import Metric
from .outputs import CompletionOutput, RequestOutput
from .params import RequestOutputKind, SamplingParams
from .tokenizer import Tokenizer

# A request's end, or what is new of one of its choices.
_Arrival = tuple[RequestOutput | None, CompletionOutput | None]


class AsyncLLM:
    """An ``LLM`` for asyncio. One event loop at a time may use it; the loop watches a descriptor, so that no thread waits for results."""

    def __init__(self, model: str | os.PathLike[str], **arguments: Any) -> None:
        """``arguments``: as for ``LLM``."""
        self._llm = LLM(model, **arguments)
        self._call = _forebay.Call(self._llm._model)
        self._queues: dict[int, tuple[str, asyncio.Queue[_Arrival]]] = {}  # of requests under way, with their names
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked = 0

    def generate(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None, request_id: str | None = None, *, key: Key | None = None
    ) -> AsyncGenerator[RequestOutput, None]:
        """Yields the request's output, by ``output_kind`` of the parameters. ``aclose``, a cancelled task or ``abort`` ends the request. Raises as ``LLM``."""
        return self._ask(False, text_of(prompt), prompt_json(prompt, 0), sampling_params, request_id, key)

    def chat(
        self, messages: list[dict[str, Any]], sampling_params: SamplingParams | None = None, request_id: str | None = None, *, key: Key | None = None
    ) -> AsyncGenerator[RequestOutput, None]:
        """As ``generate``, for one conversation."""
        conversations = conversations_of(messages)
        if len(conversations) != 1:
            raise TypeError(f"messages are {len(conversations)} conversations; expected one")
        return self._ask(True, None, chat_json(conversations[0], 0), sampling_params, request_id, key)

    async def _ask(
        self, chat: bool, text: str | None, value: str, sampling_params: SamplingParams | None, request_id: str | None, key: Key | None
    ) -> AsyncGenerator[RequestOutput, None]:
        self._watch()
        check_params(sampling_params)
        params = sampling_params or self._llm.get_default_sampling_params()
        line = Lines(self._llm._defaults, chat).line(value, sampling_params)
        number, streams = self._asked, params.output_kind is not RequestOutputKind.FINAL_ONLY
        free = sampling_params is not None and sampling_params.max_tokens is None
        errors = self._call.add([line], [number if key is None else key_of(key)], [free], streams)
        self._asked += 1  # the call counts its lines, good or bad, but no line where it raises
        if errors:
            raise prompt_error(0, *errors[0][1:])
        self._call.start()
        queue: asyncio.Queue[_Arrival] = asyncio.Queue()
        name = str(number) if request_id is None else request_id
        self._queues[number] = (name, queue)
        so_far: dict[int, CompletionOutput] = {}
        try:
            while True:
                output, piece = await queue.get()
                if output is not None:
                    break
                assert piece is not None
                yield self._partial(name, text, piece, so_far, params)
            if output.error is not None:
                if output.error.code != "request_cancelled":
                    raise output.error
                output.error, output.outputs = None, self._aborted(so_far, params)
            output.complete(text, params)
            output.request_id = name
            if params.output_kind is RequestOutputKind.DELTA:
                for choice in output.outputs:
                    choice.text, choice.token_ids, choice.logprobs = "", [], None
            yield output
        finally:
            if self._queues.pop(number, None) is not None:
                self._call.cancel(number)

    async def abort(self, request_id: str | Iterable[str]) -> None:
        """Ends the running requests with this ``request_id``, or with one of several. Does nothing if none runs.

        Their last output is finished, holds the output so far, and has the ``finish_reason`` "abort".
        """
        wanted = {request_id} if isinstance(request_id, str) else set(request_id)
        for number in [number for number, (name, _) in self._queues.items() if name in wanted]:
            self._call.cancel(number)

    def _aborted(self, so_far: dict[int, CompletionOutput], params: SamplingParams) -> list[CompletionOutput]:
        empty = [CompletionOutput(index, "", [], logprobs=None if params.logprobs is None else []) for index in range(params.n)]
        return [replace(so_far.get(each.index, each), finish_reason="abort") for each in empty]

    def _partial(
        self, name: str, text: str | None, new: CompletionOutput, so_far: dict[int, CompletionOutput], params: SamplingParams
    ) -> RequestOutput:
        if not params.detokenize:
            new.text = ""
        if params.output_kind is RequestOutputKind.DELTA:
            return RequestOutput(name, text, None, outputs=[new], finished=False)
        held = so_far.setdefault(new.index, CompletionOutput(new.index, "", [], logprobs=[] if new.logprobs is not None else None))
        held.text += new.text
        held.token_ids = held.token_ids + new.token_ids
        if held.logprobs is not None and new.logprobs is not None:
            held.logprobs = held.logprobs + new.logprobs
        shown = [replace(each) for _, each in sorted(so_far.items())]
        return RequestOutput(name, text, None, outputs=shown, finished=False)

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._loop is not None and self._loop.is_running():  # another thread's: who waits there would wait for ever
            raise RuntimeError("this AsyncLLM is used by an event loop that runs in another thread; expected one loop at a time")
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._call.descriptor())
        self._loop = loop
        loop.add_reader(self._call.descriptor(), self._take)

    def _take(self) -> None:
        for tag, output, piece in self._call.take(0, 1, False):
            if tag in self._queues:
                self._queues[tag][1].put_nowait((output, piece))

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer and chat template."""
        return self._llm.get_tokenizer()

    def get_default_sampling_params(self) -> SamplingParams:
        """The parameters of requests without any."""
        return self._llm.get_default_sampling_params()

    def stats(self) -> dict[str, Any]:
        """The engine's counters."""
        return self._llm.stats()

    def get_metrics(self) -> list[Metric]:
        """Gauges, counters and histograms under vLLM's names."""
        return self._llm.get_metrics()

    async def reset_prefix_cache(self) -> bool:
        """As ``LLM.reset_prefix_cache``."""
        return self._llm.reset_prefix_cache()

    def shutdown(self) -> None:
        """Ends the engine; running requests get the error ``session_closed``. Call it from the loop's thread."""
        loop, self._loop = self._loop, None
        watched = loop is not None and not loop.is_closed()
        if loop is not None and watched:
            loop.remove_reader(self._call.descriptor())
        self._llm.close()
        if watched:
            self._take()
