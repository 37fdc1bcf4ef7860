"""The page of an entry in a real browser: text is text, code is coloured, versions, evidence, plots and relatives."""

from tests.server.page.conftest import OpenPage
from tests.server.page.store import TIMED, TOKENS


def test_stored_text_does_nothing_but_stand_there(look: OpenPage) -> None:
    page = look("/entry/kernel/rmsnorm/hostile")
    assert page.text("h1") == f"<b>Bold</b> & <script> {'W' * 50}"
    shown = page.text("#about")
    for part in (
        "<script>window.broken = 'script'",
        "<img src=x onerror=",
        "<svg onload=",
        "javascript:",
        "<b>two</b>",
    ):
        assert part in shown
    page.run("document.querySelectorAll('main a, main button').forEach((e) => e.focus())")
    assert page.run("window.broken ?? null") is None
    assert page.run("document.querySelectorAll('main script, main img, main iframe, main svg[onload]').length") == 0
    links = page.run("[...document.querySelectorAll('#about a')].map((e) => [e.innerText, e.href, e.rel])")
    rel = "noopener noreferrer nofollow external"
    pages = [["a picture", "http://evil.example/pixel.png", rel], ["plain link", "https://example.org/paper", rel]]
    assert links == pages
    listed = look("/?q=bold")
    assert "<b>Bold</b> & <script>" in listed.text(".hits")


def test_the_browser_itself_refuses_markup_out_of_text(look: OpenPage) -> None:
    page = look("/entry/kernel/rmsnorm/hostile", wrong=("This document requires", "Policy", "policy"))
    said = page.run(
        "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'set'; } catch (e) { return e.name; } })()"
    )
    assert said == "TypeError"
    said = page.run("(() => { try { return eval('1'); } catch (e) { return e.name; } })()")
    assert said == "EvalError"
    page.run("document.querySelector('h1').setAttribute('style', 'color: red')")
    assert page.run("getComputedStyle(document.querySelector('h1')).color") != "rgb(255, 0, 0)"


def test_code_is_coloured_and_copied_without_line_numbers(look: OpenPage) -> None:
    page = look(f"/entry/{TIMED}")
    lines = page.run("document.querySelector('#code code').textContent")
    assert lines == "def run(x):\n    y = x * x.sigmoid()\n    return y\n"
    assert page.texts("#code .hl-k") == ["def", "return"]
    assert page.text("#code .hl-f") == "run"


def test_two_versions_are_compared(look: OpenPage) -> None:
    page = look(f"/entry/{TIMED}?old=1&new=2#versions")
    assert page.texts("#versions tbody th") == ["2", "1"]
    page.until("document.querySelector('.diff .plus')")
    added = page.texts(".diff .plus .text")
    assert "    y = x * x.sigmoid()" in added
    assert "version = 2" in added
    assert "    return x" in page.texts(".diff .minus .text")
    old = look(f"/entry/{TIMED}?version=1")
    assert "This is version 1, from git" in old.text(".note")
    assert "return x" in old.text("#code code")


def test_evidence_names_level_freshness_device_and_toolchain(look: OpenPage) -> None:
    page = look(f"/entry/{TIMED}")
    shown = page.text("#evidence")
    for part in ("NVIDIA H200", "measured", "fresh", "triton 3.6.0", "torch.nn.functional.silu", "kb bundle"):
        assert part in shown
    record = page.run("document.querySelector('#evidence a[href*=records]').getAttribute('href')")
    found = page.run(f"fetch('{record}').then((a) => a.json()).then((r) => r.entry.id)")
    assert found == TIMED


def test_plots_have_every_figure_its_unit_and_a_table(look: OpenPage) -> None:
    page = look(f"/entry/{TIMED}")
    page.until("document.querySelectorAll('#figures .plot svg').length === 2")
    labels = page.run("[...document.querySelectorAll('#figures .plot .label')].map((e) => e.textContent)")
    assert labels == ["num tokens", "latency, µs", "FLOP a byte that must be moved", "TFLOP/s"]
    counts = page.run(
        "[...document.querySelectorAll('#figures .plot')].map((e) => e.querySelectorAll('[data-point]').length)"
    )
    assert counts == [2 * 2 * len(TOKENS), 2 * len(TOKENS)]
    ticks = page.run("[...document.querySelectorAll('#figures .plot')][0].textContent")
    assert "16,384" in ticks
    rows = page.run(
        "[...document.querySelectorAll('#figures figure')].map((e) => e.querySelectorAll('tbody tr').length)"
    )
    assert rows == [2 * len(TOKENS), 2 * len(TOKENS)]
    cells = page.run("document.querySelector('#figures tbody').textContent")
    assert "num_tokens 16,384" in cells
    assert "77.36" in cells  # 16,384 × 4,096 × 4 bytes at 4,000 GB/s, × 1.12, and 2.2 µs to launch
    steep = page.run(
        "[...document.querySelectorAll('#figures .tone-0.series')[0].querySelectorAll('[data-point]')]"
        ".map((e) => e.getAttribute('transform').match(/[\\d.]+/g).map(Number))"
    )
    assert [x for x, _ in steep] == sorted(x for x, _ in steep)
    assert [y for _, y in steep] == sorted((y for _, y in steep), reverse=True)


def test_a_plot_is_read_with_arrow_keys(look: OpenPage) -> None:
    page = look(f"/entry/{TIMED}")
    page.until("document.querySelector('#figures .plot svg')")
    page.run("document.querySelector('#figures .plot svg').focus()")
    page.press("ArrowRight")
    first = page.text("#figures .tip")
    assert "num tokens 16" in first.replace("\n", " ")
    assert "µs" in first
    page.press("ArrowRight")
    assert page.text("#figures .tip") != first
    assert "µs" in page.text("#said")
    page.press("Escape")
    assert page.run("document.querySelector('#figures .tip').hidden") is True


def test_published_figures_that_differ_in_one_size_are_curves(look: OpenPage) -> None:
    page = look("/entry/technique/gemm/router")
    assert "No measurements yet" in page.text("#figures")
    page.until("document.querySelector('#figures .plot svg')")
    assert page.run("document.querySelectorAll('#figures [data-point]').length") == 8
    assert page.run("document.querySelector('#figures .plot .label').textContent") == "M"
    assert "NVIDIA H100 80GB HBM3" in page.run("document.querySelector('#figures tbody').textContent")


def test_without_figures_it_says_how_to_get_some(look: OpenPage) -> None:
    page = look("/entry/kernel/softmax/online-row")
    assert "No measurements yet" in page.text("#figures")
    assert "kb validate kernel/softmax/online-row" in page.text("#figures")
    assert page.run("document.querySelectorAll('#figures svg').length") == 0


def test_a_negative_result_says_what_was_hoped_for(look: OpenPage) -> None:
    page = look("/entry/technique/numerics/shared-memory-row")
    assert "Shared memory would hide the latency" in page.text(".came")
    assert "Rows below 16 KiB" in page.text(".came")


def test_relatives_are_a_graph_of_links_and_a_list(look: OpenPage) -> None:
    page = look(f"/entry/{TIMED}")
    links = page.run("[...document.querySelectorAll('.graph a')].map((e) => e.getAttribute('href'))")
    assert set(links) == {"/entry/kernel/silu/two-rows", "/entry/campaign/small/first"}
    relations = page.run("[...document.querySelectorAll('#lineage tbody tr')].map((e) => e.textContent)")
    assert any("mutated" in one for one in relations)
    page.run("document.querySelector('.graph a[href*=two-rows]').focus()")
    page.press("Enter")
    page.until("location.pathname === '/entry/kernel/silu/two-rows'")
