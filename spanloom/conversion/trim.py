"""A model with only the rows of pieces that a text needs. What it says of these stays the same."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np

from spanloom.conversion.convert import ParityError, Report, check_place, convert_to_hf
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.parity import largest_difference
from spanloom.conversion.staging import recover, scratch
from spanloom.conversion.surgery import with_vocabulary
from spanloom.conversion.trained_model import TrainedModel
from spanloom.model.params import T5, num_params
from spanloom.model.t5 import forward
from spanloom.settings.model import Model
from spanloom.settings.vocabulary import SentencePiece
from spanloom.vocabularies import trim as vocabulary_trim
from spanloom.vocabularies.build import build
from spanloom.vocabularies.correspondence import Correspondence, correspond
from spanloom.vocabularies.pieces import pieces_of
from spanloom.vocabularies.sentencepiece import MODEL_FILE
from spanloom.vocabularies.trim import Choice
from spanloom.vocabularies.vocabulary import Vocabulary, padded

TABLE = "kept_pieces.tsv"
TOLERANCE = 1e-5
"""What logits of kept pieces may differ by, of their largest: sums are taken in another order."""
_ROWS, _LENGTH = 4, 48  # texts of so many tokens whose logits are compared

Texts = Callable[[], Iterator[tuple[str, str]]]
"""Makes (name, text) again and again, the same each time; texts are read more than once."""


@dataclass
class Tokens:
    """What texts of one name come to."""

    texts: int = 0
    before: int = 0
    """Tokens with the whole vocabulary."""
    after: int = 0
    """Tokens with the smaller one."""
    same: int = 0
    """Texts that need kept pieces alone; these are cut as before."""


@dataclass(frozen=True)
class TrimReport:
    """What trimming did."""

    written: Report
    """The folder."""
    ids: tuple[int, int]
    """Ids before and after."""
    rows: tuple[int, int]
    """Rows of the embedding before and after."""
    parameters: tuple[int, int]
    """Numbers in the model before and after."""
    tokens: dict[str, Tokens]
    """By the name of the texts."""
    difference: float
    """Largest difference of a kept piece's logit."""
    compared: int
    """Positions at which logits were compared."""

    def describe(self) -> str:
        """The report as lines for a terminal."""
        saved = 4 * (self.parameters[0] - self.parameters[1]) / 1e6
        lines = [
            f"vocabulary: {self.ids[0]:,} ids became {self.ids[1]:,}, {self.rows[0]:,} rows {self.rows[1]:,}; kept "
            f"pieces are listed in {self.written.dst / TABLE}",
            f"model: {self.parameters[0]:,} parameters became {self.parameters[1]:,}; {saved:,.1f} MB of float32 saved",
        ]
        for name, count in self.tokens.items():
            change = 100 * (count.after / max(count.before, 1) - 1)
            lines.append(
                f"{name}: {count.before:,} tokens became {count.after:,} ({change:+.2f} %) in {count.texts:,} lines; "
                f"{count.same:,} of them need kept pieces alone, and all of these are cut as before"
            )
        lines.append(
            f"logits of kept pieces at {self.compared} positions differ by at most {self.difference:.1e}; "
            "log-probabilities are higher by what the pieces that are gone had"
            if self.compared
            else "no line of the text needs kept pieces alone, so no logits were compared"
        )
        return "\n".join([*lines, self.written.describe()])


def trim_to_hf(
    source: TrainedModel,
    texts: Texts,
    choice: Choice,
    dst: str | Path,
    *,
    multiple: int = 128,
    overwrite: bool = False,
    progress: Callable[[str], None] = lambda line: None,
) -> TrimReport:
    """Write the model with a vocabulary that has only the pieces the texts need, as a Hugging Face folder.

    The table of kept pieces (old id, new id, piece, count) lies in it. Raises ConversionError for a vocabulary of bytes
    or a destination that must not be written, VocabularyError for what cannot be trimmed, ParityError where a text that
    needs kept pieces alone is cut in another way or gets other logits; then nothing was written.
    """
    vocabulary_trim.check(choice)
    settings, dst = source.vocabulary, Path(dst)
    if not isinstance(settings, SentencePiece):
        raise ConversionError(source.lineage.origin, "has a vocabulary of bytes, which has no pieces to spare")
    recover(dst)
    check_place(dst, source.lineage, source.folder, overwrite)  # before all text is read
    old = build(settings)
    progress("counting pieces")
    counts = vocabulary_trim.count_pieces(old, (text for _, text in texts()))
    (model,) = old.files().values()
    trimmed = vocabulary_trim.trim(model, old.sentinels, counts, choice)
    with scratch(dst) as folder:
        path = folder / MODEL_FILE
        path.write_bytes(trimmed.model)
        smaller = replace(settings, path=str(path))
        new = build(smaller)
        moved = correspond(old, new)
        rows = padded(new.size, multiple)
        config, params = with_vocabulary(source.model, source.params, moved, rows)
        lineage = replace(source.lineage, moved_rows=moved.counts())
        target = replace(source, model=config, params=params, vocabulary=smaller, lineage=lineage)
        progress("comparing")
        tokens, batch = _compare_text(old, new, moved, texts)
        difference = _compare_logits(source, target, moved, batch) if len(batch) else 0.0
        beside = {TABLE: vocabulary_trim.table(pieces_of(model), trimmed, counts)}
        written = convert_to_hf(target, dst, overwrite=overwrite, beside=beside, progress=progress)
    return TrimReport(
        written,
        (old.size, new.size),
        (source.model.vocab_size, rows),
        (num_params(source.params), num_params(params)),
        tokens,
        difference,
        int((batch > 0).sum()),
    )


def _compare_text(
    old: Vocabulary, new: Vocabulary, moved: Correspondence, texts: Texts
) -> tuple[dict[str, Tokens], np.ndarray]:
    """Tokens before and after by name, and some texts of kept pieces as new ids, (texts, length) int32."""
    new_ids = np.full(old.size, -1, np.int64)
    for token, (old_id,) in enumerate(moved.old_ids):
        new_ids[old_id] = token
    tokens: dict[str, Tokens] = {}
    cut: list[list[int]] = []
    for name, text in texts():
        count = tokens.setdefault(name, Tokens())
        before, after = old.encode(text), new.encode(text)
        count.texts += 1
        count.before += len(before)
        count.after += len(after)
        expected = new_ids[before]
        if (expected < 0).any():
            continue
        if not np.array_equal(expected, after):
            raise ParityError(f"a text that needs kept pieces alone is cut in another way: {text[:100]!r}")
        count.same += 1
        if len(cut) < _ROWS and len(after):
            cut.append(after[:_LENGTH].tolist())
    width = max(map(len, cut), default=0)
    return tokens, np.array([row + [0] * (width - len(row)) for row in cut], np.int32).reshape(len(cut), width)


def _compare_logits(source: TrainedModel, target: TrainedModel, moved: Correspondence, new_BxT: np.ndarray) -> float:
    """Largest difference of a kept piece's logit, where both models read and write these ids. Raises ParityError."""
    old_ids = np.array([ids[0] for ids in moved.old_ids])
    before_BxTxV = logits(source.model, source.params, _batch(old_ids[new_BxT] * (new_BxT > 0)))[..., old_ids]
    after_BxTxV = logits(target.model, target.params, _batch(new_BxT))[..., : len(old_ids)]
    shown = new_BxT > 0
    difference = largest_difference(before_BxTxV[shown], after_BxTxV[shown])
    if not difference <= TOLERANCE * max(1.0, float(np.abs(before_BxTxV[shown]).max())):
        raise ParityError(f"logits of kept pieces differ by {difference:.2e} after trimming. Please report it")
    return difference


def logits(model: Model, params: T5, batch: Mapping[str, np.ndarray]) -> np.ndarray:
    """Logits of a batch in float32, (rows, target tokens, embedding rows)."""
    config = replace(model, dtype="float32", dropout=0.0, attention="einsum")
    return np.asarray(jax.jit(forward, static_argnums=1)(params, config, dict(batch)))


def _batch(ids_BxT: np.ndarray) -> dict[str, np.ndarray]:
    ids_BxT = ids_BxT.astype(np.int32)
    return {
        "encoder_input_tokens": ids_BxT,
        "decoder_target_tokens": ids_BxT,
        "decoder_input_tokens": np.pad(ids_BxT, ((0, 0), (1, 0)))[:, :-1],
    }
