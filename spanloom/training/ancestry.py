"""Where the weights of a checkpoint come from: its run, what that was started from, and so on back."""

from dataclasses import replace
from pathlib import Path

from spanloom.conversion.detect import detect
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.huggingface import read_lineage
from spanloom.conversion.trained_model import Lineage
from spanloom.training.checkpoint_paths import CheckpointError
from spanloom.training.facts import Facts, read_facts
from spanloom.training.integrity import DamagedError, fingerprint

_MOST = 100


def lineage_of(path: Path, facts: Facts) -> Lineage:
    """Where the weights of the checkpoint `path` come from, and what they were before that."""
    return replace(_own(path, facts), before=_before(facts.started_from))


def _before(place: str | None) -> tuple[Lineage, ...]:
    """Earliest first; it begins after what is no longer there, or cannot be read."""
    found: list[Lineage] = []
    while place is not None and len(found) < _MOST:
        try:
            lineage = _at(Path(place))
        except (ConversionError, CheckpointError, DamagedError, OSError):
            break
        found = [*lineage.before, replace(lineage, before=()), *found]
        place = None if lineage.before else lineage.started_from
    return tuple(found[-_MOST:])


def _at(path: Path) -> Lineage:
    kind = detect(path)
    if kind == "checkpoint":
        return _own(path, read_facts(path))
    return read_lineage(path) if kind in ("huggingface", "converted") else Lineage(origin=str(path.resolve()))


def _own(path: Path, facts: Facts) -> Lineage:
    losses = {"training loss of the last step": facts.loss, "held-out loss": facts.heldout_loss}
    return Lineage(
        origin=str(path.resolve()),
        run=facts.run,
        step=facts.step,
        checkpoint=fingerprint(path),
        losses={name: loss for name, loss in losses.items() if loss is not None},
        started_from=facts.started_from,
        versions={name: str(value) for name, value in facts.machine.items()},
        moved_rows=facts.moved_rows,
    )
