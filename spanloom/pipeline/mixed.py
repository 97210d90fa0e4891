"""The examples of several tasks as one endless sequence, drawn at the rates of a mixture."""

from collections.abc import Sequence

import numpy as np

from spanloom.pipeline.batches import Batch
from spanloom.pipeline.dataset import Dataset
from spanloom.pipeline.mixing_plan import MixingPlan


class MixedDataset:
    """Draws of a mixture as batches. It has no state: every answer follows from arguments."""

    def __init__(self, parts: Sequence[Dataset], plan: MixingPlan):
        self._parts = parts
        self.plan = plan
        """Which task each draw is from; tasks are numbered as `parts`."""
        self.inputs_length = max(part.inputs_length for part in parts)
        self.targets_length = max(part.targets_length for part in parts)

    @property
    def num_examples(self) -> int:
        """Examples of all tasks, each once."""
        return sum(part.num_examples for part in self._parts)

    def batch(self, first_example: int, batch_size: int) -> Batch:
        """Draws first_example..first_example + batch_size - 1; fields as `Dataset.batch`, padded to the widest task's.

        The n-th draw of a task is the n-th of its own endless order, whatever else is mixed in. Raises ValueError
        where the data end before that.
        """
        tasks_N, before_N = self.plan.draws(first_example, batch_size)
        if len(tasks_N) < batch_size:
            raise ValueError(
                f"the mixture ends after {self.plan.end} draws, and {first_example + batch_size} are asked"
            )
        widths = {"encoder": self.inputs_length, "decoder": self.targets_length}
        batch: Batch = {}
        for task in np.unique(tasks_N).tolist():
            rows_M = np.flatnonzero(tasks_N == task)
            # Draws of one task that follow one another are numbered without a gap.
            part = self._parts[task].batch(int(before_N[rows_M[0]]), len(rows_M))
            for name, values_MxL in part.items():
                shape = batch_size, widths[name.partition("_")[0]]
                batch.setdefault(name, np.zeros(shape, np.int32))[rows_M, : values_MxL.shape[1]] = values_MxL
        return batch
