"""The queue of an engine, and the cache size that texts written together need."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

from glassformer.base.errors import BusyError
from glassformer.decode.engine.requests import Limits, Request, Ticket


class Load(NamedTuple):
    """The size of texts written together: each takes as much room as the longest text plus the longest memory."""

    rows: int = 0
    columns: int = 0
    memory: int = 0

    def plus(self, rows: int, columns: int, memory: int) -> Load:
        """The load with this many more texts."""
        return Load(self.rows + rows, max(self.columns, columns), max(self.memory, memory))

    @property
    def tokens(self) -> int:
        """The cache size for their keys and values, in tokens per layer."""
        return self.rows * (self.columns + self.memory)

    def fits(self, limits: Limits) -> bool:
        """Whether all of them are within the limits."""
        return self.rows <= limits.rows and self.tokens <= limits.tokens


class Waiting:
    """A queue of tickets in order of arrival. One thread takes them out; another may put them in.

    Cancelled tickets do not count.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.tickets: deque[Ticket] = deque()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self.tickets)

    def put(self, request: Request) -> Ticket:
        """Add a request at the end. Errors: `BusyError` if the queue is full."""
        with self._lock:
            self._forget()
            if len(self.tickets) >= self.most:
                raise BusyError(f"The queue is full: {self.most} requests are waiting. Try again later.")
            self.tickets.append(ticket := Ticket(request))
            return ticket

    def take(self, fits: Callable[[Request], bool]) -> list[Ticket]:
        """Take tickets from the front, up to the first that does not fit, so that none is overtaken."""
        taken: list[Ticket] = []
        with self._lock:
            self._forget()
            while self.tickets and fits(self.tickets[0].request):
                taken.append(self.tickets.popleft())
        return taken

    def _forget(self) -> None:
        if any(each.over for each in self.tickets):
            self.tickets = deque(each for each in self.tickets if not each.over)
