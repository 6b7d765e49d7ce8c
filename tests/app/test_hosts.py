"""Host names that the app answers to: the middleware alone, and hostile handshakes with the app as it is started."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driftscope.app.hosts import AllowedHosts, allowed_hosts, name_of

SECONDS = 240


def answered(kind: str, headers: dict[str, str], hosts: tuple[str, ...] = ()) -> tuple[bool, list[dict[str, Any]]]:
    """Whether a request with these headers reaches the app, and what is sent where it does not."""
    reached: list[bool] = []
    sent: list[dict[str, Any]] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        reached.append(True)

    async def receive() -> dict[str, Any]:
        return {"type": f"{kind}.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": kind, "headers": [(name.encode(), value.encode()) for name, value in headers.items()]}
    asyncio.run(AllowedHosts(inner, hosts)(scope, receive, send))
    return bool(reached), sent


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize("host", ["localhost:8501", "127.0.0.1", "[::1]:8501", "LOCALHOST.", "box.lan:80"])
def test_own_names_are_answered(kind: str, host: str) -> None:
    assert answered(kind, {"host": host}, ("box.lan",))[0]


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:8501", "127.0.0.1.nip.io", "", "box.lan"])
def test_other_names_are_refused(host: str) -> None:
    reached, sent = answered("http", {"host": host})
    assert not reached
    assert sent[0]["status"] == 403
    reached, sent = answered("websocket", {"host": host, "origin": f"http://{host}"})
    assert not reached
    assert sent == [{"type": "websocket.close", "code": 1008, "reason": "host not allowed"}]


def test_a_websocket_of_a_foreign_page_is_refused() -> None:
    assert not answered("websocket", {"host": "localhost:8501", "origin": "http://evil.example"})[0]
    assert answered("websocket", {"host": "localhost:8501", "origin": "http://127.0.0.1:8501"})[0]
    assert not answered("http", {})[0], "a request without a Host"


def test_the_names_of_a_host() -> None:
    assert allowed_hosts("127.0.0.1") == ["localhost", "127.0.0.1", "::1"]
    assert allowed_hosts("0.0.0.0", ["Box.LAN:8501"]) == ["localhost", "127.0.0.1", "::1", "box.lan"]
    assert allowed_hosts("192.168.0.7")[-1] == "192.168.0.7"
    assert name_of("[0:0::1]:80") == "::1"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """`driftscope app` on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = int(free.getsockname()[1])
    folder = tmp_path_factory.mktemp("hosts")
    environment = {**os.environ, "DRIFTSCOPE_CACHE": str(folder / "cache")}
    environment.pop("DISPLAY", None)
    words = [str(Path(sys.executable).with_name("driftscope")), "app", "--port", str(number), "--allow-host", "box.lan"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(words, stdout=log, stderr=log, env=environment, cwd=folder)
        try:
            end = time.monotonic() + SECONDS
            while server.poll() is None and time.monotonic() < end:
                with socket.socket() as ask:
                    if ask.connect_ex(("127.0.0.1", number)) == 0:
                        break
                time.sleep(0.2)
            else:
                raise AssertionError(f"the app did not start: {(folder / 'log').read_text()}")
            yield number
        finally:
            server.terminate()
            server.wait(60)


def status(port: int, path: str, host: str, *more: str) -> int:
    """The status with which a request is answered."""
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", *more, "", ""]
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as ask:
        ask.sendall("\r\n".join(lines).encode())
        return int(ask.recv(4096).split(b" ", 2)[1])


@pytest.mark.slow
def test_hostile_handshakes_are_refused_by_the_app(port: int) -> None:
    upgrade = (
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    )
    own = f"127.0.0.1:{port}"
    assert status(port, "/_stcore/health", own) == 200
    assert status(port, "/_stcore/health", "box.lan") == 200
    assert status(port, "/_stcore/health", "evil.example") == 403
    assert status(port, "/", f"evil.example:{port}") == 403
    stream = "/_stcore/stream"
    assert status(port, stream, own, *upgrade, f"Origin: http://{own}") == 101
    for host, origin in (
        (f"evil.example:{port}", f"http://evil.example:{port}"),
        (f"evil.example:{port}", f"http://{own}"),
        (own, "http://evil.example"),
    ):
        assert status(port, stream, host, *upgrade, f"Origin: {origin}") == 403
