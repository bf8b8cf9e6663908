"""One job on many workers: this process keeps the books and the files (``driver.py``), the workers compute (``workers.py``)."""

from __future__ import annotations

import os
from typing import Any

from . import _forebay
from .driver import Run
from .errors import InvalidValueError
from .flags import check_numbers, check_switches, flags_of, path_of
from .workers import Event, LocalWorkers, Workers

__all__ = ["Event", "LocalWorkers", "Run", "Workers", "free_mib", "run_batch"]


def run_batch(
    input: str | os.PathLike[str],
    output: str | os.PathLike[str],
    model: str | os.PathLike[str],
    *,
    num_workers: int = 2,
    num_cpus: float | None = None,
    strict: bool = False,
    retry_failed: bool = False,
    preserve_order: bool = False,
    summary: str | os.PathLike[str] | None = None,
    grace: float = 30.0,
    use_tqdm: bool = True,
    least_lines: int | None = None,
    most_lines: int = 256,
    silent_seconds: float = 30.0,
    start_seconds: float = 60.0,
    workers: Workers | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """Answers every line of ``input`` in ``output`` with ``num_workers`` processes of ``num_cpus`` cores each, and returns the summary.

    The results file is that of ``forebay run``, and either can resume it. Ctrl-C lets running requests finish (``grace`` seconds at
    most). Raises ``Error``: ``no_worker`` if no worker can start or all have died, ``results_differ`` if two workers disagree.
    """
    check_switches("run_batch", strict=strict, retry_failed=retry_failed, preserve_order=preserve_order)
    check_numbers(0.0, grace=grace, start_seconds=start_seconds)
    check_numbers(0.0, 1e9, silent_seconds=silent_seconds)  # C++ counts nanoseconds
    # Ray's workers may have a part of a core, or none.
    counts = {"num_cpus": num_cpus if workers is None else None, "least_lines": least_lines}
    check_numbers(1, num_workers=num_workers, most_lines=most_lines, **{name: value for name, value in counts.items() if value is not None})
    if least_lines is not None and least_lines > most_lines:
        raise InvalidValueError("invalid_value", f"least_lines is {least_lines}; expected at most most_lines, {most_lines}")
    cores = max(1, int(num_cpus or len(os.sched_getaffinity(0)) // num_workers))
    arguments.setdefault("threads", cores)
    # Workers of other machines know their memory themselves.
    if workers is None:
        arguments.setdefault("memory", f"{free_mib() // num_workers}MiB")
    name, source, to = path_of("model", model), path_of("input", input), path_of("output", output)
    told = path_of("summary", summary) if summary is not None else ""
    flags = flags_of(arguments, "run_batch")
    _forebay.check_files(name, flags, source, to, told)
    if least_lines is None:
        # At the end a worker that holds more than it has places for keeps lines that others have places for.
        least_lines = max(1, min(32, most_lines, int(arguments.get("max_num_seqs") or 256) // 2))
    options = {
        "check": (lambda length: _forebay.check_lines(name, flags, source, length)) if strict else lambda length: None,
        "summary": told,
        "retry_failed": retry_failed, "preserve_order": preserve_order, "grace": grace, "use_tqdm": use_tqdm,
        "least_lines": least_lines, "most_lines": most_lines, "silent_seconds": silent_seconds, "start_seconds": start_seconds,
    }
    return Run(workers if workers is not None else LocalWorkers(name), source, to, arguments, options).run(num_workers)


def free_mib() -> int:
    """The free memory of this machine in MiB, less a tenth."""
    with open("/proc/meminfo", encoding="ascii") as file:
        available = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    return max(64, available * 9 // 10 // 1024)
