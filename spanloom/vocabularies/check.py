"""What a vocabulary does to text: what is unknown, how many tokens it takes, and what does not come back."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from spanloom.vocabularies.vocabulary import Vocabulary

Kind = str
"""newline, tab, space (one of several, or at an end), other blank, unknown or normalised."""
_PART = 100_000  # characters encoded at a time; a longer text is cut at a blank
_BETWEEN = re.compile(r"(?<=\S) (?=\S)")
_AROUND = 12  # characters shown on either side of one that is lost
_EXAMPLES = 3
_UNKNOWN = " \u2047 "  # how SentencePiece writes an unknown token
_SPARE = re.compile(r"(?<=\s) |\A | \Z")  # spaces after a blank and at the ends
_BLANKS = {"\n": "newline", "\t": "tab", " ": "space"}


@dataclass(frozen=True)
class Lost:
    """A character that decoding does not give back."""

    character: str
    kind: Kind
    """newline, tab, space, other blank, unknown or normalised."""
    count: int
    """How many are lost."""
    of: int
    """How many there were."""
    becomes: str
    """What is there in its place; empty: nothing, or a space."""
    examples: tuple[str, ...]
    """Text around the first ones."""

    @property
    def share(self) -> float:
        """Lost ones among all of this character."""
        return self.count / self.of


@dataclass(frozen=True)
class TextCheck:
    """What a vocabulary makes of the texts of one name."""

    name: str
    texts: int
    changed_texts: int
    """Texts that are not the same after encoding and decoding."""
    characters: int
    bytes: int
    words: int
    """Stretches between blanks."""
    tokens: int
    unknown: int
    """Tokens that say no more than that something is there."""
    lost: tuple[Lost, ...] = ()
    """Most frequent first."""

    @property
    def unknown_share(self) -> float:
        """Unknown tokens among all tokens."""
        return self.unknown / max(self.tokens, 1)

    @property
    def tokens_a_word(self) -> float:
        """Tokens for a word."""
        return self.tokens / max(self.words, 1)

    @property
    def bytes_a_token(self) -> float:
        """Bytes of UTF-8 that a token stands for."""
        return self.bytes / max(self.tokens, 1)

    @property
    def lost_characters(self) -> int:
        """Characters that do not come back."""
        return sum(lost.count for lost in self.lost)


@dataclass(frozen=True)
class SentinelCheck:
    """The sentinels of a vocabulary."""

    ids: tuple[int, ...]
    """In order of use."""
    written: tuple[int, ...]
    """Numbers N of those that text can hold: `<extra_id_N>`, as a word of its own, is that one id."""
    inside_words: bool
    """Whether it is so in the middle of a word, too."""

    @property
    def order(self) -> str:
        """descending (T5's), ascending (ByT5's), or mixed."""
        steps = {second - first for first, second in zip(self.ids, self.ids[1:], strict=False)}
        return {frozenset([-1]): "descending", frozenset([1]): "ascending"}.get(frozenset(steps), "mixed")


def check_sentinels(vocabulary: Vocabulary) -> SentinelCheck:
    """Which sentinels there are, and whether text can hold them."""
    sentinels = vocabulary.sentinels
    written = [n for n, token in enumerate(sentinels) if token in vocabulary.encode(f"a <extra_id_{n}> b")]
    inside = bool(sentinels) and sentinels[0] in vocabulary.encode("a<extra_id_0>b")
    return SentinelCheck(sentinels, tuple(written), inside)


@dataclass
class _Counts:
    texts: int = 0
    changed: int = 0
    characters: int = 0
    bytes: int = 0
    words: int = 0
    tokens: int = 0
    unknown: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)


def check_texts(vocabulary: Vocabulary, name: str, texts: Iterable[str]) -> TextCheck:
    """Encode texts and decode them again, one by one; what is lost is counted character by character."""
    counts = _Counts()
    for text in texts:
        counts.texts += 1
        counts.changed += sum([_count(vocabulary, part, counts) for part in _parts(vocabulary, text, counts)]) > 0
    lost = tuple(_lost(vocabulary, character, count, counts) for character, count in counts.lost.most_common())
    c = counts
    return TextCheck(name, c.texts, c.changed, c.characters, c.bytes, c.words, c.tokens, c.unknown, lost)


def _count(vocabulary: Vocabulary, text: str, counts: _Counts) -> bool:
    """Whether the text is another one afterwards."""
    ids = vocabulary.encode(text)
    back = vocabulary.decode(ids[ids != vocabulary.eos_id])
    counts.characters += len(text)
    counts.bytes += len(text.encode("utf-8"))
    counts.words += len(text.split())
    counts.tokens += len(ids)
    counts.unknown += int((ids == vocabulary.unk_id).sum())
    here = Counter(text)
    counts.seen += here
    if back == text:
        return False
    back = back.replace(_UNKNOWN, _UNKNOWN.strip())
    lost = here - Counter(back)
    # a newline that becomes a space must not hide a space that is gone
    if spaces := max(len(_SPARE.findall(text)) - len(_SPARE.findall(back)), 0):
        lost[" "] = spaces
    else:
        del lost[" "]
    for character, count in lost.items():
        counts.lost[character] += count
        shown = counts.examples.setdefault(character, [])
        if len(shown) < _EXAMPLES:
            shown += _around(text, character, _EXAMPLES - len(shown))
    return True


def _around(text: str, character: str, most: int) -> Iterator[str]:
    """The text around the first places of a character; of spaces only those that can be spared."""
    wanted = _SPARE if character == " " else re.compile(re.escape(character))
    for place in islice(wanted.finditer(text), most):
        yield text[max(place.start() - _AROUND, 0) : place.end() + _AROUND]


def _lost(vocabulary: Vocabulary, character: str, count: int, counts: _Counts) -> Lost:
    kind, becomes = _kind_of(vocabulary, character)
    return Lost(character, kind, count, counts.seen[character], becomes, tuple(counts.examples[character]))


def _kind_of(vocabulary: Vocabulary, character: str) -> tuple[Kind, str]:
    """Why a character is lost, and what becomes of it between two words."""
    if character in _BLANKS:
        return _BLANKS[character], ""
    if character.isspace():
        return "other blank", ""
    ids = vocabulary.encode(f"a {character} a")
    if vocabulary.unk_id in ids:
        return "unknown", ""
    return "normalised", vocabulary.decode(ids)[1:-1].strip()


def _parts(vocabulary: Vocabulary, text: str, counts: _Counts) -> Iterator[str]:
    """The text in parts that are short enough to encode at once.

    They are cut at single spaces, which are counted here: at an end of a text a space may be lost that is kept inside.
    """
    of_space = len(vocabulary.encode("a a")) - 2 * len(vocabulary.encode("a"))
    begin = 0
    while len(text) - begin > _PART:
        space = max(
            (place.start() for place in _BETWEEN.finditer(text, begin + _PART // 2, begin + _PART)), default=None
        )
        end = begin + _PART if space is None else space
        yield text[begin:end]
        begin = end
        if space is not None:
            begin += 1
            counts.characters += 1
            counts.bytes += 1
            counts.tokens += of_space
            counts.seen[" "] += 1
    yield text[begin:]


@dataclass(frozen=True)
class Finding:
    """Something that a user should know of a vocabulary."""

    what: str
    fix: str


def findings(
    vocabulary: Vocabulary, rows: int | None, sentinels: SentinelCheck, checks: Iterable[TextCheck]
) -> tuple[Finding, ...]:
    """What is wrong with a vocabulary for span corruption, and on these texts; `rows`: of the embedding, if known."""
    return tuple(_findings(vocabulary, rows, sentinels, checks))


def _findings(
    vocabulary: Vocabulary, rows: int | None, sentinels: SentinelCheck, checks: Iterable[TextCheck]
) -> Iterator[Finding]:
    if not sentinels.ids:
        yield Finding(
            "it has no sentinels, so span corruption is impossible with it",
            "set sentinels=appended with extra_ids=100, or train it with --sentinels 100",
        )
    if rows is not None and rows < vocabulary.size:
        yield Finding(
            f"it has {vocabulary.size:,} ids and the embedding {rows:,} rows: it is not this checkpoint's vocabulary",
            "name the vocabulary that the checkpoint was trained with",
        )
    for check in checks:
        for kind, fix in _FIXES.items():
            lost = [one for one in check.lost if one.kind == kind]
            if lost:
                total, of = sum(one.count for one in lost), sum(one.of for one in lost)
                named = "" if kind in _BLANKS.values() else f": {', '.join(repr(one.character) for one in lost[:5])}"
                share = f" ({100 * check.unknown_share:.2g} % of the tokens)" if kind == "unknown" else ""
                yield Finding(f"{check.name}: {total:,} of {of:,} are lost, {kind}{share}{named}", fix)


_KEEP = "train one with --whitespace keep, or write them as symbols before"
_FIXES = {
    "newline": _KEEP,
    "tab": _KEEP,
    "space": "train one with --whitespace keep, if repeated spaces and those at the ends of a text matter",
    "other blank": _KEEP,
    "unknown": "train one with --byte-fallback true or with these as --symbols, or replace them before",
    "normalised": "train one with --normalization identity, if they matter",
}
