"""Servers that run on this machine while a test asks them."""

import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def running_server(command: list[str], path: str, log: Path, **options: Any) -> Iterator[str]:
    """Start a server at a free port, wait until it answers at a path, yield its address, and stop it in the end.

    The port is appended to the command; `options` are those of `subprocess.Popen`.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ask = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
    with log.open("w") as file:
        server = subprocess.Popen([*command, "--port", str(port)], stdout=file, stderr=subprocess.STDOUT, **options)
        try:
            deadline = time.monotonic() + 300
            while True:
                assert server.poll() is None and time.monotonic() < deadline, log.read_text()
                try:
                    ask(f"http://127.0.0.1:{port}{path}")
                    break
                except OSError:
                    time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(timeout=30)
