"""What a server may be set to, checked before anything is loaded. Imports no torch."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from glassformer.base.contradictions import SERVE, refuse
from glassformer.base.errors import ConfigError
from glassformer.base.loopback import is_loopback
from glassformer.base.settings import check, setting


def open_socket(config: ServeConfig) -> socket.socket:
    """Bind a socket to the address of the settings. Errors: `ConfigError` if that fails."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, number)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
        except OSError:
            found.close()
            raise
    except OSError as error:
        raise ConfigError(
            f"The server cannot listen at {config.host}, port {config.port}: {error.strerror or error}. Try another "
            "--host, or another --port (0: any that is free)."
        ) from None
    return found


def address_of(config: ServeConfig, found: socket.socket) -> str:
    """Return the server's URL."""
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"http://{host}:{found.getsockname()[1]}"


KEY = "GLASSFORMER_KEY"
"""The environment variable that may hold the key."""
LEAST_KEY = 16
"""Characters: a shorter key can be found by trying."""
MOST, DAY = 2**31 - 1, 86_400


@dataclass(frozen=True)
class ServeConfig:
    """Where a server listens, who may ask, and how much. Errors: `ConfigError`."""

    host: str = "127.0.0.1"
    """Where to listen; any address but 127.0.0.1, this machine only, needs a key."""
    port: int = setting(8000, 0, 65_535)
    """Port to listen on; 0: any that is free."""
    key: str | None = field(default=None, repr=False)
    """The API key that clients must send; none: anybody on this machine may ask, and nobody else can."""
    name: str | None = None
    """Another host name that clients use for this server, as in http://HOST:8000."""
    rows: int = setting(32, 1, MOST)
    """Texts generated together, the batch size."""
    room: int = setting(65_536, 1, MOST)
    """Size of the KV cache in tokens: rows times the longest."""
    queue: int | None = setting(None, 1, MOST)
    """Prompts that may wait, at least --rows; more must retry later (default: twice --rows)."""
    max_prompt: int = setting(4_096, 1, MOST)
    """Longest prompt, in tokens."""
    max_new_tokens: int = setting(2_048, 1, MOST)
    """Longest text that a client may ask for, in tokens."""
    max_body: int = setting(2**20, 1, MOST)
    """Largest request, in bytes."""
    seconds: float = setting(120.0, above=0, most=DAY, why=", a day", advice="120")
    """Seconds for a whole answer, waiting included."""
    patience: float = setting(10.0, above=0, most=DAY, why=", a day", advice="10")
    """Seconds for a client to send its request, or to read more of its answer."""
    connections: int = setting(768, 1, MOST)
    """Connections open at a time."""
    drain: float = setting(30.0, above=0, most=DAY, why=", a day", advice="30")
    """Seconds for unfinished answers after SIGTERM or Ctrl-C."""

    def __post_init__(self) -> None:
        check(self)
        refuse(self, SERVE)
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

    @property
    def waiting(self) -> int:
        """How many prompts may wait."""
        return 2 * self.rows if self.queue is None else self.queue
