"""`spanloom vocab check VOCABULARY [--text FILES]`: what a vocabulary does to text."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from spanloom.cli.parsing import options

ABOUT = """Sentinels of a vocabulary and, on your text, unknown tokens, tokens a word, and all that does not come back.

VOCABULARY is a SentencePiece file, `bytes`, a run, one of its checkpoints/STEP, a Hugging Face folder or a checkpoint
of T5X. Each file has a row of its own, NAME=FILES make one together.

    spanloom vocab check my.model --text 'corpus/*.jsonl.gz'
    spanloom vocab check runs/a --text de='de/*.txt' sv='sv/*.txt' --json
"""
_MOST = 12  # characters of a text that are listed


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code: 0, or 1 with --strict and something to warn of."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class Options:
        vocabulary: Annotated[Positional[str], arg(metavar="VOCABULARY")]
        """A .model file, bytes, a run, a checkpoint or a Hugging Face folder."""
        text: tuple[str, ...] = ()
        """Files or globs, or NAME=FILES: .txt, .jsonl, .csv, .tsv, .parquet; compressed ones too."""
        which: str = "last"
        """Checkpoint of a run: last, best, or a step."""
        extra_ids: int = 100
        """Sentinels appended to a file that has none of its own."""
        strict: bool = False
        """Exit with 1 if there is anything to warn of."""
        json: bool = False
        """Print JSON in place of tables."""
        field: str = "text"
        """Field of a row that holds the text, or a template such as '{title}: {text}'."""
        unit: Literal["line", "document"] = "document"
        """What one text is in a .txt file: each line, or the whole file, so that newlines are looked at."""
        format: Literal["auto", "txt", "jsonl", "csv", "tsv", "parquet"] = "auto"
        """Format of the files; auto goes by the name."""
        encoding: str = "utf-8"
        """Text encoding of the files."""
        errors: Literal["strict", "replace", "skip"] = "strict"
        """What to do with bad input: stop, replace bytes, or skip and count."""

    chosen = options(Options, argv, "spanloom vocab check", "VOCABULARY [--text FILES] [flags]", ABOUT)
    from spanloom.cli.vocab_subject import find_vocabulary
    from spanloom.cli.vocab_texts import read, sources
    from spanloom.vocabularies.build import build
    from spanloom.vocabularies.check import check_sentinels, check_texts, findings

    subject = find_vocabulary(chosen.vocabulary, chosen.which, chosen.extra_ids)
    vocabulary = build(subject.settings)
    settings = {name: getattr(chosen, name) for name in ("field", "unit", "format", "encoding", "errors")}
    named = sources(chosen.text, **settings) if chosen.text else {}
    sentinels = check_sentinels(vocabulary)
    checks = [check_texts(vocabulary, name, read(source)) for name, source in named.items()]
    found = findings(vocabulary, subject.rows, sentinels, checks)
    if chosen.json:
        print(json.dumps(_data(subject, vocabulary, sentinels, checks, found), indent=2, ensure_ascii=False))
    else:
        print("\n".join([*_head(subject, vocabulary, sentinels), *_tables(checks), *_warnings(found)]))
    return 1 if chosen.strict and found else 0


def _data(subject: Any, vocabulary: Any, sentinels: Any, checks: Iterable[Any], found: Iterable[Any]) -> dict[str, Any]:
    shares = ("unknown_share", "tokens_a_word", "bytes_a_token", "lost_characters")
    return {
        "vocabulary": subject.name,
        "ids": vocabulary.size,
        "rows": subject.rows,
        "fingerprint": vocabulary.fingerprint(),
        "sentinels": asdict(sentinels) | {"order": sentinels.order},
        "texts": [
            asdict(check)
            | {name: getattr(check, name) for name in shares}
            | {"lost": [asdict(lost) | {"share": lost.share} for lost in check.lost]}
            for check in checks
        ],
        "warnings": [asdict(finding) for finding in found],
    }


def _head(subject: Any, vocabulary: Any, sentinels: Any) -> list[str]:
    rows = "" if subject.rows is None else f" in {subject.rows:,} rows"
    lines = [f"vocabulary  {subject.name}", f"ids         {vocabulary.size:,}{rows}"]
    special = f"padding {vocabulary.pad_id}, end of sequence {vocabulary.eos_id}, unknown {vocabulary.unk_id}"
    if not sentinels.ids:
        return [*lines, f"special     {special}", "sentinels   none"]
    written = (
        f"{len(sentinels.written)} of them can be written in text" if sentinels.written else "text cannot hold them"
    )
    place = ", at the start of a word only" if sentinels.written and not sentinels.inside_words else ""
    first = ", ".join(f"<extra_id_{n}> {token}" for n, token in enumerate(sentinels.ids[:2]))
    return [
        *lines,
        f"special     {special}",
        f"sentinels   {len(sentinels.ids)}, {sentinels.order}: {first}, ...; {written}{place}",
    ]


def _tables(checks: Sequence[Any]) -> list[str]:
    if not checks:
        return ["", "--text FILES shows what it does to text"]
    head = ("text", "texts", "changed", "words", "tokens", "tokens/word", "bytes/token", "unknown", "lost characters")
    rows = [
        (
            check.name,
            f"{check.texts:,}",
            f"{check.changed_texts:,}",
            f"{check.words:,}",
            f"{check.tokens:,}",
            f"{check.tokens_a_word:.3f}",
            f"{check.bytes_a_token:.3f}",
            f"{check.unknown:,} ({100 * check.unknown_share:.3g} %)",
            f"{check.lost_characters:,} ({100 * check.lost_characters / max(check.characters, 1):.3g} %)",
        )
        for check in checks
    ]
    lost = [
        (
            check.name,
            _shown(one.character),
            f"U+{ord(one.character):04X}",
            one.kind,
            f"{one.count:,} of {one.of:,}",
            f"{100 * one.share:.3g} %",
            one.becomes,
            repr(one.examples[0])[1:-1] if one.examples else "",
        )
        for check in checks
        for one in check.lost[:_MOST]
    ]
    more = [
        f"{check.name}: and {len(check.lost) - _MOST:,} other characters (--json lists them)"
        for check in checks
        if len(check.lost) > _MOST
    ]
    lines = ["", *_aligned([head, *rows])]
    if lost:
        lines += [
            "",
            *_aligned([("text", "lost", "", "kind", "count", "share", "becomes", "first example"), *lost]),
            *more,
        ]
    return lines


def _shown(character: str) -> str:
    return character if character.isprintable() and not character.isspace() else repr(character)[1:-1]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _warnings(found: Iterable[Any]) -> list[str]:
    return ["", *(f"warning: {one.what}; {one.fix}" for one in found)]
