"""Collect operator rows under one precision and one division over devices."""

import math
from dataclasses import dataclass, field

from kb.errors import ConfigError
from kb.models.documents import TargetOperator

GEMMS = {
    "bfloat16": ("gemm", "bfloat16"),
    "float16": ("gemm", "float16"),
    "fp8": ("gemm_fp8", "float8_e4m3fn"),
    "fp8-block": ("gemm_fp8_block", "float8_e4m3fn"),
    "nvfp4": ("gemm_nvfp4", "nvfp4"),
    "mxfp4": ("gemm_mxfp4", "mxfp4"),
}
"""Precision of the weights to the operator and dtype of a projection."""

EXPERTS = {
    "bfloat16": ("grouped_gemm", "bfloat16"),
    "float16": ("grouped_gemm", "float16"),
    "fp8": ("moe_grouped_gemm_fp8", "float8_e4m3fn"),
    "fp8-block": ("moe_grouped_gemm_fp8", "float8_e4m3fn"),
    "nvfp4": ("moe_grouped_gemm_nvfp4", "nvfp4"),
    "mxfp4": ("moe_grouped_gemm_mxfp4", "mxfp4"),
}
"""The same of experts."""

PRECISIONS = tuple(GEMMS)


def divided(size: int, parts: int, what: str) -> int:
    """Divide a size over devices.

    Raises:
        ConfigError: It cannot be divided evenly.
    """
    if size % parts:
        raise ConfigError(f"{what}: {size} cannot be divided over {parts} devices", hint="another --count")
    return size // parts


@dataclass
class Rows:
    """The rows of a target as they come together."""

    precision: str
    """One of ``PRECISIONS``."""
    devices: int = 1
    """Over how many devices every layer is divided."""
    cache_dtype: str | None = None
    """Dtype of the KV cache; None for that of the activations."""
    made: list[TargetOperator] = field(default_factory=list)

    @property
    def activation(self) -> str:
        """Dtype of what is no weight."""
        return "float16" if self.precision == "float16" else "bfloat16"

    def add(
        self,
        operator: str,
        name: str,
        *,
        calls: int,
        axes: dict[str, int] | None = None,
        per_token: dict[str, int] | None = None,
        per_sequence: dict[str, int] | None = None,
        dtypes: tuple[str, ...] | None = None,
        phase: str | None = None,
        note: str | None = None,
    ) -> None:
        """Add one row; none if it is never called."""
        if calls > 0:
            self.made.append(
                TargetOperator.model_validate(
                    {
                        "operator": operator,
                        "name": name,
                        "axes": axes or {},
                        "per_token": per_token or {},
                        "per_sequence": per_sequence or {},
                        "dtypes": list(dtypes or (self.activation,)),
                        "calls_per_step": calls,
                        "phase": phase,
                        "note": note,
                    }
                )
            )

    def projection(
        self, name: str, *, n: int, k: int, calls: int, rows: int = 1, plain: bool = False, note: str | None = None
    ) -> None:
        """Add a product with a weight [n, k] of ``rows`` rows a token.

        Args:
            name: What the model calls it.
            n: Output features on one device.
            k: Input features on one device.
            calls: A step.
            rows: Rows a token.
            plain: Kept in 16 bits whatever the precision.
            note: What else to know.
        """
        operator, dtype = GEMMS[self.activation if plain else self.precision]
        self.add(operator, name, calls=calls, axes={"n": n, "k": k}, per_token={"m": rows}, dtypes=(dtype,), note=note)

    def experts(self, name: str, *, experts: int, top_k: int, n: int, k: int, calls: int) -> None:
        """Add a product with the weights [n, k] of the experts that a token is sent to."""
        operator, dtype = EXPERTS[self.precision]
        axes = {"num_experts": experts, "n": n, "k": k}
        if operator == "moe_grouped_gemm_nvfp4":
            axes["activation_bits"] = 16
        self.add(operator, name, calls=calls, axes=axes, per_token={"num_tokens_expanded": top_k}, dtypes=(dtype,))

    def all_reduce(self, hidden: int, *, calls: int) -> None:
        """Add the sums over devices that divided layers need."""
        if self.devices > 1:
            axes = {"world_size": self.devices, "hidden_size": hidden}
            self.add("all_reduce", "sums over devices", calls=calls, axes=axes)

    def head(self, vocabulary: int, hidden: int) -> None:
        """Add the output head, which needs the last row of a sequence alone, and the choice of a token."""
        operator, dtype = GEMMS[self.activation]
        axes = {"n": math.ceil(vocabulary / self.devices), "k": hidden}
        note = "one row a sequence"
        self.add(operator, "output head", calls=1, axes=axes, per_sequence={"m": 1}, dtypes=(dtype,), note=note)
        self.add("top_k_top_p", "sampling", calls=1, axes={"vocab_size": vocabulary}, dtypes=("float32",))
