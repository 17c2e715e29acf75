"""Chromium, for tests that look at pages."""

import base64
import contextlib
import json
import os
import shlex
import shutil
import subprocess

import pytest

needs_browser = pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")


class Browser:
    """Chromium by its DevTools protocol over pipes: JSON messages that end in a zero byte."""

    def __init__(self, profile):
        (read, self._send), (self._receive, write) = os.pipe(), os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
        options += ["--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"]
        command = ["chromium", *options, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {shlex.join(command)} 3<&{read} 4>&{write}"],
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self.events, self._rest, self._number, self._session = [], b"", 0, {}
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(info["targetId"] for info in targets if info["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters, **self._session}
        os.write(self._send, json.dumps(message).encode() + b"\0")
        return self._wait(lambda message: message.get("id") == self._number)["result"]

    def _wait(self, wanted):
        while True:
            while b"\0" not in self._rest:
                data = os.read(self._receive, 2**16)
                assert data, "the browser has ended"
                self._rest += data
            text, _, self._rest = self._rest.partition(b"\0")
            message = json.loads(text)
            self.events.append(message)
            if wanted(message):
                return message

    def show(self, path, width, scheme="light"):
        """Load the page at this width and return what it asked for and complained of."""
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Emulation.setEmulatedMedia", features=media)
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        if not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self._wait(lambda message: message.get("method") == "Page.loadEventFired")
        requests = [
            e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"
        ]
        kinds = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        return requests, [event["params"] for event in self.events if event.get("method") in kinds]

    def value(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self):
        with contextlib.suppress(OSError):
            os.write(self._send, b'{"id": 0, "method": "Browser.close"}\0')
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._send)
        os.close(self._receive)
