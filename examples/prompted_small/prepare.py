"""Five labelled data sets, as their authors published them, to JSON lines with the columns that promptsource names.

    python examples/prompted_small/prepare.py LABELLED OUT

LABELLED holds, as they were published,

    movie_reviews/rt-polarity.{neg,pos}            Pang and Lee 2005: a sentence a line, in Windows-1252
    trec/TREC.{train,test}                         Li and Roth 2002: COARSE:fine and a question a line, in Latin-1
    sick/SICK_{train,trial,test_annotated}.txt     Marelli et al. 2014: tab separated
    mrpc/msr-para-{train,val,test}.tsv             Dolan and Brockett 2005: tab separated, quotes are but characters
    balanced_copa/balanced-copa-dev-all.xml        Kavumba et al. 2019: XML

OUT gets rotten_tomatoes, trec, sick and glue_mrpc, each with train.jsonl and validation.jsonl, and super_glue_copa with
validation.jsonl alone. Validation is every tenth review, TREC's test questions, SICK's trial pairs, MRPC's own
validation part, and all of balanced COPA. sick and glue_mrpc get their authors' test.jsonl, too: ten and three times as
many pairs, to judge by once the settings are chosen by validation.

OUT/text gets the examples to train on without their labels, a document each, both sentences of a pair in one.
"""

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

Rows = list[dict[str, Any]]
Parts = dict[str, Rows]
"""Rows by the split they are of: train, validation, and, where there are enough, test."""

COARSE = ("DESC", "ENTY", "ABBR", "HUM", "NUM", "LOC")
"""TREC's classes by the number that its templates know them by, which is the order in which they come first."""
ENTAILMENT = {"ENTAILMENT": (0, "A_entails_B"), "NEUTRAL": (1, "A_neutral_B"), "CONTRADICTION": (2, "A_contradicts_B")}
"""SICK's judgments of a pair of sentences: label, and what the second says to the first."""


def reviews(folder: Path) -> Parts:
    """text, label (0 is negative): every tenth of each kind is held out, the kinds by turns, so that the first
    few are of both.
    """
    kinds = [
        [{"text": line.strip(), "label": label} for line in _lines(folder / f"rt-polarity.{kind}", "cp1252")]
        for label, kind in enumerate(("neg", "pos"))
    ]
    train = [row for kind in kinds for number, row in enumerate(kind) if number % 10 != 9]
    held = [row for pair in zip(*(kind[9::10] for kind in kinds), strict=True) for row in pair]
    return {"train": train, "validation": held}


def questions(folder: Path) -> Parts:
    """text, label_coarse, label_fine: fine classes are numbered as they come first, whatever the coarse one."""
    fine: dict[str, int] = {}

    def read(name: str) -> Iterator[dict[str, Any]]:
        for line in _lines(folder / name, "latin-1"):
            label, _, text = line.partition(" ")
            coarse, _, kind = label.partition(":")
            number = fine.setdefault(kind, len(fine))
            yield {"text": text.strip(), "label_coarse": COARSE.index(coarse), "label_fine": number}

    return {"train": list(read("TREC.train")), "validation": list(read("TREC.test"))}


def sentence_pairs(folder: Path) -> Parts:
    """sentence_A, sentence_B, relatedness_score, label, entailment_AB."""

    def read(name: str) -> Iterator[dict[str, Any]]:
        for row in _table(folder / name):
            label, a_to_b = ENTAILMENT[row["entailment_judgment"]]
            yield {
                "sentence_A": row["sentence_A"],
                "sentence_B": row["sentence_B"],
                "relatedness_score": float(row["relatedness_score"]),
                "label": label,
                "entailment_AB": a_to_b,
            }

    names = {"train": "SICK_train.txt", "validation": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
    return {part: list(read(name)) for part, name in names.items()}


def paraphrases(folder: Path) -> Parts:
    """sentence1, sentence2, label (1: they say the same)."""

    def read(name: str) -> Iterator[dict[str, Any]]:
        for row in _table(folder / f"msr-para-{name}.tsv"):
            yield {"sentence1": row["#1 String"], "sentence2": row["#2 String"], "label": int(row["Quality"])}

    return {part: list(read(name)) for part, name in (("train", "train"), ("validation", "val"), ("test", "test"))}


def alternatives(folder: Path) -> Rows:
    """premise, choice1, choice2, question (cause or effect), label (0 is choice1)."""
    items = ElementTree.parse(folder / "balanced-copa-dev-all.xml").getroot().iter("item")
    return [
        {
            "premise": item.findtext("p"),
            "choice1": item.findtext("a1"),
            "choice2": item.findtext("a2"),
            "question": item.attrib["asks-for"],
            "label": int(item.attrib["most-plausible-alternative"]) - 1,
        }
        for item in items
    ]


def prepare(labelled: Path, out: Path) -> dict[str, int]:
    """Writes all of them; how many rows each file has."""
    data_sets = {
        "rotten_tomatoes": reviews(labelled / "movie_reviews"),
        "trec": questions(labelled / "trec"),
        "sick": sentence_pairs(labelled / "sick"),
        "glue_mrpc": paraphrases(labelled / "mrpc"),
    }
    files = {f"{name}/{part}.jsonl": rows for name, parts in data_sets.items() for part, rows in parts.items()}
    files["super_glue_copa/validation.jsonl"] = alternatives(labelled / "balanced_copa")
    for name, parts in data_sets.items():
        files[f"text/{name}.jsonl"] = [{"text": _text(row)} for row in parts["train"]]
    for name, rows in files.items():
        _write(out / name, rows)
    return {name: len(rows) for name, rows in files.items()}


def _text(row: dict[str, Any]) -> str:
    columns = ("text", "sentence_A", "sentence_B", "sentence1", "sentence2")
    return " ".join(row[column] for column in columns if column in row)


def _lines(path: Path, encoding: str) -> Iterator[str]:
    # \x85 is a line break to str.splitlines, and to Windows three dots
    with path.open(encoding=encoding, newline="\n") as file:
        yield from filter(None, (line.rstrip("\r\n") for line in file))


def _table(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)


def _write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    try:
        counts = prepare(Path(sys.argv[1]), Path(sys.argv[2]))
    except (OSError, ValueError, KeyError, ElementTree.ParseError) as error:
        raise SystemExit(f"{sys.argv[1]} is not as these data sets were published: {error!r}") from error
    for name, count in counts.items():
        print(f"{count:>7,} rows  {sys.argv[2]}/{name}")
