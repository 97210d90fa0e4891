"""A SentencePiece model (Kudo and Richardson 2018) learnt from text, with T5's special ids and sentinels.

The same text and settings give the same file on every machine: which lines are learnt from follows from their number
and the seed, and the learning runs with as many threads everywhere. Memory follows from `megabytes`, not from the text.
"""

import hashlib
import heapq
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import sentencepiece

from spanloom.settings.vocabulary import MOST_EXTRA_IDS
from spanloom.vocabularies.model_file import append_user_defined
from spanloom.vocabularies.sentencepiece import check_model
from spanloom.vocabularies.vocabulary import VocabularyError, padded

Normalization = Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"]
_LONGEST = 4000  # bytes of a line; the library passes lines over, saying nothing, that are longer than 4,192
_THREADS = 16  # sums of floats depend on how many there are, so the machine must not decide
_RESERVED = "\u2585"  # the library passes over lines that hold it
_SPECIAL_PIECES = ("<pad>", "</s>", "<unk>")
_SPECIAL = len(_SPECIAL_PIECES)
_MOST_PIECES = 10_000_000
_MOST_MEGABYTES = 10_000_000


@dataclass(frozen=True)
class Training:
    """How a model is learnt."""

    size: int = 32_000
    """Pieces, the three special ones included; sentinels come after them."""
    sentinels: int = 100
    """Sentinels in the file, <extra_id_0> the highest id of all (as T5's are, and mT5's file has them); 0: none in the
    file, as in T5's own, so that whoever uses it appends them."""
    kind: Literal["unigram", "bpe"] = "unigram"
    """unigram (T5's) or bpe."""
    whitespace: Literal["collapse", "keep"] = "collapse"
    """collapse: newlines, tabs and repeated spaces become one space (T5's); keep: text comes back as it was."""
    normalization: Normalization | None = None
    """Rules for characters; unset: nmt_nfkc (T5's) where whitespace collapses, else identity."""
    character_coverage: float = 0.9995
    """Share of the text whose characters get pieces of their own; the rest is unknown, or bytes."""
    byte_fallback: bool = True
    """Characters without a piece are written as bytes, and none is unknown."""
    symbols: tuple[str, ...] = ()
    """Strings that are always one piece."""
    megabytes: float = 200.0
    """Text learnt from, at most: if there is more, a random sample of its lines."""
    seed: int = 0
    """Which sample."""


@dataclass(frozen=True)
class Trained:
    """What was learnt."""

    model: bytes
    """The file."""
    lines: int
    """Lines of text that were read."""
    learnt_lines: int
    """Of these, how many it was learnt from."""
    learnt_bytes: int
    """Their text in UTF-8."""
    size: int
    """Ids, sentinels included."""

    @property
    def rows(self) -> int:
        """Rows of an embedding for it, a multiple of 128 as T5 has it."""
        return padded(self.size)


def check(training: Training) -> None:
    """Raise VocabularyError, naming the fix, for settings that make no model."""
    if not _SPECIAL < training.size <= _MOST_PIECES:
        raise VocabularyError(
            f"--size {training.size}: must be above {_SPECIAL}, the special pieces, and at most {_MOST_PIECES:,}"
        )
    if not 0 <= training.sentinels <= MOST_EXTRA_IDS:
        raise VocabularyError(
            f"--sentinels {training.sentinels}: must be 0 or more (T5 has 100), and at most {MOST_EXTRA_IDS:,}"
        )
    if not 0.98 <= training.character_coverage <= 1:
        raise VocabularyError(f"--character-coverage {training.character_coverage}: must be from 0.98 to 1")
    if not 0 < training.megabytes <= _MOST_MEGABYTES:
        raise VocabularyError(f"--megabytes {training.megabytes}: must be above 0, and at most {_MOST_MEGABYTES:,}")
    if training.whitespace == "keep" and (training.normalization or "").startswith("nmt_"):
        raise VocabularyError(
            f"--normalization {training.normalization} makes spaces of newlines and tabs, so --whitespace keep cannot "
            "hold: give --normalization identity or nfkc"
        )
    _check_symbols(training)


def _check_symbols(training: Training) -> None:
    for symbol in training.symbols:
        if not symbol or any(letter.isspace() for letter in symbol):
            raise VocabularyError(
                f"--symbols {symbol!r}: a symbol must not be empty and must hold no blanks (--whitespace keep makes "
                "symbols of newline and tab)"
            )
        if any("\ud800" <= letter <= "\udfff" or letter == "\0" for letter in symbol):
            raise VocabularyError(f"--symbols {symbol!r}: holds what is no character (is the shell's text UTF-8?)")
        if re.fullmatch("\u2581?<extra_id_\\d+>", symbol):
            raise VocabularyError(f"--symbols {symbol}: that is a sentinel; --sentinels says how many there are")
        if symbol in _SPECIAL_PIECES:
            raise VocabularyError(f"--symbols {symbol}: every model has this special piece already; leave it out")
        if training.byte_fallback and re.fullmatch("<0x[0-9A-F]{2}>", symbol):
            raise VocabularyError(f"--symbols {symbol}: that is the piece of a byte; leave it out (--byte-fallback)")
    if doubled := next((symbol for symbol in training.symbols if training.symbols.count(symbol) > 1), None):
        raise VocabularyError(f"--symbols {doubled} is named twice")


def train(texts: Iterable[str], training: Training) -> Trained:
    """Learn a model from texts, read once and one by one.

    Raises VocabularyError where there is no text in them, or they hold too few or too many pieces for the size.
    """
    check(training)
    sample = Sample(int(training.megabytes * 1e6), training.seed)
    for text in texts:
        for line in lines_of(text, training.whitespace):
            sample.add(line)
    lines = sample.lines()
    if not lines:
        raise VocabularyError("there is no text to learn from: name files that hold some")
    model = _learnt(lines, training)
    names = [f"\u2581<extra_id_{number}>" for number in reversed(range(training.sentinels))]
    whole = append_user_defined(model, names)
    size = check_model(whole, "the model that was learnt")
    return Trained(whole, sample.seen, len(lines), sum(map(len, lines)), size)


def lines_of(text: str, whitespace: Literal["collapse", "keep"] = "collapse") -> Iterator[str]:
    """The lines of a text without blank ones, each short enough to be learnt from; no character but blanks is lost.

    What would make the library pass over a line is left out of it: NUL, and its own mark for boundaries, U+2585.
    """
    ends = "\n" if whitespace == "collapse" else "[\n\t]"  # a tab is a symbol of its own there, and splits words
    for line in re.split(ends, text):
        line = line.replace("\0", " ").replace(_RESERVED, " ")
        if line.strip():
            yield from _short(line)


def _short(line: str) -> Iterator[str]:
    """Parts of at most so many bytes, cut at blanks where there are any."""
    widest = _LONGEST // 4  # characters: a UTF-8 character has at most four bytes
    while len(line) > widest and len(line.encode()) > _LONGEST:
        cut = line.rfind(" ", widest // 2, widest) + 1 or widest
        yield line[:cut]
        line = line[cut:]
    if line.strip():
        yield line


class Sample:
    """A random sample of lines of bounded size: those whose number, hashed with the seed, comes to least."""

    def __init__(self, most_bytes: int, seed: int) -> None:
        """Keeps lines of `most_bytes` in all."""
        self._room, self._seed = most_bytes, seed
        self._kept: list[tuple[int, int, bytes]] = []  # the line to drop next comes first
        self._bound = 1 << 64
        self.seen = 0

    def add(self, line: str) -> None:
        """One more line is there."""
        number, self.seen = self.seen, self.seen + 1
        digest = hashlib.blake2b(b"%d %d" % (self._seed, number), digest_size=8).digest()
        if (key := int.from_bytes(digest, "big")) >= self._bound:
            return
        content = line.encode("utf-8")
        heapq.heappush(self._kept, (-key, number, content))
        self._room -= len(content)
        while self._room < 0 and len(self._kept) > 1:
            least, _, dropped = heapq.heappop(self._kept)
            self._room += len(dropped)
            self._bound = min(self._bound, -least)

    def lines(self) -> list[bytes]:
        """Those kept, as UTF-8, in the order in which they came."""
        return [content for _, _, content in sorted(self._kept, key=lambda entry: entry[1])]


def _learnt(lines: list[bytes], training: Training) -> bytes:
    model, keep = io.BytesIO(), training.whitespace == "keep"
    symbols = [*(["\n", "\t"] if keep else []), *training.symbols]
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=training.kind,
            vocab_size=training.size,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=-1,
            normalization_rule_name=training.normalization or ("identity" if keep else "nmt_nfkc"),
            remove_extra_whitespaces=not keep,
            allow_whitespace_only_pieces=keep,
            character_coverage=training.character_coverage,
            byte_fallback=training.byte_fallback,
            user_defined_symbols=symbols,
            num_threads=_THREADS,
            train_extremely_large_corpus=training.megabytes > 1000,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise VocabularyError(_why(str(error), training)) from error
    return model.getvalue()


def _why(message: str, training: Training) -> str:
    """The library's complaint in the words of our settings."""
    if found := re.search(r"too high \(\d+\).*<= (\d+)", message):
        return (
            f"--size {training.size} is more than this text has pieces for: the largest possible is {found[1]} "
            f"(--size {found[1]}), or give more text"
        )
    if found := re.search(r"smaller than required_chars. \d+ vs (\d+)", message):
        of_bytes = " (256 of them bytes: --byte-fallback false)" if training.byte_fallback else ""
        return (
            f"--size {training.size} is too small: the single characters alone and what always has a piece are "
            f"{found[1]}{of_bytes}. Raise --size, or lower --character-coverage ({training.character_coverage})"
        )
    return f"SentencePiece could learn no model from this text: {message}"
