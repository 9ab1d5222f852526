"""A cable that can be pulled: a TCP proxy that cuts its connections after given numbers of bytes.

In:  the port behind it, byte counts.
Out: the port in front. Each count is used up by one cut; afterwards the cable stays plugged in.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class Cable:
    """One proxy; `cuts_left` tells how many cuts are still to come."""

    def __init__(self, port: int, cuts: Sequence[int]) -> None:
        self._behind, self._cuts, self._lock = port, list(cuts), threading.Lock()
        self._budget = self._cuts.pop(0) if self._cuts else None
        self._open: set[socket.socket] = set()
        self.cut_count = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                front, _ = self._server.accept()
            except OSError:  # closed: the test is over
                return
            try:
                back = socket.create_connection(("127.0.0.1", self._behind))
            except OSError:
                front.close()
                continue
            with self._lock:
                self._open |= {front, back}
            for one, other in ((front, back), (back, front)):
                threading.Thread(target=self._forward, args=(one, other), daemon=True).start()

    def _forward(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(16384):
                passed = self._pass(len(data))
                other.sendall(data[:passed])
                if passed < len(data):
                    break
        except OSError:
            pass
        self._close(one, other)

    def _pass(self, n_bytes: int) -> int:
        """How many of these bytes still get through; the cut hits all connections."""
        with self._lock:
            if self._budget is None:
                return n_bytes
            passed = min(n_bytes, self._budget)
            self._budget -= passed
            if passed == n_bytes:
                return n_bytes
            self._budget = self._cuts.pop(0) if self._cuts else None
            self.cut_count += 1
            everything, self._open = list(self._open), set()
        self._close(*everything)
        return passed

    def _close(self, *connections: socket.socket) -> None:
        for connection in connections:
            for action in (lambda c: c.shutdown(socket.SHUT_RDWR), lambda c: c.close()):
                with contextlib.suppress(OSError):  # closed already, from the other side
                    action(connection)

    def close(self) -> None:
        self._server.close()
        self._close(*self._open)


@contextmanager
def cable(port: int, cuts: Sequence[int] = ()) -> Iterator[Cable]:
    """A cable to `port` for the time of the block."""
    made = Cable(port, cuts)
    try:
        yield made
    finally:
        made.close()
