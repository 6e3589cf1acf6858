"""What a server may be set to, checked before anything is loaded. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from glassformer.base.bounds import at_least, at_most
from glassformer.base.errors import ConfigError
from glassformer.base.loopback import is_loopback
from glassformer.base.typed import check_types

KEY = "GLASSFORMER_KEY"
"""The environment variable that may hold the key."""
LEAST_KEY = 16
"""Characters: a shorter key can be found by trying."""


@dataclass(frozen=True)
class ServeConfig:
    """Where a server listens, who may ask, and how much. Errors: `ConfigError`."""

    host: str = "127.0.0.1"
    port: int = 8000
    key: str | None = field(default=None, repr=False)
    """The API key that clients must send; none: anybody on this machine may ask, and nobody else can."""
    name: str | None = None
    """Another host name that clients use for this server, as in `http://NAME:8000`."""
    rows: int = 32
    """Texts generated together, the batch size."""
    room: int = 65_536
    """Size of the KV cache in tokens: rows times the longest."""
    queue: int | None = None
    """Prompts that may wait; more must retry later. None: twice `rows`."""
    max_prompt: int = 4_096
    """Longest prompt, in tokens."""
    max_new_tokens: int = 2_048
    """Longest text, in tokens."""
    max_body: int = 2**20
    """Largest request, in bytes."""
    seconds: float = 120.0
    """Seconds for a whole answer, waiting included."""
    patience: float = 10.0
    """Seconds for a client to send its request, or to read more of its answer."""
    connections: int = 768
    """Connections open at a time."""
    drain: float = 30.0
    """Seconds for unfinished answers after SIGTERM or Ctrl-C."""

    def __post_init__(self) -> None:
        check_types(self)
        at_least(self, "", 0, "port")
        at_most(self, "", 65_535, "port")
        at_least(self, "", 1, "rows", "room", "queue", "max_prompt", "max_new_tokens", "max_body", "connections")
        at_most(self, "", 2**31 - 1, "rows", "room", "queue", "max_prompt", "max_new_tokens", "max_body", "connections")
        for name in ("seconds", "patience", "drain"):
            if not 0 < getattr(self, name) <= 86_400:
                raise ConfigError(
                    f"{name} must be above 0 and at most 86400, a day; got {getattr(self, name)}. "
                    f"Try {name}={getattr(ServeConfig, name):g}.",
                    setting=name,
                )
        if self.waiting < self.rows:
            raise ConfigError(
                f"queue must be at least rows={self.rows}, because one request may have that many prompts; "
                f"got {self.queue}. Set queue={self.rows}, or rows={self.queue}.",
                setting="queue",
            )
        self._check_key()

    @property
    def waiting(self) -> int:
        """How many prompts may wait."""
        return 2 * self.rows if self.queue is None else self.queue

    def _check_key(self) -> None:
        if self.key is None and not is_loopback(self.host):
            raise ConfigError(
                f"A server that other machines can reach needs a key; got host={self.host!r} and no key. Put one into "
                f"a file (--key-file FILE) or into the environment variable {KEY}, or remove --host."
            )
        if self.key is not None and (len(self.key) < LEAST_KEY or not self.key.isascii() or not self.key.isprintable()):
            raise ConfigError(
                f"A key needs at least {LEAST_KEY} printable ASCII characters; got {len(self.key)} characters. "
                "Make one: python -c 'import secrets; print(secrets.token_urlsafe(32))'."
            )
