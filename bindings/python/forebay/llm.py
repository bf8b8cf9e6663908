"""``LLM``: the engine in this process, under the names of vLLM's class."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from . import _forebay
from .ending import still_open
from .errors import Error, InvalidValueError, make_error, prompt_error
from .flags import flags_of, path_of
from .inputs import (
    Key, Lines, Prompt, chat_json, check_keys, check_params, continuations_json, conversations_of, key_of, keys_for, params_for, prompt_json, prompts_of, returns_errors,
    text_of, value_of,
)
from .metrics import Metric, metrics_of
from .outputs import (
    ClassificationOutput, ClassificationRequestOutput, EmbeddingOutput, EmbeddingRequestOutput, Interrupted, LikelihoodOutput, PooledOutput,
    RequestOutput, ScoringOutput, ScoringRequestOutput,
)
from .params import SamplingParams, integer
from .progress import Progress
from .tokenizer import Tokenizer

# How long a wait goes on before Python may look at its signals.
_GLANCE = 0.05
# Seconds between two conversions of results to objects: the engine uses all cores, so each conversion delays it.
_SELDOM = 1.0

# Requests of these parameters, keys, and whether they are as long as the context: the errors of those that are bad.
_Add = Callable[
    [_forebay.Call, list[SamplingParams | None], list[int], list[bool]], list[tuple[int, str, str, str]]
]

# What a caller gets in place of the output that C++ fills.
_MadeOf = Callable[[Any], Any]


def _itself(output: Any) -> Any:
    return output


class LLM:
    """A loaded model and its engine, which runs until ``close``, the end of ``with`` or ``del``.

    Several threads may call one LLM, and a process may hold several LLMs. After ``fork`` the child cannot use it (``process_forked``).
    Methods raise ``InvalidValueError`` for a bad value, ``EngineError`` if the model, the machine or the engine failed, and TypeError for
    a value that is no prompt or no parameter.
    """

    def __init__(self, model: str | os.PathLike[str], *, trace: str = "", **arguments: Any) -> None:
        """``arguments``: flags of ``forebay run`` with underscores. ``trace``: the lengths of later requests, for ``layout="auto"``."""
        name = path_of("model", model)
        self._model = _forebay.Model(name, flags_of(arguments, model=name), str(trace))
        self._defaults = self._model.defaults()
        self._tokenizer = Tokenizer(self._model)
        self._ahead = 2 * int(arguments.get("max_num_seqs") or 256)
        still_open.add(self)

    def generate(
        self,
        prompts: Prompt | Iterable[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        keys: Sequence[Key] | None = None,
        on_error: str = "raise",
    ) -> list[RequestOutput]:
        """Returns the answers, in the order of the prompts. A request without a seed draws by its key: its entry in ``keys``, else its index.

        A bad prompt raises before anything runs; with ``on_error="return"`` its output has ``error`` instead. Ctrl-C raises
        ``Interrupted``, which has the finished answers.
        """
        every, lines = list(prompts_of(prompts)), Lines(self._defaults, False)
        returns = returns_errors(on_error)
        return self._run(
            [text_of(prompt) for prompt in every],
            lambda call, params, *rest: call.add_prompts(every, [lines.rest(each) for each in params], *rest, returns),
            {}, sampling_params, keys, on_error, use_tqdm,
        )

    def chat(
        self,
        messages: Any,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
        chat_template: str | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: list[dict[str, Any]] | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
        *,
        keys: Sequence[Key] | None = None,
        on_error: str = "raise",
    ) -> list[RequestOutput]:
        """As ``generate``, for one conversation or a list of them, rendered by the model's chat template."""
        if chat_template is not None:
            raise make_error("unsupported_parameter", "chat_template belongs to LLM(...), not to a call", True)
        more: dict[str, Any] = {}
        if not add_generation_prompt:
            more["add_generation_prompt"] = False
        if continue_final_message:
            more["continue_final_message"] = True
        if tools:
            more["tools"] = tools
        if chat_template_kwargs:
            more["chat_template_kwargs"] = chat_template_kwargs
        every, lines = conversations_of(messages), Lines(self._defaults, True, more)
        wrong: dict[int, Error] = {}
        returns = returns_errors(on_error)
        values = [value_of(each, index, chat_json, returns, wrong) for index, each in enumerate(every)]
        return self._run(
            [None] * len(values),
            lambda call, params, *rest: call.add([lines.line(value, each) for value, each in zip(values, params)], *rest, False),
            wrong, sampling_params, keys, on_error, use_tqdm,
        )

    def loglikelihood(
        self,
        prompts: Sequence[Prompt],
        continuations: Sequence[Sequence[str | list[int]]],
        *,
        use_tqdm: bool = True,
        on_error: str = "raise",
    ) -> list[LikelihoodOutput]:
        """Returns the log probability of each continuation after its prompt. Text is tokenized together with its prompt, as lm_eval does it.

        A prompt is computed once for all of its continuations. Neighbouring prompts with a common beginning share its computed blocks.
        """
        every, following = list(prompts_of(prompts)), list(continuations)
        if len(every) != len(following):
            raise InvalidValueError(
                "invalid_value", f"there are {len(every)} prompts and {len(following)} lists of continuations; expected as many"
            )
        return self._lines(
            every,
            lambda prompt, index: f'{{"prompt": {prompt_json(prompt, index)}, "continuations": {continuations_json(following[index], index)}}}',
            on_error, use_tqdm, LikelihoodOutput,
        )

    def embed(
        self, prompts: Prompt | Iterable[Prompt], *, dimensions: int | None = None, use_tqdm: bool = True, on_error: str = "raise"
    ) -> list[EmbeddingRequestOutput]:
        """Returns a vector for each text, pooled as the model's files or ``LLM(pooling=...)`` say, cut to its first ``dimensions`` numbers.

        Ctrl-C is as in ``generate``, here and in ``classify``, ``score`` and ``loglikelihood``.
        """
        rest = "" if dimensions is None else f', "dimensions": {integer("dimensions", dimensions)}'
        return self._lines(
            list(prompts_of(prompts)), lambda prompt, index: f'{{"input": {prompt_json(prompt, index)}{rest}}}', on_error, use_tqdm, PooledOutput,
            lambda each: EmbeddingRequestOutput(each.request_id, EmbeddingOutput(each.numbers), each.prompt_token_ids, error=each.error),
        )

    def classify(
        self, prompts: Prompt | Iterable[Prompt], *, use_tqdm: bool = True, on_error: str = "raise"
    ) -> list[ClassificationRequestOutput]:
        """Returns a score for each label of each text, by the head of a ``...ForSequenceClassification`` model."""
        return self._lines(
            list(prompts_of(prompts)),
            lambda prompt, index: f'{{"url": "/v1/classify", "custom_id": "", "body": {{"input": {prompt_json(prompt, index)}}}}}',
            on_error, use_tqdm, PooledOutput,
            lambda each: ClassificationRequestOutput(each.request_id, ClassificationOutput(each.numbers), each.prompt_token_ids, error=each.error),
        )

    def score(
        self, data_1: str | Sequence[str], data_2: str | Sequence[str], *, use_tqdm: bool = True, on_error: str = "raise"
    ) -> list[ScoringRequestOutput]:
        """Returns a score for each text of ``data_2`` with the text of ``data_1`` (one for all, or one each): the head's, else the cosine of their vectors."""
        queries, texts = (list(prompts_of(data)) for data in (data_1, data_2))
        if len(queries) not in (1, len(texts)):
            raise InvalidValueError("invalid_value", f"data_1 holds {len(queries)} texts and data_2 {len(texts)}; expected one, or as many")
        queries *= len(texts) // len(queries) if queries else 1
        return self._lines(
            texts, lambda text, index: f'{{"text_1": {prompt_json(queries[index], index)}, "text_2": {prompt_json(text, index)}}}', on_error, use_tqdm,
            PooledOutput,
            lambda each: ScoringRequestOutput(each.request_id, ScoringOutput(*(each.numbers or [math.nan])), error=each.error),
        )

    def _lines(
        self, prompts: list[Any], line: Callable[[object, int], str], on_error: str, use_tqdm: bool, output_type: Any, made_of: _MadeOf = _itself
    ) -> list[Any]:
        """Returns what ``made_of`` makes of the outputs of one line a prompt; ``line`` makes it of the prompt and its index, or raises TypeError."""
        returns, wrong = returns_errors(on_error), dict[int, Error]()
        lines = [value_of(prompt, index, line, returns, wrong) for index, prompt in enumerate(prompts)]
        return self._run(
            [None] * len(lines), lambda call, params, *rest: call.add(lines, *rest, False), wrong, None, None, on_error, use_tqdm,
            output_type, False, made_of,
        )

    def generate_iter(
        self,
        prompts: Prompt | Iterable[Prompt],
        sampling_params: SamplingParams | None = None,
        *,
        keys: Iterable[Key] | None = None,
        on_error: str = "raise",
    ) -> Iterator[RequestOutput]:
        """Yields answers as they finish; ``request_id`` is the prompt's index. Reads the iterable only as far ahead as the engine needs.

        While an iterable makes its next prompt, all earlier ones run, and their answers come afterwards. So it may wait for the engine, but
        not for what its caller does with an answer.
        """
        check_params(sampling_params)
        check_keys(keys)
        return self._iterate(prompts_of(prompts), sampling_params, keys, returns_errors(on_error))

    def _iterate(
        self, prompts: Iterable[Prompt], sampling_params: SamplingParams | None, keys: Iterable[Key] | None, returns: bool
    ) -> Iterator[RequestOutput]:
        call, lines = _forebay.Call(self._model), Lines(self._defaults, False)
        at_once = isinstance(prompts, (list, tuple)) and isinstance(keys, (list, tuple, range, type(None)))
        texts: dict[int, str | None] = {}
        every, names = iter(prompts), iter(keys) if keys is not None else None
        raised: BaseException | None = None
        count, ended = 0, False
        try:
            while texts or not ended:
                batch: list[str] = []
                batch_keys: list[int] = []
                wrong: dict[int, Error] = {}
                try:
                    # A source other than a list may wait, so what is held begins before its next prompt is asked for.
                    while not ended and len(texts) < self._ahead and (at_once or not batch):
                        prompt = next(every)
                        texts[count] = text_of(prompt)
                        batch.append(lines.line(value_of(prompt, count, prompt_json, returns, wrong), sampling_params))
                        batch_keys.append(key_of(next(names, None)) if names is not None else count)
                        count += 1
                except StopIteration:
                    ended = True
                except Exception as error:  # what is done is still given out
                    texts.pop(count, None)
                    ended, raised = True, error
                    del batch[len(batch_keys) :]
                free = sampling_params is not None and sampling_params.max_tokens is None
                for tag, code, message, param in call.add(batch, batch_keys, [free] * len(batch), False):
                    refusal = wrong.get(tag) or prompt_error(tag, code, message, param)
                    if not returns:
                        raise refusal
                    yield RequestOutput(str(tag), texts.pop(tag), None, error=refusal)
                call.start()
                if raised is not None:
                    call.cancel_all()
                wait = _GLANCE if ended or len(texts) >= self._ahead else 0
                # Woken for each it would hold the engine up, which has more than it computes at once.
                for tag, output, _ in call.take(wait, max(1, len(texts) // 4), None in texts.values()):
                    assert output is not None, "nothing streams"
                    output.complete(texts.pop(tag), sampling_params)
                    if output.error is None or (returns and output.error.code != "request_cancelled"):
                        yield output
                    elif output.error.code != "request_cancelled":
                        raise output.error
            if raised is not None:
                raise raised
        finally:
            call.cancel_all()

    def _run(
        self,
        texts: list[str | None],
        add: _Add,
        wrong: dict[int, Error],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        keys: Sequence[Key] | None,
        on_error: str,
        use_tqdm: bool,
        output_type: Any = RequestOutput,
        decode: bool = True,
        made_of: _MadeOf = _itself,
    ) -> list[Any]:
        """Runs requests and returns what ``made_of`` makes of their outputs, of ``output_type``, in order.

        ``texts``: a prompt's text, None for token ids. ``add`` gives all requests to the call. ``wrong``: errors of refused prompts, by
        index. ``decode``: outputs get their prompt's text.
        """
        params = list(params_for(sampling_params, len(texts)))
        call = _forebay.Call(self._model)
        free = [each is not None and each.max_tokens is None for each in params]
        outputs: dict[int, Any] = {}
        try:
            refused = add(call, params, keys_for(keys, len(texts)), free)
        except KeyboardInterrupt:
            raise Interrupted({}) from None
        for tag, code, message, param in refused:
            error = wrong.get(tag) or prompt_error(tag, code, message, param)
            if on_error == "raise":
                raise error
            outputs[tag] = output_type(str(tag), error=error)
            outputs[tag].complete(texts[tag], params[tag])
        decode = decode and None in texts
        progress = Progress(len(texts), use_tqdm)

        def take() -> list[Any]:
            taken = []
            for tag, output, _ in call.take(0, 1, decode):
                assert output is not None, "nothing streams"
                output.complete(texts[tag], params[tag])
                if output.error is not None and on_error == "raise":
                    raise output.error
                outputs[tag] = output
                taken.append(output)
            return taken

        try:
            call.start()
            last = time.monotonic()
            while len(outputs) < len(texts):
                if not call.wait(_GLANCE, len(texts) - len(outputs)) and time.monotonic() - last < (progress.often or _SELDOM):
                    continue
                progress.add(take())
                last = time.monotonic()
        except KeyboardInterrupt:
            with contextlib.suppress(Error):
                take()
            call.cancel_all()
            raise Interrupted({tag: made_of(output) for tag, output in outputs.items()}) from None
        except BaseException:
            call.cancel_all()
            raise
        finally:
            progress.close()
        return [made_of(outputs[tag]) for tag in range(len(texts))]

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer and chat template."""
        return self._tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """The parameters of requests without any: those of the model's generation config."""
        return SamplingParams(**self._defaults)

    def facts(self) -> dict[str, Any]:
        """Facts about the loaded model: name, lengths, numerics class, memory, ranks."""
        return self._model.facts()

    def stats(self) -> dict[str, Any]:
        """The engine's counters."""
        return self._model.stats()

    def get_metrics(self) -> list[Metric]:
        """Gauges, counters and histograms under vLLM's names."""
        return metrics_of(self.facts()["model"], self.stats(), self._model.meters())

    def reset_prefix_cache(self) -> bool:
        """Later requests find no cached prefix, so that their times are those of a first call. Answers never depend on it."""
        self._model.reset_prefix_cache()
        return True

    def close(self) -> None:
        """Ends running requests (``session_closed``) and the engine, and frees its memory. Safe to call twice."""
        self._model.close()
        still_open.discard(self)  # only now: until then the interpreter's end waits for it

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
