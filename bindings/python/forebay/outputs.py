"""Outputs of requests, with vLLM's members, in the order in which C++ (call.cc) fills them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .errors import Error
from .params import SamplingParams


@dataclass
class Logprob:
    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass
class CompletionOutput:
    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    digest: int = 0

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass
class RequestOutput:
    """The answers of one request. If it failed under ``on_error="return"``, ``error`` is set and ``outputs`` is empty."""

    request_id: str
    prompt: str | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    outputs: list[CompletionOutput] = field(default_factory=list)
    finished: bool = True
    metrics: Any = None
    num_cached_tokens: int | None = None
    error: Error | None = None

    def complete(self, text: str | None, params: SamplingParams | None) -> None:
        """Adds the members that only Python knows: the prompt's text."""
        if text is not None:
            self.prompt = text
        if params is not None and not params.detokenize:
            for choice in self.outputs:
                choice.text = ""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a call. ``outputs``: the finished answers by the prompt's index, as the call returns them."""

    def __init__(self, outputs: dict[int, Any]) -> None:
        super().__init__(f"{len(outputs)} answers were finished")
        self.outputs = outputs

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.outputs,)


@dataclass
class Likelihood:
    """The log probability (natural) of a continuation after its prompt. ``is_greedy``: each of its tokens is the likeliest one."""

    logprob: float
    is_greedy: bool
    token_ids: list[int]
    token_logprobs: list[float]


@dataclass
class LikelihoodOutput:
    """``likelihoods``: one for each continuation; empty, with ``error`` set, if the request failed under ``on_error="return"``."""

    request_id: str
    likelihoods: list[Likelihood] = field(default_factory=list)
    num_cached_tokens: int | None = None
    error: Error | None = None

    def complete(self, text: str | None, params: SamplingParams | None) -> None:
        """Does nothing: C++ fills all members."""


@dataclass
class EmbeddingOutput:
    embedding: list[float]


@dataclass
class EmbeddingRequestOutput:
    request_id: str
    outputs: EmbeddingOutput
    prompt_token_ids: list[int] | None = None
    finished: bool = True
    error: Error | None = None


@dataclass
class ClassificationOutput:
    """``probs``: a score for each label, by softmax or sigmoid as the model's files say."""

    probs: list[float]

    @property
    def num_classes(self) -> int:
        return len(self.probs)


@dataclass
class ClassificationRequestOutput:
    request_id: str
    outputs: ClassificationOutput
    prompt_token_ids: list[int] | None = None
    finished: bool = True
    error: Error | None = None


@dataclass
class ScoringOutput:
    score: float


@dataclass
class ScoringRequestOutput:
    request_id: str
    outputs: ScoringOutput
    finished: bool = True
    error: Error | None = None


@dataclass
class PooledOutput:
    """The numbers of one line (an embedding or scores), from which vLLM's output types are made."""

    request_id: str
    numbers: list[float] = field(default_factory=list)
    prompt_token_ids: list[int] | None = None
    num_cached_tokens: int | None = None
    error: Error | None = None

    def complete(self, text: str | None, params: SamplingParams | None) -> None:
        """Does nothing: C++ fills all members."""
