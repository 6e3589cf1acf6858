"""Who waits for an engine, and the room that those take who are written together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

from glassformer.decode.engine.requests import Limits, Request, Ticket
from glassformer.foundation.errors import BusyError


class Load(NamedTuple):
    """Texts that are written together: each takes as many tokens as the longest of them, and its memory likewise."""

    rows: int = 0
    columns: int = 0
    memory: int = 0

    def plus(self, rows: int, columns: int, memory: int) -> Load:
        """The same with so many more texts."""
        return Load(self.rows + rows, max(self.columns, columns), max(self.memory, memory))

    @property
    def tokens(self) -> int:
        """The room for their keys and values."""
        return self.rows * (self.columns + self.memory)

    def fits(self, limits: Limits) -> bool:
        """Whether there is room for all of them."""
        return self.rows <= limits.rows and self.tokens <= limits.tokens


class Waiting:
    """Tickets in the order in which they came. One thread takes them out, another may put them in.

    Those that nobody wants any more hold no place.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.tickets: deque[Ticket] = deque()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self.tickets)

    def put(self, request: Request) -> Ticket:
        """One more at the end. Errors: `BusyError` where as many wait as may."""
        with self._lock:
            self._forget()
            if len(self.tickets) >= self.most:
                raise BusyError(f"{self.most} requests are waiting, and no more may. Ask again later.")
            self.tickets.append(ticket := Ticket(request))
            return ticket

    def take(self, fits: Callable[[Request], bool]) -> list[Ticket]:
        """The first ones, up to one that does not fit: nobody is overtaken."""
        taken: list[Ticket] = []
        with self._lock:
            self._forget()
            while self.tickets and fits(self.tickets[0].request):
                taken.append(self.tickets.popleft())
        return taken

    def _forget(self) -> None:
        if any(each.over for each in self.tickets):
            self.tickets = deque(each for each in self.tickets if not each.over)
