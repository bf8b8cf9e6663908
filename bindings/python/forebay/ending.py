"""The interpreter's end while something runs: other threads do not come back from the engine, and what is open is closed."""

from __future__ import annotations

import atexit
import weakref
from typing import Protocol

from . import _forebay


class _Closable(Protocol):
    def close(self) -> None: ...


still_open: weakref.WeakSet[_Closable] = weakref.WeakSet()


@atexit.register
def _end() -> None:
    _forebay.send_to_sleep()
    for each in list(still_open):
        each.close()
