"""The address of a server: its socket, bound before anything is loaded, and its URL. Imports no torch."""

from __future__ import annotations

import socket

from glassformer.base.errors import ConfigError
from glassformer.serve.settings import ServeConfig


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
