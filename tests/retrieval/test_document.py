"""A document carries the canonical words of what its entry says."""

from kb.retrieval import document, words

FACTS = {
    "title": "FP4 grouped gemm for Hopper",
    "summary": "Decode in registers.",
    "outcome": "works",
    "operator": "moe_grouped_gemm_nvfp4",
    "dtypes": ["nvfp4"],
    "requires": {"arch": ["sm_90a"], "features": ["wgmma"], "packages": {"triton": ">=3.4"}},
    "symbols": {"profiler_names": ["fused_moe_kernel"]},
    "source": {"origin": "slower place"},
}


def test_facets_come_from_all_facts_in_canonical_form() -> None:
    facets = document.build("kernel/moe_grouped_gemm_nvfp4/x", FACTS, "").facets.split()
    assert {"moe_grouped_gemm_nvfp4", "moe", "grouped_gemm", "nvfp4", "sm_90", "hopper", "wgmma", "fused_moe"} <= set(
        facets
    )
    mark = facets.index(words.MENTIONS)
    assert facets[:mark] == sorted(facets[:mark])
    assert facets[mark + 1 :] == sorted(facets[mark + 1 :])


def test_what_an_entry_is_about_stands_before_what_it_mentions() -> None:
    about, _, mentioned = document.build("kernel/moe_grouped_gemm_nvfp4/x", FACTS, "").facets.partition(words.MENTIONS)
    assert {"moe_grouped_gemm_nvfp4", "nvfp4", "hopper"} <= set(about.split())
    assert {"wgmma", "fused_moe"} <= set(mentioned.split())
    assert not set(about.split()) & set(mentioned.split())


def test_an_operator_is_searchable_as_one_word_and_in_its_parts() -> None:
    tags = document.build("kernel/moe_grouped_gemm_nvfp4/x", FACTS, "").tags
    assert "moe_grouped_gemm_nvfp4" in tags
    assert "moe grouped gemm nvfp4" in tags


def test_a_word_in_prose_makes_no_negative_result() -> None:
    facts = {**FACTS, "summary": "Others are slower and had no gain."}
    assert "regression" not in document.build("kernel/gemm/x", facts, "slower").facets.split()


def test_a_negative_result_is_marked_by_its_outcome() -> None:
    facets = document.build("technique/gemm/x", {**FACTS, "outcome": "no_effect"}, "").facets.split()
    assert {"no_effect", "negative_result"} <= set(facets)


def test_claims_and_negative_findings_are_text() -> None:
    facts = {
        **FACTS,
        "negative": {"hypothesis": "atomics are cheap", "condition": "always", "effect": "thrashing"},
        "claims": [{"metric": "latency_us", "baseline": "SGLang 0.5", "device": "NVIDIA B200"}],
    }
    text = document.build("kernel/gemm/x", facts, "# Readme body").text
    for piece in ("atomics are cheap", "thrashing", "latency_us", "SGLang 0.5", "Readme body"):
        assert piece in text


def test_the_operator_table_of_a_target_is_no_facet() -> None:
    facts = {
        "title": "A model",
        "summary": "x",
        "target": {"model": "m", "operators": [{"operator": "rmsnorm", "name": "n"}]},
    }
    built = document.build("target/m/x", facts, "")
    assert "rmsnorm" not in built.facets.split()
    assert "rmsnorm" in built.text


def test_an_empty_entry_has_an_empty_title() -> None:
    assert document.build("kernel/a/b", {}, "").title == ""


def test_questions_are_text_but_what_people_see_is_not_what_the_entry_is_about() -> None:
    facts = {**FACTS, "questions": ["why is paged attention slower on MI300X after an upgrade"]}
    built, without = document.build("kernel/gemm/x", facts, ""), document.build("kernel/gemm/x", FACTS, "")
    assert "slower on MI300X after an upgrade" in built.text
    assert (built.facets, built.tags, built.title) == (without.facets, without.tags, without.title)
