"""Whether the very first loss is where the initialisation puts it: the cheapest test of a whole training setup."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class FirstLoss:
    """The first loss beside what was to be expected."""

    loss: float
    """Cross-entropy per target token, in nats, of the weights before any update."""
    vocab_size: int
    """Rows of the embedding."""
    low: float
    """Least expected value; minus infinity when starting from a checkpoint, which may have learnt anything."""
    high: float
    """Largest expected value."""

    def describe(self) -> str:
        """One line for the user."""
        band = f"{self.low:.2f} to {self.high:.2f}" if math.isfinite(self.low) else f"at most {self.high:.2f}"
        return (
            f"first loss {self.loss:.3f} nats a target token; ln V = {math.log(self.vocab_size):.3f} for "
            f"V = {self.vocab_size}; expected {band}"
        )

    def warning(self) -> str | None:
        """What may be wrong, or None if the loss is inside the band."""
        if self.low <= self.loss <= self.high:
            return None
        if self.loss > self.high and math.isinf(self.low):
            causes = (
                "the weights fit the data worse than random ones. Likely causes: targets in another script or language "
                "than the start checkpoint saw (then it soon falls, and nothing is wrong); another vocabulary or "
                "sentinel convention than it was trained with; a head that it lacks; tied against untied embeddings"
            )
        elif self.loss > self.high:
            causes = (
                "the model begins worse than its initialisation should. Likely causes: changed initialisation or "
                "scaling of the logits (tied embeddings need it); a wrong dtype; targets shifted against the inputs"
            )
        else:
            causes = (
                "the model begins better than chance. Likely causes: the answer leaks into the inputs (targets not "
                "shifted right, a mask that sees the future), or targets that are nearly all one token, such as "
                "padding that counts"
            )
        return f"first loss {self.loss:.3f} is outside the band that was to be expected: {causes}."
