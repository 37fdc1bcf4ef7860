"""What the body of a Triton kernel does, in words that rules can ask for."""

import ast
import re
from collections.abc import Iterator, Sequence

_CALLS: tuple[tuple[str, str], ...] = (
    (r"dot_scaled", "dot_scaled"),
    (r"(dot|dot_fma|warpgroup_mma|tcgen05_mma|mma_v2)", "dot"),
    (r"(exp|exp2|fast_exp|fast_expf|safe_exp|exp2f|expf)", "exp"),
    (r"(log|log2|log1p|fast_log|logf|fast_logf)", "log"),
    (r"(rsqrt|rsqrt_rn|rsqrtf)", "rsqrt"),
    (r"(sqrt|sqrt_rn|sqrtf)", "sqrt"),
    (r"sum", "sum"),
    (r"(max|reduce_max)", "max"),
    (r"(maximum|fmax)", "maximum"),
    (r"(minimum|fmin)", "minimum"),
    (r"(argmax|argmin)", "argmax"),
    (r"(cumsum|associative_scan|cumprod)", "scan"),
    (r"(sort|topk|bitonic_merge|argsort)", "sort"),
    (r"(sigmoid|fast_sigmoid|sigmoid_fast|fsigmoid)", "sigmoid"),
    (r"(silu|swish|fast_silu|_silu)", "silu"),
    (r"(tanh|fast_tanh|tanh_approx|tanhf)", "tanh"),
    (r"(erf|erff)", "erf"),
    (r"(cos|cosf)", "cos"),
    (r"(sin|sinf)", "sin"),
    (r"(abs|fabs)", "abs"),
    (r"(rand|randn|randint|philox|rand4x|randint4x)", "random"),
    (r"(clamp|clip)", "clamp"),
    (r"(round|rint|floor|nearbyint|roundf|llrint)", "round"),
    (r"(atomic_\w+)", "atomic"),
    (r"histogram", "histogram"),
    (r"where", "where"),
    (r"(trans|permute)", "trans"),
    (r"load", "load"),
    (r"store", "store"),
    (r"softmax", "softmax"),
)  # fmt: skip
_NAMES = tuple((re.compile(rf"_?{pattern}"), word) for pattern, word in _CALLS)
_MAXIMA = frozenset({"max", "maximum", "fmax", "reduce_max"})
_FP8 = re.compile(r"(?i)float8|fp8|e4m3|e5m2")
_INT8 = re.compile(r"(?i)\bint8\b")
_MEAN = re.compile(r"(?i)(^|_)(mean|mu|avg)\d*($|_)")


def features_of(functions: Sequence[ast.FunctionDef]) -> frozenset[str]:
    """Return what functions do, taken together.

    Args:
        functions: A kernel and the helpers that Triton compiles with it.

    Returns:
        Words such as ``dot``, ``exp``, ``sum``, ``square`` (a value times itself), ``mean_sub`` (a mean is taken off),
        ``max_sub`` (a maximum is taken off before an exponential), ``reciprocal_sqrt``, ``sigmoid``, ``silu``, ``fp8``.
    """
    found: set[str] = set()
    for one in functions:
        values = _values(one)
        for node in ast.walk(one):
            found.update(_of(node, values))
    if {"rsqrt"} & found or ({"sqrt"} & found and "divide_sqrt" in found):
        found.add("reciprocal_sqrt")
    if "sigmoid" in found and "sigmoid_times" in found:
        found.add("silu")
    return frozenset(found)


def _values(node: ast.FunctionDef) -> dict[str, list[ast.expr]]:
    """Return what each name is assigned."""
    found: dict[str, list[ast.expr]] = {}
    for each in ast.walk(node):
        if isinstance(each, ast.Assign):
            for target in each.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(each.value)
        elif isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Name):
            found.setdefault(each.target.id, []).append(each.value)
    return found


def _called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _of(node: ast.AST, values: dict[str, list[ast.expr]]) -> Iterator[str]:
    if isinstance(node, ast.Call):
        name = _called(node).removesuffix("_kernel")
        yield from (word for pattern, word in _NAMES if pattern.fullmatch(name))
        if name == "exp" or name.endswith("exp2"):
            yield from _of_exponent(node, values)
    elif isinstance(node, ast.BinOp):
        yield from _of_operation(node, values)
    elif isinstance(node, ast.For | ast.While):
        yield "loop"
    elif isinstance(node, ast.Name | ast.Attribute):
        word = node.id if isinstance(node, ast.Name) else node.attr
        if _FP8.search(word):
            yield "fp8"
        if _INT8.fullmatch(word):
            yield "int8"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "negative"


def _of_operation(node: ast.BinOp, values: dict[str, list[ast.expr]]) -> Iterator[str]:
    if isinstance(node.op, ast.Mult):
        yield "times"
        if ast.dump(node.left) == ast.dump(node.right):
            yield "square"
        if _is_sigmoid(node.left, values) or _is_sigmoid(node.right, values):
            yield "sigmoid_times"
    elif isinstance(node.op, ast.Div):
        yield "divide"
        yield from _of_quotient(node, values)
    elif isinstance(node.op, ast.Pow) and isinstance(node.right, ast.Constant) and node.right.value in (2, 2.0):
        yield "square"
    elif isinstance(node.op, ast.Sub):
        if any(_is_mean(each, values) for each in ast.walk(node.right)):
            yield "mean_sub"
        yield "minus"
    elif isinstance(node.op, ast.Add):
        yield "plus"


def _of_quotient(node: ast.BinOp, values: dict[str, list[ast.expr]]) -> Iterator[str]:
    if any(_called(each).startswith("sqrt") for each in _deep(node.right, values)):
        yield "divide_sqrt"
    if _is_one_plus_exp(node.right, values):
        yield "sigmoid"
        if not isinstance(node.left, ast.Constant):
            yield "silu"


def _deep(node: ast.expr, values: dict[str, list[ast.expr]], depth: int = 2) -> Iterator[ast.AST]:
    """Yield the nodes of an expression and of what the names in it were assigned."""
    for each in ast.walk(node):
        yield each
        if depth and isinstance(each, ast.Name):
            for value in values.get(each.id, ())[:3]:
                yield from _deep(value, values, depth - 1)


def _is_mean(node: ast.AST, values: dict[str, list[ast.expr]]) -> bool:
    if isinstance(node, ast.Name):
        return _MEAN.search(node.id) is not None or any(_is_share(value) for value in values.get(node.id, ()))
    return _is_share(node)


def _is_share(node: ast.AST) -> bool:
    """Tell a sum that is divided by something."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div)
        and any(_called(each) == "sum" for each in ast.walk(node.left))
    )


def _is_sigmoid(node: ast.expr, values: dict[str, list[ast.expr]], depth: int = 2) -> bool:
    if "sigmoid" in _called(node):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return _is_one_plus_exp(node.right, values)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "to":
        return _is_sigmoid(node.func.value, values, depth)
    if depth and isinstance(node, ast.Name):
        return any(_is_sigmoid(value, values, depth - 1) for value in values.get(node.id, ())[:3])
    return False


def _is_one_plus_exp(node: ast.expr, values: dict[str, list[ast.expr]]) -> bool:
    """Tell ``1 + exp(…)``, also by a name that was assigned it."""
    if isinstance(node, ast.Name):
        return any(_is_one_plus_exp(each, {}) for each in values.get(node.id, ())[:3])
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Add)
        and any(isinstance(each, ast.Constant) and each.value in (1, 1.0) for each in (node.left, node.right))
        and any("exp" in _called(each) for one in (node.left, node.right) for each in ast.walk(one))
    )


def _of_exponent(node: ast.Call, values: dict[str, list[ast.expr]]) -> Iterator[str]:
    """Tell an exponential of a difference whose second part is a maximum."""
    for each in node.args:
        for one in ast.walk(each):
            if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub):
                yield from ("max_sub" for inner in _deep(one.right, values) if _called(inner) in _MAXIMA)
