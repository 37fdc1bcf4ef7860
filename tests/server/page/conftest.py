"""One browser, one small knowledge base and one server for all tests of the page."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")

from tests.server.http.conftest import served
from tests.server.page.browser import Browser, Page
from tests.server.page.store import build
from tests.service.conftest import judged  # noqa: F401 - a genuine record that the store is built from

OpenPage = Callable[..., Page]


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory, judged: dict[str, Any]) -> Iterator[str]:  # noqa: F811
    """Serve a knowledge base that has everything the page shows; return where."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("page")
        patch.setenv("KB_CONFIG_DIR", str(home / "config"))
        patch.setenv("KB_CACHE_DIR", str(home / "cache"))
        (home / "base").mkdir()
        with served(build(home / "base", judged)) as url:
            yield url


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Start one Chromium."""
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def look(browser: Browser, place: str) -> Iterator[OpenPage]:
    """Return a function that opens an address of the page; nothing may go wrong there or be asked of others.

    ``look("/matrix", width=360, dark=True, wrong=("404",))``: complaints that hold a text in ``wrong`` are expected.
    """
    opened: list[tuple[Page, tuple[str, ...]]] = []

    def open_page(path: str, *, wrong: tuple[str, ...] = (), **how: Any) -> Page:  # noqa: ANN401 - as Browser.page
        page = browser.page(**how)
        opened.append((page, wrong))
        return page.open(place + path)

    yield open_page
    for page, wrong in opened:
        unexpected = page.complaints(lambda said, wrong=wrong: not any(one in said for one in wrong))  # type: ignore[misc]
        elsewhere = [url for url in page.asked() if not url.startswith((place, "data:", "about:"))]
        assert (unexpected, elsewhere) == ([], [])
        page.close()
