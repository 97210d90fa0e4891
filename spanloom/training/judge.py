"""Measures the held-out losses of a run as it trains, and tells whether they end it."""

import functools
import statistics
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from spanloom.evaluation.heldout import HeldoutStep, Put, heldout_by_task
from spanloom.pipeline.batches import Batch
from spanloom.pipeline.data import Data
from spanloom.pipeline.dataset import Dataset
from spanloom.scale.mesh import Layout, heldout_batch, placement_of
from spanloom.scale.processes import ALONE, Crew
from spanloom.settings.run import Run
from spanloom.training.answers import Answers
from spanloom.training.checkpoint_paths import add_heldout_loss
from spanloom.training.filling import Filling
from spanloom.training.loggers import Logger, MetricsFile
from spanloom.training.patience import Patience
from spanloom.training.progress import Display
from spanloom.training.say import say_answers, say_heldout
from spanloom.training.signals import Stopped
from spanloom.training.state import TrainState, averaged_weights


class Judge:
    """Held-out losses at one step after another, each written down once."""

    def __init__(
        self,
        run: Run,
        step: HeldoutStep,
        parts: Mapping[str, Dataset],
        patience: Patience,
        metrics: MetricsFile,
        logger: Logger,
        display: Display,
        until: Callable[[Iterable[Batch]], Iterable[Batch]],
        layout: Layout,
        data: Data,
        crew: Crew = ALONE,
    ) -> None:
        """Of `parts`, by task, some may be of tasks that are not learnt. `patience`: as it stands so far; `until` is
        given the batches, and may end them by `Stopped`; `layout` is that of the weights, `data` what is learnt
        from. What is written goes to `logger`, `metrics` among it, and, by the first of `crew`, to the checkpoint.
        """
        self._run = run
        self._step = step
        self._parts = parts
        self._metrics = metrics
        self._logger = logger
        self._display = display
        self._until = until
        self._put: Put = functools.partial(heldout_batch, layout)
        self._answers = Answers(run, parts, data.vocabulary, placement_of(layout), display.warn)
        self._filling = Filling(run, parts, data.vocabulary, placement_of(layout))
        self._writes = crew.is_first
        self.patience = patience
        """What an early stop goes by, until now."""

    @property
    def over(self) -> bool:
        """Whether the run ends here."""
        return self.patience.ended(self._run.stopping)

    def has(self, step: int) -> bool:
        """Whether all was measured at `step`, the last one that was written down."""
        return all(self._metrics.has("eval", task, step) for task in self._parts)

    def evaluate(self, state: TrainState, step: int, saved: Path | None = None) -> float | None:
        """The held-out loss that decides (see `deciding_loss`) at `step`, written down with that of each task, with the
        checkpoint `saved` of that step too if it is there. Measured are the averaged weights where there are any.

        None if there is no held-out part, all was measured already, or a stop was asked for.
        """
        if self.has(step):
            return None
        weights = averaged_weights(state) or state.params
        try:
            measured = heldout_by_task(self._step, weights, self._parts, self._run.eval, self._until, self._put)
            answers, fills = self._answers.of(weights), self._filling.of(weights)
        except Stopped:
            return None  # the next start makes up for it
        losses = {task: values["heldout_loss"] for task, values in measured.items()}
        loss = deciding_loss(self._run, losses)
        if saved and loss is not None and self._writes:
            add_heldout_loss(saved, loss)  # before the lines, which tell the next start that nothing is left to do
        for task, filled in fills.items():  # before the lines that say that all of this step is there
            if not self._metrics.has("fills", task, step):
                self._logger.write("fills", step, {"task": task, "fills": filled})
        for task, values in measured.items():
            if not self._metrics.has("eval", task, step):
                self._logger.write("eval", step, {"task": task, **values, **answers.get(task, {})})
        self.patience = self.patience.after(step, loss, self._run)
        say_heldout(self._display, self._run, step, losses, loss)
        say_answers(self._display, answers)
        return loss


def deciding_loss(run: Run, losses: Mapping[str, float]) -> float | None:
    """The loss that tells which checkpoint is the best: of checkpoint.best_task, or the mean of the tasks learnt.

    None where nothing of these is held out.
    """
    if run.checkpoint.best_task is not None:
        return losses.get(run.checkpoint.best_task)
    learnt = [losses[task.name] for task in run.tasks if task.name in losses]
    return statistics.fmean(learnt) if learnt else None
