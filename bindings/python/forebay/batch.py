"""``run_batch``: the job of ``forebay run`` in this process."""

from __future__ import annotations

import json
import os
from typing import Any, Protocol

from . import _forebay
from .ending import still_open
from .errors import make_error
from .flags import check_numbers, check_switches, flags_of, path_of

# How long a wait goes on before Python may look at its signals.
_GLANCE = 0.05


class Beside(Protocol):
    """Work of the caller while a job runs."""

    def before(self) -> None:
        """Writes the input, while the model is opened."""

    def meanwhile(self) -> None:
        """Called repeatedly while the engine runs and the results file grows."""


def run_batch(
    input: str | os.PathLike[str],
    output: str | os.PathLike[str],
    model: str | os.PathLike[str],
    *,
    strict: bool = False,
    retry_failed: bool = False,
    preserve_order: bool = False,
    shard: str | None = None,
    summary: str | os.PathLike[str] | None = None,
    grace: float = 30.0,
    use_tqdm: bool = True,
    _beside: Beside | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """Answers every line of ``input`` in ``output``, resuming from the results already there, and returns the summary.

    Ctrl-C lets running requests finish (``grace`` seconds at most), a second one drops them; then KeyboardInterrupt is raised. The
    same call, or ``forebay run``, resumes with the same file. Raises ``Error`` if the job cannot run or leaves lines without a result.
    """
    check_switches("run_batch", strict=strict, retry_failed=retry_failed, preserve_order=preserve_order)
    check_numbers(0.0, grace=grace)
    if shard is not None and not isinstance(shard, str):
        raise TypeError(f"shard is {type(shard).__name__}; expected str, as '3/8'")
    batch = _forebay.Batch(
        path_of("model", model), flags_of(arguments, "run_batch"), path_of("input", input), path_of("output", output), shard or "",
        path_of("summary", summary) if summary is not None else "", strict, retry_failed, preserve_order, bool(use_tqdm), grace, _beside is None,
    )
    still_open.add(batch)
    interrupt: KeyboardInterrupt | None = None
    try:
        if _beside is not None:
            _beside.before()
            batch.begin()
        while True:
            try:
                if batch.wait(_GLANCE):
                    break
                if _beside is not None and batch.runs():
                    _beside.meanwhile()
            except KeyboardInterrupt as raised:
                batch.drain() if interrupt is None else batch.abort()
                interrupt = raised
    finally:
        batch.close()
    end, code, message, text = batch.result()
    # It may have cut off what went on beside the job.
    if interrupt is not None and (end in ("drained", "aborted") or _beside is not None):
        raise interrupt
    if end not in ("complete", "all_failed"):
        raise make_error(code, message, False)
    found: dict[str, Any] = json.loads(text)
    return found
