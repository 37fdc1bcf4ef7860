"""The lexicon says what engineers say, without contradictions."""

import pytest

from kb.models.vocabulary import DTYPES, KINDS, OUTCOMES
from kb.retrieval import lexicon, words
from kb.validators.operators.names import NAMES

SCHEMES = ("workspace_plan", "kv_block_pool", "graph_pool", "all_reduce", "all_gather", "reduce_scatter", "all_to_all",
           "all_reduce_rmsnorm")  # fmt: skip


def meanings(term: str) -> dict[str, float]:
    return {row.canonical: row.weight for row in lexicon.table().get(words.normal(term), ())}


def test_it_has_at_least_eighty_groups_with_another_way_to_say_them() -> None:
    synonyms: dict[str, set[str]] = {}
    for row in lexicon.rows():
        if row.weight == lexicon.SYNONYM:
            synonyms.setdefault(row.canonical, set()).add(row.term)
    assert sum(len(terms) > 1 for terms in synonyms.values()) >= 130


@pytest.mark.parametrize("operator", [*NAMES, *SCHEMES])
def test_every_operator_is_known_by_its_own_name(operator: str) -> None:
    assert [row.facet for row in lexicon.table()[words.normal(operator)] if row.canonical == operator] == ["operator"]


def test_canonical_words_of_closed_vocabularies_are_in_them() -> None:
    by_facet: dict[str, set[str]] = {}
    for row in lexicon.rows():
        by_facet.setdefault(row.facet, set()).add(row.canonical)
    assert by_facet["dtype"] <= set(DTYPES)
    assert by_facet["kind"] <= set(KINDS)
    assert by_facet["outcome"] <= {*OUTCOMES, "negative_result"}


def test_every_term_is_in_normal_form_and_short_enough_to_be_found() -> None:
    for row in lexicon.rows():
        for part in row.term.split(words.PAIR):
            assert part == words.normal(part) or row.weight == lexicon.TOGETHER
        assert 1 <= len(row.term.split()) <= words.MAX_PHRASE


def test_two_canonical_words_never_share_a_token() -> None:
    tokens: dict[str, str] = {}
    for row in lexicon.rows():
        assert tokens.setdefault(words.token(row.canonical), row.canonical) == row.canonical


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("fp4", "nvfp4"),
        ("E2M1", "nvfp4"),
        ("W4A4", "nvfp4"),
        ("bf16", "bfloat16"),
        ("sm_90a", "sm_90"),
        ("SM90", "sm_90"),
        ("NVIDIA H100", "h100"),
        ("GeForce RTX 5090", "rtx_5090"),
        ("MI300X", "mi300x"),
        ("Mixture-of-Experts", "moe"),
        ("flash decoding", "paged_attention_decode"),
        ("gated delta net", "linear_attention"),
        ("RMS norm", "rmsnorm"),
        ("TensorRT-LLM", "tensorrt_llm"),
        ("FA3", "flash_attention_3"),
        ("Segment Anything 3", "sam3.1"),
        ("Qwen3.6-35B-A3B", "qwen3.6-35b-a3b"),
        ("slow at batch 1", "launch_bound"),
        ("an illegal memory access was encountered", "illegal_memory_access"),
        ("CUDA out of memory", "out_of_memory"),
        ("split-k", "split_k"),
        ("programmatic dependent launch", "pdl"),
        ("single stream", "decode"),
        ("time to first token", "prefill"),
        ("allreduce", "all_reduce"),
    ],
)
def test_engineers_words_are_synonyms(said: str, meant: str) -> None:
    assert meanings(said)[meant] == lexicon.SYNONYM


@pytest.mark.parametrize(
    ("said", "near"),
    [("h100", "hopper"), ("b200", "sm_100"), ("moe_grouped_gemm_nvfp4", "moe"), ("rope_kv_append", "kv_append")],
)
def test_a_member_implies_its_family(said: str, near: str) -> None:
    assert meanings(said)[near] == lexicon.IMPLIED


def test_an_ambiguous_word_weighs_less() -> None:
    assert meanings("fp4")["mxfp4"] == lexicon.WEAK < meanings("fp4")["nvfp4"]


def test_a_symptom_leads_to_what_helps() -> None:
    assert {"split_k", "decode", "cuda_graph"} <= set(meanings("slow at batch 1"))
    assert "swizzle" in meanings("bank conflicts")
    assert "online_softmax" in meanings("nan after a few steps")


def test_a_word_in_two_facets_is_refused() -> None:
    with pytest.raises(ValueError, match="stands in a and in b"):
        lexicon.compile_rows({"a": {"word": []}, "b": {"word": []}})


def test_a_relation_to_nowhere_is_refused() -> None:
    with pytest.raises(ValueError, match="no facet has"):
        lexicon.compile_rows({"a": {"word": []}, "implies": {"word": ["wrod"]}})


def test_a_term_without_a_word_is_refused() -> None:
    with pytest.raises(ValueError, match="has no word"):
        lexicon.compile_rows({"a": {"word": ["—"]}})


def test_every_pair_is_found_in_either_order() -> None:
    assert words.pair("nvfp4", "moe") == words.pair("moe", "nvfp4")
    assert {row.canonical for row in lexicon.table()[words.pair("nvfp4", "moe")]} == {"moe_grouped_gemm_nvfp4"}


def test_a_pair_with_an_unknown_word_is_refused() -> None:
    with pytest.raises(ValueError, match="no facet has"):
        lexicon.compile_rows({"a": {"word": []}, "together": {"word": ["word + wrod"]}})


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("tree allreduce", "tree_algorithm"),
        ("quantised all-reduce", "quantized_comm"),
        ("across nodes", "hierarchical"),
        ("not a power of two", "halving_doubling"),
        ("TLSF", "constant_time"),
        ("drifting sizes", "exact_size_cache"),
        ("system prompt", "prefix_sharing"),
        ("max_seq_len", "contiguous_kv"),
        ("without Triton", "cuda"),
    ],
)
def test_an_approach_is_known_besides_its_operator(said: str, meant: str) -> None:
    assert meanings(said)[meant] == lexicon.SYNONYM


@pytest.mark.parametrize(
    "said", ["tree allreduce", "ring all-reduce", "quantised allreduce", "hierarchical all-reduce"]
)
def test_who_names_an_approach_names_the_operator_as_well(said: str) -> None:
    assert meanings(said)["all_reduce"] == lexicon.SYNONYM
