"""``Workers``, the interface of a way to run the workers of a shared job, and ``LocalWorkers``: processes of this machine."""

from __future__ import annotations

import queue
import socket
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any, Protocol

from .worker import Lines

# (process, "ready" | "failed" | "done" | "died", the setting | why | result lines | why)
Event = tuple[int, str, Any]


class Workers(Protocol):
    """Each process has a number, which is never used again."""

    def start(self, process: int, arguments: dict[str, Any]) -> str:
        """Starts a process, whose first event is "ready" or "failed". Returns its name for messages."""

    def send(self, process: int, lines: Lines) -> None: ...
    def poll(self, seconds: float) -> list[Event]:
        """Returns the events since the last call, in order; waits at most ``seconds`` for one."""

    def stop(self, process: int) -> None:
        """Ends the process at once; no event of it follows."""

    def close(self) -> None: ...


class LocalWorkers:
    """Processes of this machine, reached through sockets. For each, one thread reads and one writes, so that a stopped process delays no other."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._processes: dict[int, tuple[subprocess.Popen[bytes], queue.SimpleQueue[Any]]] = {}

    def start(self, process: int, arguments: dict[str, Any]) -> str:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "forebay.worker", str(theirs.fileno())]
        started = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True)
        theirs.close()
        connection = Connection(ours.detach())
        to_send: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._processes[process] = started, to_send
        threading.Thread(target=self._read, args=(process, connection), daemon=True).start()
        threading.Thread(target=self._write, args=(connection, to_send), daemon=True).start()
        to_send.put((self._model, arguments))
        return f"process {started.pid}"

    def _read(self, process: int, connection: Connection) -> None:
        try:
            while True:
                kind, value = connection.recv()
                self._events.put((process, kind, value))
        except Exception as error:  # its end, or no message of ours
            self._events.put((process, "died", f"{type(error).__name__}: {error}" if str(error) else "it ended"))

    @staticmethod
    def _write(connection: Connection, to_send: queue.SimpleQueue[Any]) -> None:
        try:
            while (message := to_send.get()) is not None:
                connection.send(message)
        except OSError:  # the reader tells of it
            return

    def send(self, process: int, lines: Lines) -> None:
        self._processes[process][1].put(lines)

    def poll(self, seconds: float) -> list[Event]:
        events: list[Event] = []
        try:
            events.append(self._events.get(timeout=seconds))
            while True:
                events.append(self._events.get_nowait())
        except queue.Empty:
            return [event for event in events if event[0] in self._processes]

    def stop(self, process: int) -> None:
        found = self._processes.pop(process, None)
        if found is not None:
            found[1].put(None)
            found[0].kill()
            found[0].wait()

    def close(self) -> None:
        for process in list(self._processes):
            self.stop(process)
