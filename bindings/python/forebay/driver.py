"""The driver of a job that several processes share: it keeps the books and the files, and tells the others what to compute."""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from datetime import datetime
from typing import Any

from . import _forebay
from .crew import Crew
from .errors import EngineError
from .worker import Lines
from .workers import Workers

_log = logging.getLogger("forebay")
# How often progress is drawn, seconds: on a terminal, and elsewhere.
_DRAWS, _LINES = 0.25, 5.0


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
        self._began = 0.0
        self._summary: dict[str, Any] = {}
        self._draining = False

    def run(self, count: int) -> dict[str, Any]:
        began = time.monotonic()
        interrupt: KeyboardInterrupt | None = None
        end = "failed"
        try:
            ready = self._crew.first(count)
            self._setting = ready[min(ready)]
            self._options["check"](self._setting["max_model_len"])
            self._driver = _forebay.Driver(
                self._input, self._output, self._setting["fingerprints"], bool(self._options["retry_failed"]), self._options["least_lines"],
                self._options["most_lines"], self._options["silent_seconds"], bool(self._options["use_tqdm"]),
            )
            self._began = time.monotonic()
            for process, theirs in ready.items():
                self._admit(process, theirs)
            for member in list(self._members.values()):
                self._ask(member)
            interrupt = self._loop()
            if self._options["preserve_order"] and self._driver.complete():
                self._driver.rewrite_in_order()
            end = "complete" if self._driver.complete() else "drained"
        except KeyboardInterrupt:  # the second one
            end = "aborted"
            raise
        finally:
            self._workers.close()
            if self._driver is not None:
                self._summary = self._summarize(end, self._began - began)
        if interrupt is not None and end == "drained":
            raise interrupt
        return self._summary

    def _summarize(self, end: str, startup: float) -> dict[str, Any]:
        """The members of ``forebay run``'s summary that a driver knows."""
        counts, took = self._driver.counts(), max(time.monotonic() - self._began, 1e-9)
        tokens = counts["prompt_tokens"] + counts["output_tokens"]
        if end == "complete" and 0 < counts["num_lines"] == counts["num_failed_in_file"]:
            end = "all_failed"
        summary = {
            "elapsed_time": took,
            "total_num_tokens": tokens,
            "requests_per_second": counts["num_requests"] / took,
            "tokens_per_second": tokens / took,
            "output_tokens_per_second": counts["output_tokens"] / took,
            "end": end,
            **counts,
            "startup_seconds": startup,
            **{key: self._setting[key] for key in ("isa", "model", "numerics_class", "max_model_len")},
        }
        if self._options["summary"]:
            with open(self._options["summary"], "w", encoding="utf-8") as file:
                print(json.dumps(summary), file=file)
        return summary

    def _admit(self, process: int, theirs: dict[str, Any]) -> None:
        name = self._crew.names[process]
        if any(theirs[key] != self._setting[key] for key in ("fingerprints", "version")):
            found, expected = (_shown(each) for each in (theirs, self._setting))
            why = f"it has {found}, the job {expected}"
            if found["settings"] != expected["settings"]:
                why += "; what differs: " + _forebay.differing_settings(theirs["fingerprints"][3], self._setting["fingerprints"][3])
            _log.warning("%s is refused: %s", name, why)
            self._crew.dismiss(process, why)
            return
        # Who reads of a worker wants to find the machine.
        self._crew.names[process] = f"{name} on {theirs['host']}"
        self._join(process)

    def _join(self, process: int) -> None:
        member = _Member(self._next_number, self._crew.names[process])
        self._next_number += 1
        self._members[process] = member
        self._driver.join(member.number, member.name, time.monotonic())

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

    def _loop(self) -> KeyboardInterrupt | None:
        """Returns the Ctrl-C that drained the job."""
        committed = staffed = drawn = self._began
        drain_ends = math.inf
        often = _DRAWS if sys.stderr is not None and sys.stderr.isatty() else _LINES
        interrupt: KeyboardInterrupt | None = None
        try:
            while not self._driver.complete():
                try:
                    for event in self._workers.poll(0.2):
                        self._take(*event)
                    now = time.monotonic()
                    speak = any(not each.given_up for each in self._members.values())
                    staffed = now if speak or self._draining else staffed
                    if now - staffed > self._options["start_seconds"]:
                        if self._replace_silent():
                            staffed = now
                            continue
                        raise self._nobody(f"those that were started since are not ready after {now - staffed:.0f} s")
                    self._obey(self._driver.tick(now))
                    if now - committed > 1 or self._driver.group_is_full():
                        self._driver.commit()
                        committed = now
                    if now - drawn > often:
                        self._driver.draw(now - self._began, False)
                        drawn = now
                    if self._draining and (now > drain_ends or not any(each.held for each in self._members.values())):
                        break
                except KeyboardInterrupt as raised:
                    if interrupt is not None:
                        raise
                    interrupt, self._draining = raised, True
                    drain_ends = time.monotonic() + self._options["grace"]
        finally:
            self._driver.commit()
            self._driver.draw(time.monotonic() - self._began, True)
        return interrupt

    def _take(self, process: int, kind: str, value: Any) -> None:
        now = time.monotonic()
        member = self._members.get(process)
        self._crew.starting.discard(process)
        if kind == "ready":
            self._admit(process, value)
            if process in self._members:
                self._ask(self._members[process])
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
                self._ask(self._members[process])
        if not self._members and not self._crew.starting and not self._draining and not self._driver.complete():
            raise self._nobody()

    def _replace_silent(self) -> bool:
        """No worker has sent anything for long, and none has joined: new processes replace the silent ones."""
        if self._crew.starting or not self._members:
            return False
        for process, member in list(self._members.items()):
            self._lose(process, member, self._silence())
        return True

    def _silence(self) -> str:
        return f"silent for {self._options['silent_seconds']:g} s"

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
        silent = [f"{each.name}: {self._silence()}" for each in self._members.values()]
        return EngineError("no_worker", "; ".join(["no worker is left", *self._crew.why[-5:], *silent, *why]))


def _shown(setting: dict[str, Any]) -> dict[str, Any]:
    """Values for an error message to compare; for files, templates and flags their fingerprints."""
    files, settings = (f"{each:016x}" for each in setting["fingerprints"][:2])
    return {**{key: setting[key] for key in ("model", "numerics_class", "max_model_len", "version")}, "model files": files, "settings": settings}


def _line_of(text: bytes) -> int:
    """The line number of a result, from 0; -1 if the text is no result."""
    try:
        return int(text[len(b'{"id":"batch_req_') :].split(b"_", 1)[0]) - 1
    except ValueError:
        return -1
