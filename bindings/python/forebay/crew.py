"""The processes of a shared job: how they are started, and the setting on which the first of them agree."""

from __future__ import annotations

import time
from typing import Any

from .errors import EngineError
from .workers import Workers


class Crew:
    """Starts processes, all with the same arguments, and knows those that have not said yet whether they are ready."""

    def __init__(self, workers: Workers, arguments: dict[str, Any], start_seconds: float) -> None:
        self._workers, self._arguments, self._start_seconds = workers, dict(arguments), start_seconds
        self._next_process = 0
        self.names: dict[int, str] = {}  # of all that were ever started
        self.starting: set[int] = set()
        self.why: list[str] = []  # why processes could not start, or died

    def start(self) -> int:
        process = self._next_process
        self._next_process += 1
        self.starting.add(process)
        self.names[process] = self._workers.start(process, self._arguments)
        return process

    def dismiss(self, process: int, why: str) -> None:
        """Ends a process; ``why`` is the reason in the error if no process is left."""
        self.why.append(f"{self.names[process]}: {why}")
        self.starting.discard(process)
        self._workers.stop(process)

    def first(self, count: int) -> dict[int, dict[str, Any]]:
        """Starts ``count`` processes; the settings of those that are ready, which are the same but for what no flag can settle.

        Numerics class and length are the best that all have; who has others begins again with these. So does who is not ready in
        time, and may come when the job has begun.
        """
        ready: dict[int, dict[str, Any]] = {}
        late = self._wait([self.start() for _ in range(count)], ready)
        if not ready:
            raise EngineError("no_worker", "no worker could start; " + "; ".join(sorted(set(self.why))))
        length = min(each["max_model_len"] for each in ready.values())
        changes: dict[str, Any] = {}
        if len({each["numerics_class"] for each in ready.values()}) > 1 and "isa" not in self._arguments:
            # Every machine with tiles has the set that is fastest there without them; where one starts, it alone knows what it has.
            changes["isa_beside_tiles"] = "avx512f"
        if any(each["max_model_len"] != length for each in ready.values()):
            changes["max_model_len"] = length
        self._arguments.update(changes, max_model_len=length)
        others = [
            process for process, each in ready.items()
            if each["max_model_len"] != length or ("isa_beside_tiles" in changes and each["numerics_class"].startswith("amx"))
        ]
        for process in others:
            self._workers.stop(process)
            del ready[process]
        late += self._wait([self.start() for _ in others], ready)
        if not ready:
            raise EngineError("no_worker", "no worker could start again; " + "; ".join(self.why))
        for _ in range(late):
            self.start()
        return ready

    def _wait(self, processes: list[int], ready: dict[int, dict[str, Any]]) -> int:
        """Puts the settings of processes that are ready in time into ``ready``, and removes those that die meanwhile; returns the number of late ones."""
        waiting, end = set(processes), time.monotonic() + self._start_seconds
        while waiting and time.monotonic() < end:
            for process, kind, value in self._workers.poll(0.2):
                waiting.discard(process)
                if kind == "ready":
                    ready[process] = value
                    self.starting.discard(process)
                elif kind in ("failed", "died"):
                    ready.pop(process, None)
                    self.dismiss(process, str(value))
        for process in waiting:
            self.dismiss(process, f"not ready after {self._start_seconds:.0f} s")
        return len(waiting)
