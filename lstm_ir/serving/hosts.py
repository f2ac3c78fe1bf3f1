"""Which server a request means: names of this machine alone, where no other machine reaches the server.

A page in a browser may give its own name the address 127.0.0.1 (DNS rebinding), and then asks this server as its own:
such a request has no header Origin, and its Host is the page's name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from lstm_ir.serving.tensors import RequestError


def is_loopback(name: str) -> bool:
    """Whether a name or an address is that of this machine for itself."""
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def need_host(headers: Mapping[str, str], own: str | None) -> None:
    """RequestError for a Host that is neither of the loopback nor `own`, the name to listen on; None: all may be."""
    given = headers.get("host")
    if own is None or given is None:
        return
    name = _without_port(given)
    if name.lower() != own.lower() and not is_loopback(name):
        raise RequestError(
            f"the header Host is {given[:80]!r}; expected localhost, its address, or the name of --host", 403
        )


def _without_port(host: str) -> str:
    """The name or address; IPv6 stands in brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
