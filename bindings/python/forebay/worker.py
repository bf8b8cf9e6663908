"""A worker of a shared job: it gets lines and returns finished result lines."""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import tempfile
from multiprocessing.connection import Connection
from typing import Any

from . import _forebay
from .errors import Error
from .flags import flags_of

Lines = list[tuple[int, bytes]]


def take_cores(count: int) -> list[int]:
    """Binds this process for its life to cores that no other worker of this machine has; returns the descriptors that hold them.

    If there are not enough free cores, the process may use all.
    """
    folder = os.path.join(tempfile.gettempdir(), f"forebay-cores-{os.getuid()}")
    held: dict[int, int] = {}
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        for core in sorted(os.sched_getaffinity(0)):
            if len(held) == count:
                break
            descriptor = os.open(os.path.join(folder, str(core)), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held[core] = descriptor
            except OSError:
                os.close(descriptor)
    except OSError:
        pass
    if held and len(held) == count:
        os.sched_setaffinity(0, held)
        return list(held.values())
    for descriptor in held.values():
        os.close(descriptor)
    return []


def has_tiles() -> bool:
    """Whether this machine has AMX."""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        return any(line.startswith("flags") and "amx_tile" in line.split() for line in file)


def own_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """``isa_beside_tiles`` is the instruction set of machines with AMX in a job of another class; other machines ignore it."""
    own = {**arguments}
    isa = own.pop("isa_beside_tiles", None)
    return {**own, "isa": isa} if isa is not None and has_tiles() else own


class Worker:
    """A model and its lines. One thread uses it."""

    def __init__(self, model: str, arguments: dict[str, Any]) -> None:
        self._cores = take_cores(int(arguments.get("threads") or 0))
        self._model = _forebay.Model(model, flags_of(own_arguments(arguments)))
        self._server = _forebay.Server(self._model)

    def setting(self) -> dict[str, Any]:
        """The settings that all workers of a job must share, and names for messages."""
        facts = self._model.facts()
        return {
            "fingerprints": self._server.fingerprints(),
            "isa": facts["isa"],
            "model": facts["model"],
            "numerics_class": facts["numerics_class"],
            "max_model_len": facts["max_model_len"],
            "version": _forebay.__version__,
            "host": socket.gethostname(),
        }

    def exchange(self, lines: Lines, seconds: float) -> list[bytes]:
        """Takes lines; returns finished result lines after ``seconds`` at most."""
        if lines:
            self._server.add(lines)
        answers = self._server.take(seconds)
        self._model.check()
        return answers

    def held(self) -> int:
        """Lines that have no result yet."""
        return self._server.held()

    def close(self) -> None:
        self._model.close()


def serve(connection: Connection) -> None:
    """Serves a driver until the connection closes, also by the driver's death."""
    model, arguments = connection.recv()
    try:
        worker = Worker(model, arguments)
    except (Error, TypeError) as error:
        connection.send(("failed", f"{error}"))
        return
    connection.send(("ready", worker.setting()))
    try:
        while True:
            lines: Lines = []
            while connection.poll(0 if worker.held() or lines else 5):
                lines += connection.recv()
            connection.send(("done", worker.exchange(lines, 0.1 if lines or worker.held() else 0)))
    except (EOFError, ConnectionError):
        worker.close()


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
