"""Searching in a real browser: hits as one types, the keyboard alone, filters, and an address that holds it all."""

from tests.server.page.browser import Page
from tests.server.page.conftest import OpenPage

HITS = ".hit a[data-hit]"
FOCUSED = "document.activeElement?.dataset?.hit ?? document.activeElement?.id"


def ids(page: Page) -> list[str]:
    found: list[str] = page.run(f"[...document.querySelectorAll('{HITS}')].map((e) => e.dataset.hit)")
    return found


def first_is(page: Page, entry: str) -> None:
    page.until(f"document.querySelector('{HITS}')?.dataset.hit === '{entry}'")


def test_typing_gives_hits_and_the_address_holds_the_words(look: OpenPage) -> None:
    page = look("/")
    assert page.text(".count") == "8 entries, by id"
    page.press("/")
    assert page.run("document.activeElement.id") == "q"
    page.type("online softmax")
    first_is(page, "kernel/softmax/online-row")
    page.until("location.search === '?q=online+softmax' && document.title === 'online softmax · kernel-kb'")
    assert page.text("#said") == page.text(".count")
    searches = [url for url in page.asked() if "/v1/search" in url]
    assert 1 <= len(searches) < len("online softmax")


def test_a_late_answer_to_what_is_no_longer_asked_is_not_shown(look: OpenPage) -> None:
    page = look("/")
    page.run(
        "window.slow = window.fetch; window.fetch = (url, how) => String(url).includes('q=s&') ?"
        " new Promise((yes, no) => { how.signal.addEventListener('abort', () => {"
        " window.given_up = true; no(new DOMException('', 'AbortError')); }); }) : window.slow(url, how); 0"
    )
    page.run("document.getElementById('q').focus()")
    page.type("s")
    page.until("document.querySelector('main').hasAttribute('aria-busy')")
    page.type("oftmax")
    first_is(page, "kernel/softmax/online-row")
    page.settled()
    assert page.run("document.getElementById('q').value") == "softmax"


def test_the_keyboard_moves_opens_and_comes_back(look: OpenPage) -> None:
    page = look("/?q=silu")
    known = ids(page)
    assert len(known) >= 3
    page.press("/")
    page.press("ArrowDown")
    page.press("ArrowDown")
    assert page.run(FOCUSED) == known[1]
    page.press("k")
    assert page.run(FOCUSED) == known[0]
    page.press("ArrowUp")
    assert page.run(FOCUSED) == "q"
    page.press("ArrowDown")
    page.press("j")
    page.press("Enter")
    page.until(f"location.pathname === '/entry/{known[1]}'")
    page.settled()
    assert page.run("document.activeElement.tagName") == "H1"
    page.back()
    page.until("location.search === '?q=silu'")
    page.settled()
    assert ids(page) == known
    page.until(f"({FOCUSED}) === '{known[1]}'")


def test_enter_in_the_field_opens_the_first_hit_and_escape_empties_it(look: OpenPage) -> None:
    page = look("/?q=softmax")
    page.press("/")
    page.press("Enter")
    page.until("location.pathname === '/entry/kernel/softmax/online-row'")
    page.back()
    page.until("document.getElementById('q')?.value === 'softmax'")
    page.settled()
    page.press("/")
    page.press("Escape")
    page.until("location.search === '' && document.querySelector('.count').innerText === '8 entries, by id'")


def test_filters_narrow_are_counted_and_go_back_one_by_one(look: OpenPage) -> None:
    page = look("/")
    page.click('[data-facet="kind=kernel"]')
    page.until("location.search === '?kind=kernel'")
    page.settled()
    assert [one.split("/")[0] for one in ids(page)] == ["kernel"] * 4
    page.click('[data-facet="language=cuda"]')
    page.until("location.search === '?kind=kernel&language=cuda'")
    page.settled()
    assert ids(page) == ["kernel/softmax/online-row"]
    assert page.run("""document.querySelector('[data-facet="language=cuda"]').getAttribute('aria-pressed')""") == "true"
    page.back()
    page.until("location.search === '?kind=kernel'")
    page.settled()
    assert len(ids(page)) == 4
    page.back()
    page.until("location.search === '' && document.querySelectorAll('.hit').length === 8")
    page.click('[data-facet="kind=technique"]')
    page.until("location.search === '?kind=technique' && document.querySelectorAll('.hit').length === 2")
    page.click(".clear")
    page.until("location.search === '' && document.querySelectorAll('.hit').length === 8")


def test_evidence_and_device_are_filters(look: OpenPage) -> None:
    page = look("/?evidence=measured")
    assert ids(page) == ["kernel/silu/one-pass"]
    assert "measured" in page.text(".hit .ladder")
    assert "1.8" in page.text(".hit .best strong")
    page = look("/?device=NVIDIA+B200&runs=true")
    assert page.text(".empty") or all("runs" in one for one in page.texts(".hit .chips"))
    page = look("/?device=NVIDIA+H200&runs=true&q=silu")
    assert "runs · exact" in page.text(".hit .chips")
    assert page.run("document.getElementById('device').value") == "NVIDIA H200"
    assert page.run("document.getElementById('runs').checked") is True
    assert all(one.startswith("runs") for one in page.texts(".hit .chip[class*=transfer]"))


def test_a_family_of_operators_is_a_filter(look: OpenPage) -> None:
    page = look("/")
    names = page.texts(".facets fieldset:nth-of-type(2) .value")
    assert any(name.startswith("norm") for name in names), names
    page.click('[data-facet="family=norm"]')
    page.until("location.search === '?family=norm'")
    page.settled()
    assert ids(page) == ["kernel/rmsnorm/hostile"]


def test_nothing_found_says_why_and_offers_a_way_out(look: OpenPage) -> None:
    page = look("/?q=silu&kind=kernel&language=cuda&operator=silu")
    assert page.text(".count") == "Nothing found"
    assert "language cuda" in page.text(".empty")
    page.click(".empty button")
    page.until("location.search === '?q=silu'")
    page.settled()
    assert ids(page)


def test_what_the_server_refuses_is_said_with_the_next_step(look: OpenPage) -> None:
    page = look("/?device=H1000", wrong=("status of 404", "status of 4"))
    assert "H1000" in page.text(".count")
    assert "Next:" in page.text(".count")
