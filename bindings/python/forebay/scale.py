"""One job on many workers: this process keeps the books and the files, the workers compute (``workers.py``)."""

from __future__ import annotations

import logging
import math
import os
import time
from datetime import datetime
from typing import Any

from . import _forebay
from .crew import Crew
from .errors import EngineError
from .progress import Progress
from .worker import Lines
from .workers import Event, LocalWorkers, Workers

__all__ = ["Event", "LocalWorkers", "Run", "Workers", "free_mib", "run_batch"]
_log = logging.getLogger("forebay")


class _Member:
    """A process that computes lines, under the number that the books have for it."""

    def __init__(self, number: int, name: str) -> None:
        self.number, self.name = number, name
        self.held: set[int] = set()
        self.given_up = False


class Run:
    """The driver: one call of ``run_batch``. Its thread alone touches the files."""

    def __init__(self, workers: Workers, input: str, output: str, arguments: dict[str, Any], options: dict[str, Any]) -> None:
        self._workers, self._input, self._output, self._options = workers, input, output, options
        # Templates of all workers, and of the run that this one goes on with, see one clock.
        now = arguments.get("now") or _forebay.job_clock(output) or datetime.now().strftime("%Y-%m-%dT%H:%M:%S")
        self._crew = Crew(workers, {**arguments, "now": now}, options["start_seconds"])
        self._most_held = math.ceil(1.25 * int(arguments.get("max_num_seqs") or 256))
        self._members: dict[int, _Member] = {}  # the processes that compute
        self._next_number = 0
        self._barren = 0  # deaths since the last result
        self._setting: dict[str, Any] = {}
        self._driver: Any = None
        self._draining = False

    def run(self, count: int) -> dict[str, Any]:
        began = time.monotonic()
        try:
            ready = self._crew.first(count)
            self._setting = ready[min(ready)]
            self._driver = _forebay.Driver(
                self._input, self._output, self._setting["fingerprints"], bool(self._options["retry_failed"]),
                self._options["least_lines"], self._options["most_lines"], self._options["silent_seconds"],
            )
            for process, theirs in ready.items():
                self._admit(process, theirs)
            self._loop()
            if self._options["preserve_order"] and self._driver.complete():
                self._driver.rewrite_in_order()
        finally:
            self._workers.close()
        return {
            **self._driver.counts(),
            "end": "complete" if self._driver.complete() else "drained",
            "elapsed_time": time.monotonic() - began,
            "system": {key: self._setting[key] for key in ("model", "numerics_class", "max_model_len")},
        }

    def _admit(self, process: int, theirs: dict[str, Any]) -> None:
        name = self._crew.names[process]
        if any(theirs[key] != self._setting[key] for key in ("fingerprints", "version")):
            shown = ("model", "numerics_class", "max_model_len", "version")
            found, expected = ({key: each[key] for key in shown} for each in (theirs, self._setting))
            _log.warning("%s is refused: it has %s, the job %s; model files, template and flags count too", name, found, expected)
            self._crew.dismiss(process, f"it has {found}, the job {expected}")
            return
        self._join(process)

    def _join(self, process: int) -> None:
        member = _Member(self._next_number, self._crew.names[process])
        self._next_number += 1
        self._members[process] = member
        self._driver.join(member.number, member.name)
        self._ask(member)

    def _ask(self, member: _Member) -> None:
        while not self._draining and not member.given_up and len(member.held) < self._most_held:
            before = len(member.held)
            self._obey(self._driver.ask(member.number, time.monotonic()))
            if len(member.held) == before:
                return

    def _obey(self, orders: list[tuple[int, Lines]]) -> None:
        by_number = {member.number: (process, member) for process, member in self._members.items()}
        for number, lines in orders:
            process, member = by_number[number]
            if not lines:
                _log.warning("%s is silent; its lines go to others", member.name)
                member.given_up = True
            elif not self._draining:
                member.held.update(number for number, _ in lines)
                self._workers.send(process, lines)

    def _loop(self) -> None:
        progress = Progress(self._driver.counts()["lines"], self._options["use_tqdm"])
        committed = staffed = time.monotonic()
        drain_ends = math.inf
        interrupt: KeyboardInterrupt | None = None
        try:
            while not self._driver.complete():
                try:
                    for event in self._workers.poll(0.2):
                        self._take(*event)
                    now = time.monotonic()
                    staffed = now if self._members or self._draining else staffed
                    if now - staffed > self._options["start_seconds"]:
                        raise self._nobody(f"those that were started since are not ready after {now - staffed:.0f} s")
                    self._obey(self._driver.tick(now))
                    if now - committed > 1 or self._driver.group_is_full():
                        self._driver.commit()
                        committed = now
                        counts = self._driver.counts()
                        progress.at(counts["resumed"] + counts["done"], counts["prompt_tokens"], counts["output_tokens"])
                    if self._draining and (now > drain_ends or not any(each.held for each in self._members.values())):
                        break
                except KeyboardInterrupt as raised:
                    if interrupt is not None:
                        raise
                    interrupt, self._draining = raised, True
                    drain_ends = time.monotonic() + self._options["grace"]
        finally:
            self._driver.commit()
            progress.close()
        if interrupt is not None and not self._driver.complete():
            raise interrupt

    def _take(self, process: int, kind: str, value: Any) -> None:
        now = time.monotonic()
        member = self._members.get(process)
        self._crew.starting.discard(process)
        if kind == "ready":
            self._admit(process, value)
        elif kind == "failed":
            self._crew.dismiss(process, str(value))
        elif kind == "died":
            self._lose(process, member, str(value))
        elif member is not None:
            self._obey(self._driver.hear(member.number, now))
            for text in value:
                self._barren = 0
                number = _line_of(text)
                member.held.discard(number)
                self._obey(self._driver.finish(member.number, text, now))
            if not member.given_up:
                self._ask(member)
            elif not member.held:
                self._join(process)
        if not self._members and not self._crew.starting and not self._draining and not self._driver.complete():
            raise self._nobody()

    def _lose(self, process: int, member: _Member | None, why: str) -> None:
        name = self._crew.names[process]
        self._crew.dismiss(process, why)
        self._barren += 1
        if member is not None:
            _log.warning("%s died (%s); its lines go to others", name, why)
            del self._members[process]
            self._obey(self._driver.die(member.number, time.monotonic()))
        if self._barren > 20:
            raise EngineError("no_worker", f"workers die and finish nothing; the last: {name}: {why}")
        if not self._draining and not self._driver.complete():
            self._crew.start()

    def _nobody(self, *why: str) -> EngineError:
        return EngineError("no_worker", "; ".join(["no worker is left", *self._crew.why[-5:], *why]))


def _line_of(text: bytes) -> int:
    """The line of a result, from 0; -1 where it is none."""
    try:
        return int(text[len(b'{"id":"batch_req_') :].split(b"_", 1)[0]) - 1
    except ValueError:
        return -1


def run_batch(
    input: str | os.PathLike[str],
    output: str | os.PathLike[str],
    model: str | os.PathLike[str],
    *,
    num_workers: int = 2,
    num_cpus: int | None = None,
    retry_failed: bool = False,
    preserve_order: bool = False,
    grace: float = 30.0,
    use_tqdm: bool = True,
    least_lines: int | None = None,
    most_lines: int = 256,
    silent_seconds: float = 30.0,
    start_seconds: float = 60.0,
    workers: Workers | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """Answers every line of ``input`` in ``output`` by ``num_workers`` processes of ``num_cpus`` cores each; returns the summary.

    The file is that of ``forebay run``: either goes on with what the other has left. Ctrl-C lets what runs finish.
    """
    if num_workers < 1:
        raise ValueError(f"num_workers is {num_workers}; expected at least 1")
    cores = num_cpus or max(1, len(os.sched_getaffinity(0)) // num_workers)
    arguments.setdefault("threads", cores)
    # Workers of other machines know their memory themselves.
    if workers is None:
        arguments.setdefault("memory", f"{free_mib() // num_workers}MiB")
    if least_lines is None:
        # At the end a worker that holds more than it has places for keeps lines that others have places for.
        least_lines = max(1, min(32, most_lines, int(arguments.get("max_num_seqs") or 256) // 2))
    options = {
        "retry_failed": retry_failed, "preserve_order": preserve_order, "grace": grace, "use_tqdm": use_tqdm,
        "least_lines": least_lines, "most_lines": most_lines, "silent_seconds": silent_seconds, "start_seconds": start_seconds,
    }
    made = workers if workers is not None else LocalWorkers(os.fspath(model))
    return Run(made, os.fspath(input), os.fspath(output), arguments, options).run(num_workers)


def free_mib() -> int:
    """What this machine has free, less a tenth."""
    with open("/proc/meminfo", encoding="ascii") as file:
        available = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    return max(64, available * 9 // 10 // 1024)
