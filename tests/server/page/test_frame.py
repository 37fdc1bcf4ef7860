"""The frame around all pages: overviews, colours, phones, readability, what is shown where there is no answer."""

from pathlib import Path

import pytest

from kb.config import Root
from tests.server.http.conftest import served
from tests.server.page.browser import Browser, Page
from tests.server.page.conftest import OpenPage
from tests.server.page.store import TIMED

PAGES = (
    "/",
    "/?q=silu&device=H200",
    f"/entry/{TIMED}?old=1&new=2",
    "/entry/technique/gemm/router",
    "/entry/kernel/rmsnorm/hostile",
    "/matrix",
    "/targets",
    "/target/small/bf16-h200",
    "/campaigns",
)
_CONTRAST = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const parse = (text) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const found = parse(getComputedStyle(e).backgroundColor);
      if (found[3] === 255) return found;
    }
    return [255, 255, 255, 255];
  };
  const left = 'svg, .unseen, :disabled, .check:has(:disabled), option, .skip';
  const bad = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    const text = walker.currentNode.data.trim();
    if (!text || !e.getBoundingClientRect().width || !e.checkVisibility() || e.closest(left)) continue;
    const [low, high] = [light(parse(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => x - y);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) bad.push([text.slice(0, 40), e.className, ratio.toFixed(2)]);
  }
  return bad; })()"""


_NAMELESS = """[...document.querySelectorAll('a[href], button, input, select, [tabindex="0"], svg[role]')]
  .filter((e) => !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length))
  .map((e) => e.outerHTML.slice(0, 90))"""


def visit(page: Page, path: str) -> None:
    """Go to an address as a link does, without loading everything anew."""
    page.run(f"history.pushState({{}}, '', '/none'); history.pushState({{}}, '', '{path}')")
    page.run("dispatchEvent(new PopStateEvent('popstate'))")
    page.until(f"document.querySelector('main').dataset.at === '{path}'")
    page.settled()


_TWICE = """(() => {
  const all = [...document.querySelectorAll('[id]')].map((e) => e.id);
  return all.filter((id, at) => all.indexOf(id) !== at);
})()"""
_LANDMARKS = "['header', 'nav', 'main', 'footer'].map((name) => !!document.querySelector(name))"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_is_readable_everything_has_a_name_and_nothing_is_wider_than_a_phone(
    look: OpenPage, *, dark: bool
) -> None:
    page = look("/", width=360, height=740, dark=dark)
    for path in PAGES:
        visit(page, path)
        assert page.run("document.documentElement.scrollWidth") == 360, path
        assert page.run(_CONTRAST) == [], path
        assert page.run("document.querySelectorAll('main h1').length") == 1, path
        assert page.run("document.title").endswith("kernel-kb"), path
        assert page.run(_NAMELESS) == [], path
        assert page.run(_TWICE) == [], path
        assert page.run(_LANDMARKS) == [True] * 4, path
    page.resize(1280, 900)
    assert page.run("document.documentElement.scrollWidth") == 1280


def test_colours_follow_the_system_and_the_switch(look: OpenPage) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light, dark = look("/targets"), look("/targets", dark=True)
    assert light.run(ground) == "rgb(250, 250, 248)"
    assert dark.run(ground) == "rgb(16, 18, 21)"
    light.click("#theme")
    light.click("#theme")
    assert light.run(ground) == "rgb(16, 18, 21)"
    light.run("location.reload()")
    light.until(f"document.body && document.documentElement.dataset.theme === 'dark' && {ground} === 'rgb(16, 18, 21)'")


def test_less_motion_is_respected_and_focus_is_seen(look: OpenPage) -> None:
    page = look("/")
    page.run("document.querySelector('main').append(Object.assign(document.createElement('div'), {className: 'bone'}))")
    assert page.run("getComputedStyle(document.querySelector('.bone')).animationName") == "none"
    page.press("Tab")
    page.press("Tab")
    assert page.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.press("?")
    assert page.run("document.getElementById('help').open") is True
    page.press("Escape")
    page.until("!document.getElementById('help').open")


def test_the_matrix_says_how_entries_reach_devices(look: OpenPage) -> None:
    page = look("/matrix?kind=kernel&device=NVIDIA+H200&device=cpu")
    assert page.texts(".matrix thead th") == ["entry", "H200", "cpu"]
    rows = page.run("Object.fromEntries([...document.querySelectorAll('.matrix tbody tr')].map((r) =>"
                    " [r.querySelector('a').dataset.hit, r.querySelector('td').title]))")  # fmt: skip
    assert len(rows) == 4
    assert rows[TIMED].startswith("exact: measured on this very device; measured, fresh")
    assert rows["kernel/silu/two-rows"].startswith("recompile")


def test_a_target_has_its_operators_their_share_and_a_plan(look: OpenPage) -> None:
    page = look("/target/small/bf16-h200")
    shown = page.text("main")
    for part in (
        "MLP activation",
        "60 %",
        "router softmax",
        "Seed plan",
        "SiLU in one pass",
        "runs · exact",
        "Staging a row",
    ):
        assert part in shown
    page.run("document.getElementById('plan-use').value = 'research';"
             "document.getElementById('plan-use').dispatchEvent(new Event('change'))")  # fmt: skip
    page.until("location.search === '?use=research'")


def test_campaigns_have_results_and_costs(look: OpenPage) -> None:
    page = look("/campaigns")
    shown = page.text("main")
    for part in ("2 days", "5 million tokens", "200 tokens/s", "100 tokens/s", TIMED, "target/small/bf16-h200"):
        assert part in shown


def test_what_is_not_there_is_said(look: OpenPage) -> None:
    page = look("/entry/kernel/silu/one-pas", wrong=("404",))
    assert page.text("h1") == "Not found"
    assert TIMED in page.text(".failure")
    assert look("/nowhere", wrong=("404",)).text("h1") == "Not found"


def test_a_server_that_is_away_is_said_and_noticed_when_it_is_back(look: OpenPage) -> None:
    page = look("/?q=silu", wrong=("ERR_INTERNET_DISCONNECTED",))
    page.send("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1)
    page.click("#nav a[href='/matrix']")
    page.until("document.querySelector('h1')?.innerText === 'The server does not answer'")
    assert "trying again" in page.text("#banner")
    page.send("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1)
    page.until("document.querySelector('h1')?.innerText === 'Entries × devices'")
    assert page.run("document.getElementById('banner').hidden") is True


def test_a_token_is_asked_for_and_sent(look: OpenPage) -> None:
    page = look("/targets")
    page.run(
        "window.real = window.fetch; window.fetch = (url, how) => how.headers.Authorization === 'Bearer secret' ?"
        ' window.real(url, how) : Promise.resolve(new Response(\'{"detail": "a token"}\', { status: 401 })); 0'
    )
    page.click("#nav a[href='/campaigns']")
    page.until("document.querySelector('h1')?.innerText === 'This server wants a token'")
    page.run("document.getElementById('token').focus()")
    page.type("secret")
    page.run("window.fetch = ((check) => (url, how) => { window.sent = how.headers.Authorization;"
             " return window.real(url, { ...how, headers: {} }); })(window.fetch); 0")  # fmt: skip
    page.press("Enter")
    page.until("document.querySelector('h1')?.innerText === 'Campaigns'")
    assert page.run("window.sent") == "Bearer secret"
    assert page.run("localStorage.getItem('token')") is None


def test_an_empty_knowledge_base_says_how_to_fill_it(browser: Browser, root: Root) -> None:
    with served(root) as url:
        page = browser.page()
        assert "This knowledge base has no entries yet." in page.open(url).text(".empty")
        assert "No targets yet" in page.open(f"{url}/targets").text(".empty")
        assert "No campaigns yet" in page.open(f"{url}/campaigns").text(".empty")
        assert "No entry fits" in page.open(f"{url}/matrix").text(".empty")
        assert page.complaints() == []
        page.close()


def test_addresses_that_make_no_sense_are_answered_calmly(look: OpenPage) -> None:
    page = look("/entry/kernel/%E0%A4%A/x", wrong=("status of 4",))
    assert page.text("h1") == "Not found"
    for path in ("/entry/%3Cscript%3E/a/b", "/?kind=%00", "/?family=none", "/?limit=9&evil=1", "/matrix?device=x"):
        visit(page, path)
        assert page.text("main")
        assert "made a mistake" not in page.text("main")


def test_without_a_browser_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="apt-get install -y chromium"):
        Browser(tmp_path)
