"""What a checkpoint is, whoever wrote it: format, architecture, vocabulary, optimizer, origin. Reads few numbers."""

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spanloom.conversion.detect import detect
from spanloom.conversion.sentinels_seen import describe, rows_of_hugging_face, rows_of_t5x
from spanloom.conversion.untrained_rows import Gather
from spanloom.model.params import declare, num_params
from spanloom.model.sizes import published_name
from spanloom.settings.model import Model
from spanloom.settings.vocabulary import Bytes, SentencePiece, Vocabulary
from spanloom.training.checkpoint_paths import open_checkpoint
from spanloom.training.facts import read_facts_and_arrays, vocabulary_inside
from spanloom.training.origin import reached
from spanloom.training.read_model import refuse_choice
from spanloom.training.start_sentinels import sentinels_used
from spanloom.vocabularies.build import build
from spanloom.vocabularies.correspondence import described

_TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_UNKNOWN = "not known: it holds none, and none lies beside it"


@dataclass(frozen=True)
class Inspected:
    """A checkpoint in words."""

    rows: tuple[tuple[str, str], ...]
    """What it is of which kind."""
    notes: tuple[str, ...]
    """What a user should know: decisions taken and why."""


def inspect(
    path: Path, which: str = "last", vocabulary: str | None = None, activations: str | None = None
) -> Inspected:
    """What is at `path`; `which`, `vocabulary` and `activations` as in `read_model`.

    Every array is accounted for, but only those are read whose content decides something. Raises ConversionError or
    CheckpointError, naming the file, where it is damaged or nothing that can be read.
    """
    kind = detect(path)
    refuse_choice(kind, path, which, vocabulary, activations)
    if kind == "t5x":
        return _t5x(path, which, vocabulary, activations)
    if kind == "huggingface":
        return _hugging_face(path, vocabulary)
    return _converted(path) if kind == "converted" else _ours(path, which)


def _t5x(path: Path, which: str, vocabulary: str | None, activations: str | None) -> Inspected:
    from spanloom.conversion.t5x import open_t5x
    from spanloom.conversion.t5x_unseen import parse_activations

    opened = open_t5x(path, which, parse_activations(activations) if activations else None)
    found = opened.vocabulary(vocabulary)
    layout = "scanned layers" if opened.layout.scanned else "one array a layer"
    stored = sorted({one.dtype for one in opened.checkpoint.weights.values()})
    rows = [
        ("checkpoint", str(opened.checkpoint.path)),
        ("format", f"{opened.checkpoint.written_as}, {layout}"),
        *_model(opened.model, activations_known=opened.activations_known),
        ("weights", ", ".join(stored)),
        ("step", f"{opened.checkpoint.step:,}"),
        ("optimizer", "none" if opened.kept is None else opened.kept.describe()),
        *_vocabulary(opened.model, found.vocabulary if found else None, rows_of_t5x(opened.checkpoint.weights)),
        ("configuration", "no gin file beside it" if opened.gin is None else str(opened.gin.path)),
        ("size on disk", _size(opened.checkpoint.path)),
    ]
    return Inspected(tuple(rows), (*opened.notes, *([found.note] if found and found.note else [])))


def _hugging_face(path: Path, vocabulary: str | None) -> Inspected:
    from spanloom.conversion.hf_files import open_weights
    from spanloom.conversion.huggingface import read_lineage, read_settings

    settings, lineage, entries = read_settings(path, vocabulary), read_lineage(path), open_weights(path)
    rows = [
        ("checkpoint", str(path)),
        ("format", "Hugging Face"),
        *_model(settings.model),
        ("weights", ", ".join(sorted({_TYPES.get(one.dtype, one.dtype) for one in entries.values()}))),
        ("step", "not said" if lineage.step is None else f"{lineage.step:,}"),
        ("optimizer", "none"),
        *_vocabulary(settings.model, settings.vocabulary, rows_of_hugging_face(entries)),
        ("comes from", str(lineage.home) if lineage.run else "not said"),
        *([("started from", lineage.started_from)] if lineage.started_from else []),
        ("size on disk", _size(path)),
    ]
    return Inspected(tuple(rows), settings.notes)


def _converted(path: Path) -> Inspected:
    from spanloom.training.converted import stored_converted

    stored = stored_converted(path)
    lineage, memory = stored.lineage, stored.memory
    slots = {} if memory is None else {slot: names for slot, names in memory.slots.items() if names}
    kept = ", ".join(f"{slot} of {len(names)}" for slot, names in slots.items())
    step = memory.count if memory else lineage.step
    rows = [
        ("checkpoint", str(path)),
        ("format", "Spanloom, converted"),
        *_model(stored.model),
        ("weights", ", ".join(sorted({weight.dtype for weight in stored.weights.values()}))),
        ("step", "not said" if step is None else f"{step:,}"),
        ("optimizer", "none" if memory is None else f"Adafactor: {kept} parameters; factor rules {memory.rules}"),
        *_vocabulary(stored.model, stored.vocabulary),
        ("comes from", lineage.origin),
    ]
    return Inspected(tuple(rows), stored.notes)


def _ours(path: Path, which: str) -> Inspected:
    checkpoint = open_checkpoint(path, which)
    facts, arrays = read_facts_and_arrays(checkpoint)
    come, vocabulary = reached(facts), vocabulary_inside(checkpoint, facts.run)
    whole = f" (schedule at {come.schedule:,})" if come.schedule != facts.step else ""
    loss = "not measured" if facts.heldout_loss is None else f"{facts.heldout_loss:.4f} nats a token"
    rows = [
        ("checkpoint", str(checkpoint)),
        ("format", f"Spanloom {facts.machine.get('spanloom', '')}".strip()),
        *_model(facts.run.model),
        ("weights", ", ".join(sorted({entry["dtype"] for entry in arrays["params"].values()}))),
        ("step", f"{facts.step:,}{whole}"),
        ("optimizer", f"{type(facts.run.optimizer).__name__}: {_our_slots(arrays['optimizer'])}"),
        *_vocabulary(facts.run.model, vocabulary, used=sentinels_used(facts.run, vocabulary)),
        ("run", f"{facts.run.name}, learnt {', '.join(task.name for task in facts.run.tasks)}"),
        ("held-out loss", loss),
        ("started from", facts.started_from or "random weights"),
        *([("rows at its start", described(facts.moved_rows))] if facts.moved_rows else []),
        ("size on disk", _size(checkpoint)),
    ]
    return Inspected(tuple(rows), ())


def _our_slots(arrays: Mapping[str, object]) -> str:
    """Such as "mu of 57, nu of 57 parameters". Before its name may stand the number of a transformation in a chain."""
    inside = [[part for part in name.split("/") if not part.isdecimal()] for name in arrays]
    slots = [slot for slot, *parameter in inside if parameter]
    kinds = {slot: slots.count(slot) for slot in dict.fromkeys(slots)}
    return ", ".join(f"{slot} of {count}" for slot, count in kinds.items()) + " parameters" if kinds else "no arrays"


def _model(model: Model, *, activations_known: bool = True) -> list[tuple[str, str]]:
    name = published_name(model)
    bias = "one a layer" if model.per_layer_position_bias else "one a stack"
    head = "shares the embedding, logits scaled" if model.tie_embeddings else "of its own"
    return [
        ("model", "no published size" if name == "custom" else name),
        ("parameters", f"{num_params(declare(model)):,}"),
        ("layers", f"{model.num_encoder_layers} encoder, {model.num_decoder_layers} decoder"),
        ("widths", f"d_model {model.d_model}, d_ff {model.d_ff}, {model.num_heads} heads of {model.d_kv}"),
        ("activations", " x ".join(model.activations) if activations_known else _unknown_activations(model)),
        ("output head", head),
        ("position tables", f"{bias}, {model.relative_position_buckets} buckets"),
    ]


def _unknown_activations(model: Model) -> str:
    gate = "with" if len(model.activations) == 2 else "without"
    return f"not known ({gate} a gate): neither weights nor sizes show them; give --activations, or see config.gin"


def _vocabulary(
    model: Model, settings: Vocabulary | None, matrices: Sequence[Gather] = (), used: int = 0
) -> list[tuple[str, str]]:
    """Rows about the vocabulary, and which sentinels were trained: by the weights, or as the run `used` them."""
    rows = [("embedding rows", f"{model.vocab_size:,}")]
    if settings is None:
        return [*rows, ("vocabulary", _UNKNOWN)]
    built = build(settings)
    unused = model.vocab_size - built.size
    padding = f"; {unused:,} rows beyond them" if unused else ""
    name = "bytes" if isinstance(settings, Bytes) else f"SentencePiece {settings.path}"
    return [
        *rows,
        ("vocabulary", f"{name}: {built.size:,} ids{padding}"),
        ("sentinels", _sentinels(settings, built.sentinels)),
        *([("trained of them", _trained(model, settings, matrices, used))] if built.sentinels else []),
    ]


def _trained(model: Model, settings: Vocabulary, matrices: Sequence[Gather], used: int) -> str:
    if matrices:
        return describe(settings, model.vocab_size, matrices)
    return f"the first {used}, which is what this run used of them" if used else "none by this run"


def _sentinels(settings: Bytes | SentencePiece, ids: tuple[int, ...]) -> str:
    if not ids:
        return "none: span corruption is impossible with it"
    shown = ", ".join(map(str, ids[:3])) + (", ..." if len(ids) > 3 else "")
    return f"{settings.sentinels}: {len(ids)} ids, {shown}"


def _size(path: Path) -> str:
    """All files of a checkpoint, those of a folder in it too; of TensorFlow its index and what begins like it."""
    files = path.rglob("*") if path.is_dir() else path.parent.glob(f"{glob.escape(path.stem)}*")
    size = sum(one.stat().st_size for one in files if one.is_file())
    return f"{size / 2**20:,.1f} MiB" if size < 2**30 else f"{size / 2**30:,.1f} GiB"
