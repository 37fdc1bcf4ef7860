"""What the body of a CUDA kernel does, in the words that the features of Triton kernels use."""

import re

_WORDS: tuple[tuple[str, str], ...] = (
    (r"\b(wmma|wgmma|tcgen05|mma_\w*|__builtin_amdgcn_mfma\w*|ldmatrix\w*|mfma\w*)\b|mma\.sync", "dot"),
    (r"\b(__expf|expf|exp2f|hexp|h2exp|exp|exp2|fast_exp|__exp10f)\s*\(|ex2\.approx", "exp"),
    (r"\b(rsqrtf|rsqrt|hrsqrt|__frsqrt_rn)\s*\(|rsqrt\.approx", "rsqrt"),
    (r"\b(sqrtf|sqrt|hsqrt|__fsqrt_rn)\s*\(", "sqrt"),
    (r"\b(tanhf|tanh|htanh)\s*\(|tanh\.approx", "tanh"),
    (r"\b(erff|erf)\s*\(", "erf"),
    (r"\b(logf|log|__logf|log2f|log1pf)\s*\(", "log"),
    (r"\b(fmaxf|max|__hmax2?|hmax|fmax)\s*\(", "max"),
    (r"\b(fminf|min|__hmin2?|fmin)\s*\(", "minimum"),
    (r"\b(fabsf|fabs|abs|__habs2?)\s*\(", "abs"),
    (r"\b(atomic\w+|red_add\w*)\s*\(", "atomic"),
    (r"\b(__shfl\w*|(?i:block|warp)_?(?i:reduce)\w*|warp_sum|block_sum)\b", "reduce"),
    (r"\b(BlockScan|WarpScan|InclusiveSum|ExclusiveSum)\b", "scan"),
    (r"\b(BlockRadixSort|RadixSort|bitonic\w*|sort)\b", "sort"),
    (r"\b(cosf|__cosf|cos|sincosf)\s*\(", "cos"),
    (r"\b(curand\w*|philox\w*)\b", "random"),
    (r"(?i)\b\w*(fp8|e4m3|e5m2)\w*\b", "fp8"),
    (r"\b(int8_t|char4|__dp4a)\b", "int8"),
    (r"\b(silu|swish)\w*\s*(<[^>]*>)?\s*\(", "silu"),
    (r"\bsigmoid\w*\s*(<[^>]*>)?\s*\(", "sigmoid"),
    (r"(?<![\w.])1(\.0*f?|f)?\s*/\s*(static_cast<\w+>)?\s*\(\s*1(\.0*f?|f)?\s*\+\s*\w*exp", "sigmoid"),
    (r"\b\w+(\[[^\]]*\]|\.\w+)?\s*/\s*\(\s*(static_cast<float>\()?\s*1(\.0*f?|f)?\)?\s*\+\s*\w*exp", "silu"),
    (r"\b([A-Za-z_]\w*(?:\[[^\]]*\]|\.\w+)*)\s*\*\s*\1(?![\w\[.])", "square"),
    (r"-\s*(\w+[._])?(s_)?(mean|mu|avg)(_\w+)?\b", "mean_sub"),
    (r"exp\w*\s*\([^;]{0,60}-\s*[^;]{0,30}max", "max_sub"),
    (r"\b(for|while)\s*\(", "loop"),
    (r"\+=", "accumulate"),
    (r"(?<![*/])\*(?![*/=)])", "times"),
    (r"(?<![/*])/(?![/*])", "divide"),
    (r"(?<!\+)\+(?![+=])", "plus"),
    (r"(?<!-)-(?![->=])", "minus"),
    (r"\b(fma|fmaf|__fmaf_rn|__hfma2?)\s*\(", "fma"),
)  # fmt: skip
_PATTERNS = tuple((re.compile(pattern), word) for pattern, word in _WORDS)


def features_of(text: str) -> frozenset[str]:
    """Return what program text does, taken together.

    Args:
        text: A kernel and all that it calls of its file, without comments.

    Returns:
        Words as in :func:`kb.importers.code.triton_features.features_of`; ``store`` and ``load`` always, because an
        assignment does not tell memory from registers.
    """
    found = {word for pattern, word in _PATTERNS if pattern.search(text)} | {"store", "load"}
    if "max" in found:
        found.add("maximum")
    if "reduce" in found or ("accumulate" in found and "loop" in found):
        found.add("sum")
    if "rsqrt" in found or re.search(r"/\s*\w*sqrt\w*\s*\(", text):
        found.add("reciprocal_sqrt")
    # Products without tensor cores: a sum, in a loop, of products of two different things.
    if "loop" in found and ("fma" in found or _PRODUCT.search(_SQUARE.sub("1", text))):
        found.add("dot")
    return frozenset(found)


_SQUARE = re.compile(r"\b([A-Za-z_]\w*(?:\[[^\]]*\]|\.\w+)*)\s*\*\s*\1(?![\w\[.])")
_PRODUCT = re.compile(r"\+=\s*[^;=*]{1,80}\*\s*[^;=]{1,80};")
