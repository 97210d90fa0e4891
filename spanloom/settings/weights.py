"""How the weights are kept while they are trained, and why never in float16."""

from dataclasses import dataclass
from typing import Literal

NO_FLOAT16 = (
    "float16 holds nothing above 65,504 nor, at its full precision, below 6e-5, and T5's activations overflow it; "
    "bfloat16 is as small and has float32's range"
)
"""Why no run computes or keeps anything in float16."""


@dataclass(frozen=True)
class Weights:
    """How the weights are kept between steps; what the network computes in is model.dtype."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 halves the memory of weights and gradients; steps too small for its 8 bits are then rounded as below."""
    rounding: Literal["stochastic", "kahan"] = "stochastic"
    """How a step is added to bfloat16 weights. stochastic: up or down by chance, so that the mean is right; kahan: what
    was lost is kept beside (another bfloat16) and added to the next step."""
    ema_decay: float | None = None
    """Also keep an average of the weights, in float32, which is then evaluated and exported: each step moves it by
    1 - decay towards the new weights (0.999, 0.9999), and by more at first, so that random weights leave no trace."""


def dtype_problem(field: str, value: str) -> str | None:
    """What is wrong with a precision, float32 or bfloat16; None if nothing is."""
    if value in ("float32", "bfloat16"):
        return None
    reason = f" ({NO_FLOAT16})" if value.lower() in ("float16", "fp16", "half", "f16") else ""
    return f"{field} is {value!r}: must be float32 or bfloat16{reason}"
