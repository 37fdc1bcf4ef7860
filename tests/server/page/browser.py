"""A real Chromium, driven through its debugging pipe: pages, keys, and all that a page asks for or complains about."""

import base64
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE_S = 60.0
"""How long anything may take; it is only waited for as long as it does."""
_FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--disable-gpu",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
    "--disable-extensions", "--disable-dev-shm-usage", "--mute-audio", "--hide-scrollbars",
    "--force-color-profile=srgb", "--disable-domain-reliability",
    "--disable-features=Translate,OptimizationHints,MediaRouter", "--no-pings",
)  # fmt: skip
_KEYS: Mapping[str, tuple[str, int, str]] = {
    "Enter": ("Enter", 13, "\r"), "Escape": ("Escape", 27, ""), "ArrowDown": ("ArrowDown", 40, ""),
    "ArrowUp": ("ArrowUp", 38, ""), "ArrowLeft": ("ArrowLeft", 37, ""), "ArrowRight": ("ArrowRight", 39, ""),
    "Tab": ("Tab", 9, ""), "/": ("Slash", 191, "/"), "?": ("Slash", 191, "?"), "j": ("KeyJ", 74, "j"),
    "k": ("KeyK", 75, "k"), " ": ("Space", 32, " "), "Home": ("Home", 36, ""), "End": ("End", 35, ""),
}  # fmt: skip


class Browser:
    """One headless Chromium with a profile of its own."""

    def __init__(self, profile: Path) -> None:
        """Start it.

        Args:
            profile: An empty folder.

        Raises:
            RuntimeError: There is no Chromium on this machine.
        """
        found = next(filter(None, map(shutil.which, NAMES)), None)
        if found is None:
            raise RuntimeError("the web page is tested in a real browser: apt-get install -y chromium")
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        flags = [*_FLAGS, f"--user-data-dir={profile}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        # The browser reads orders from descriptor 3 and answers on 4.
        shell = ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash"]
        self._process = subprocess.Popen(
            [*shell, found, *flags],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._news = threading.Condition()
        self._answers: dict[int, dict[str, Any]] = {}
        self._events: dict[str, list[dict[str, Any]]] = {}
        self._next = 0
        self._gone = False
        self.idle: list[Page] = []
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._out)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)
        os.close(self._in)

    def send(self, method: str, session: str | None = None, **parameters: object) -> dict[str, Any]:
        """Give an order and return what comes of it.

        Raises:
            RuntimeError: The browser refuses, or is gone.
        """
        with self._news:
            self._next += 1
            number = self._next
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        with self._news:
            self._news.wait_for(lambda: number in self._answers or self._gone, PATIENCE_S)
            answer = self._answers.pop(number, None)
        if answer is None or "error" in answer:
            raise RuntimeError(f"{method}: {answer and answer['error']}")
        found: dict[str, Any] = answer["result"]
        return found

    def events(self, session: str) -> list[dict[str, Any]]:
        """Return what a page told of so far."""
        with self._news:
            return list(self._events.get(session, ()))

    def page(self, *, width: int = 1280, height: int = 900, dark: bool = False, still: bool = True) -> "Page":
        """Open an empty page that knows nothing of others; one that was closed is used again.

        Args:
            width: Of the window, CSS pixels.
            height: Of the window.
            dark: Whether the system prefers dark colours.
            still: Whether the system prefers less motion.
        """
        page = self.idle.pop() if self.idle else self._made()
        page.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        motion = {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"}
        page.send("Emulation.setEmulatedMedia", features=[scheme, motion])
        return page

    def _made(self) -> "Page":
        context = self.send("Target.createBrowserContext")["browserContextId"]
        target = self.send("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            page.send(f"{domain}.enable")
        return page

    def _read(self) -> None:
        kept = b""
        while chunk := os.read(self._in, 1 << 20):
            kept += chunk
            *whole, kept = kept.split(b"\0")
            with self._news:
                for one in whole:
                    message = json.loads(one)
                    if "id" in message:
                        self._answers[message["id"]] = message
                    else:
                        self._events.setdefault(message.get("sessionId", ""), []).append(message)
                self._news.notify_all()
        with self._news:
            self._gone = True
            self._news.notify_all()


class Page:
    """One page."""

    def __init__(self, browser: Browser, session: str) -> None:
        """Keep what it is driven through; made by :meth:`Browser.page`."""
        self._began = 0
        self._browser = browser
        self._session = session

    def send(self, method: str, **parameters: object) -> dict[str, Any]:
        """Give the page an order."""
        return self._browser.send(method, self._session, **parameters)

    def resize(self, width: int, height: int) -> None:
        """Make the window as large as told."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def open(self, url: str) -> Self:
        """Go to an address and wait until the page shows its answer."""
        self.send("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")
        return self.settled()

    def settled(self) -> Self:
        """Wait until nothing is loading."""
        self.until("document.querySelector('main')?.children.length && !document.querySelector('[aria-busy]')")
        return self

    def run(self, script: str) -> Any:  # noqa: ANN401 - any JSON
        """Return the value of an expression in the page.

        Raises:
            RuntimeError: It throws.
        """
        found = self.send(
            "Runtime.evaluate",
            expression=script,
            awaitPromise=True,
            returnByValue=True,
            allowUnsafeEvalBlockedByCSP=False,
        )
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["exception"].get("description", "an error"))
        return found["result"].get("value")

    def until(self, script: str) -> Any:  # noqa: ANN401 - any JSON
        """Wait until an expression is true; return its value.

        Raises:
            AssertionError: It does not become so.
        """
        end = time.monotonic() + PATIENCE_S
        value: Any = None
        while time.monotonic() < end:
            try:
                value = self.run(script)
            except RuntimeError as error:  # between two documents there is none
                value = str(error) and None
            if value or value == {}:  # an element is an empty object here
                return value
            time.sleep(0.03)
        text = self.run("document.body.innerText")
        raise AssertionError(f"never true: {script}\nthe page says:\n{text[:3000]}")

    def type(self, text: str) -> None:
        """Type text, a key after another."""
        for character in text:
            self.send("Input.dispatchKeyEvent", type="keyDown", key=character, text=character)
            self.send("Input.dispatchKeyEvent", type="keyUp", key=character)

    def press(self, key: str) -> None:
        """Press one key."""
        code, number, text = _KEYS[key]
        common = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        down = "keyDown" if text else "rawKeyDown"
        self.send("Input.dispatchKeyEvent", type=down, **common, **({"text": text} if text else {}))
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def click(self, selector: str) -> None:
        """Click in the middle of an element, as a mouse does."""
        place = self.until(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null;"
            " e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def close(self) -> None:
        """Leave the page and forget all that it stored and told."""
        origin = self.run("location.origin")
        # What a tab keeps for itself is no storage of an origin; where nothing may be stored, this throws.
        self.run("try { sessionStorage.clear() } catch {} 0")
        self.send("Page.navigate", url="about:blank")
        self.until("location.href === 'about:blank'")
        self.send("Storage.clearDataForOrigin", origin=origin, storageTypes="all")
        self._began = len(self._browser.events(self._session))
        self._browser.idle.append(self)

    def _events(self) -> list[dict[str, Any]]:
        return self._browser.events(self._session)[self._began :]

    def back(self) -> None:
        """Go one step back in the history."""
        self.run("history.back()")

    def text(self, selector: str) -> str:
        """Return the text of an element, empty if there is none."""
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def texts(self, selector: str) -> list[str]:
        """Return the texts of all elements that fit."""
        found: list[str] = self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.innerText)")
        return found

    def asked(self) -> list[str]:
        """Return every address that the page asked for."""
        sent = [one for one in self._events() if one["method"] == "Network.requestWillBeSent"]
        return [str(one["params"]["request"]["url"]) for one in sent]

    def complaints(self, keep: Callable[[str], bool] = lambda _: True) -> list[str]:
        """Return all errors and warnings: of scripts, of the console, of the policy."""
        found = []
        for one in self._events():
            method, said = one["method"], one["params"]
            if method == "Runtime.exceptionThrown":
                found.append(json.dumps(said["exceptionDetails"])[:500])
            elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
                found.append(json.dumps(said["args"])[:500])
            elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
                found.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")
            elif method == "Audits.issueAdded" and "Policy" in said["issue"]["code"]:
                found.append(json.dumps(said["issue"])[:500])
        return [one for one in found if keep(one)]

    def shot(self, path: Path, *, whole: bool = False) -> None:
        """Save what the page looks like as PNG."""
        made = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(made["data"]))
