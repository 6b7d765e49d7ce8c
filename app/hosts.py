"""Requests are answered only under names that the app was started for, WebSockets included.

A page elsewhere can point a name of its own at this machine (DNS rebinding) and then talk to the app as if it were from here; its
name is in the Host header.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

HOSTS = "DRIFTSCOPE_APP_HOSTS"
"""Environment variable: the names besides those of this machine, as JSON."""
LOCAL = ("localhost", "127.0.0.1", "::1")
ANY = ("0.0.0.0", "::", "")
"""Addresses that listen everywhere: no name that a browser would ask for."""

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def allowed_hosts(host: str, more: Iterable[str] = ()) -> list[str]:
    """Names under which an app that listens on `host` answers."""
    own = [] if host in ANY else [host]
    return list(dict.fromkeys(name_of(name) for name in (*LOCAL, *own, *more)))


def name_of(host: str) -> str:
    """A Host header without its port, in lower case; IPv6 addresses without brackets, in their short form."""
    text = host.strip().lower()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text.rstrip(".")


class AllowedHosts:
    """ASGI middleware that refuses other Host headers, and other Origin headers of WebSockets."""

    def __init__(
        self, app: Callable[[_Scope, _Receive, _Send], Awaitable[None]], hosts: Iterable[str] | None = None
    ) -> None:
        self._app = app
        names = json.loads(os.environ.get(HOSTS, "[]")) if hosts is None else hosts
        self._hosts = frozenset(name_of(name) for name in (*LOCAL, *names))

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] not in ("http", "websocket") or self._allowed(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "host not allowed"})
        else:
            body = b"driftscope: this host name is not allowed; start the app with --allow-host NAME\n"
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    def _allowed(self, scope: _Scope) -> bool:
        hosts = _header(scope, b"host")
        origins = _header(scope, b"origin") if scope["type"] == "websocket" else []
        named = [name_of(host) for host in hosts] + [name_of(urlsplit(origin).netloc) for origin in origins]
        return len(hosts) == 1 and all(name in self._hosts for name in named)


def _header(scope: _Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]
