"""Which requests a local server answers: those that call it by a name of this machine, from a program or its own page.

Any other site's page can make a browser send requests to a server on this machine. Its domain name, pointed at this
machine (DNS rebinding), appears in the header Host; its own address appears in the header Origin. Ports tell nothing: a
tunnel (`ssh -L 9999:localhost:8642`, the port forwarding of an editor) keeps the name and changes the port.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?")


class Host(NamedTuple):
    """The header Host of a request, in lower case."""

    header: str
    name: str
    """Without the port, and without the brackets of an IPv6 address."""


def read_host(given: list[str]) -> Host | None:
    """Parse the Host headers of a request; None unless there is exactly one, NAME or NAME:PORT."""
    found = _HOST.fullmatch(given[0]) if len(given) == 1 else None
    return None if found is None else Host(given[0].lower(), found["name"].strip("[]").lower())


def is_own_page(origins: list[str], host: Host) -> bool:
    """Whether a request with these Origin headers comes from a program (none) or from a page at the same host."""
    return [each.lower() for each in origins] in ([], [f"http://{host.header}"], [f"https://{host.header}"])


def is_loopback(name: str) -> bool:
    """Whether nobody but this machine reaches a name or an address."""
    address = as_address(name)
    return name == "localhost" if address is None else address.is_loopback


def as_address(name: str) -> IPv4Address | IPv6Address | None:
    """An IP address written out; None for a name."""
    try:
        return ip_address(name)
    except ValueError:
        return None
