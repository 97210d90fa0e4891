"""Labelled data sets as their authors published them, made up and small: odd encodings, marks and quotes included."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

LANGUAGES = {"aba": str.maketrans("abcdo", "ɐβɕðɔ"), "bab": str.maketrans("abcdo", "ɛpkto")}
"""Two languages of the same letters, and which sound each letter is: nothing but its name tells which one it is."""


PARTS = ("name", "inputs", "targets", "answer_choices")
TEMPLATES = {
    "rotten_tomatoes": [
        (name, "{{text}} Good?", "{{answer_choices[label]}}", "bad ||| good")
        for name in ("Text Expressed Sentiment", "Reviewer Expressed Sentiment", "Reviewer Enjoyment")
    ],
    "trec": [
        (
            name,
            "What is asked? {{text}}",
            "{{answer_choices[label_coarse]}}",
            "how ||| what ||| abbr ||| who ||| n ||| where",
        )
        for name in ("trec1", "trec2", "what_category_best_describe", "fine_grained_open")
    ],
    "sick": [
        (name, "{{sentence_A}} So {{sentence_B}}?", "{{answer_choices[label]}}", "yes ||| maybe ||| no")
        for name in ("A entails B?", "B entails A?")
    ],
    "glue/mrpc": [
        (name, "{{sentence1}} {{sentence2}} Same?", "{{answer_choices[label]}}", "no ||| yes")
        for name in ("equivalent", "same thing")
    ],
    "super_glue/copa": [
        (
            "choose",
            "{{premise}} {{question}}: {{choice1}} {{choice2}}",
            "{{answer_choices[label]}}",
            "{{choice1}} ||| {{choice2}}",
        )
    ],
}
"""A few templates of the names that the README's commands ask for."""


def write_words(folder: Path, train: int = 600, other: int = 40) -> None:
    """folder/{train,dev,test}/{language}_{part}.tsv, as SIGMORPHON 2020 has them; no word is in two parts."""
    words = sorted({f"{a}{b}{c}{d}{e}" for a in "bcd" for b in "ao" for c in "bcd" for d in "abcdo" for e in "abcdo"})
    words += [word[::-1] + "a" for word in words]
    for language, sounds in LANGUAGES.items():
        start = 0
        for part, count in (("train", train), ("dev", other), ("test", other)):
            # a step that shares no factor with the number of words takes each one once
            chosen = [words[(start + number) * 7 % len(words)] for number in range(count)]
            start += count
            (folder / part).mkdir(parents=True, exist_ok=True)
            lines = (f"{word}\t{' '.join(word.translate(sounds))}\n" for word in chosen)
            (folder / part / f"{language}_{part}.tsv").write_text("".join(lines), encoding="utf-8")


def write_labelled(folder: Path, rows: int = 60) -> None:
    """What `examples/prompted_small/prepare.py` reads."""
    for name, content in _files(rows).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def _files(rows: int) -> dict[str, bytes]:
    verdicts = {"neg": "dull \x85 and caf\xe9s", "pos": "good \x85 and caf\xe9s"}
    classes = ("DESC:manner", "ENTY:cremat", "ENTY:animal", "ABBR:exp", "HUM:ind", "NUM:date", "LOC:city")
    judgments = ("ENTAILMENT", "NEUTRAL", "CONTRADICTION")
    files = {
        f"movie_reviews/rt-polarity.{kind}": "".join(f"film {n} is {text} . \n" for n in range(rows)).encode("latin-1")
        for kind, text in verdicts.items()
    }
    for name in ("train", "test"):
        lines = (f"{classes[n % len(classes)]} What is thing {n} , se\xf1or ?\n" for n in range(rows))
        files[f"trec/TREC.{name}"] = "".join(lines).encode("latin-1")
    head = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\r\n"
    for name in ("train", "trial", "test_annotated"):
        lines = (f"{n}\tA dog runs {n}\tA cat sits {n}\t3.{n % 10}\t{judgments[n % 3]}\r\n" for n in range(rows))
        files[f"sick/SICK_{name}.txt"] = (head + "".join(lines)).encode()
    head = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    for name, mark in (("train", "\ufeff"), ("val", ""), ("test", "")):
        lines = (f'{n % 2}\t{n}\t{n}\t"It is {n}, he said.\tHe said "it is {n}".\r\n' for n in range(rows))
        files[f"mrpc/msr-para-{name}.tsv"] = (mark + head + "".join(lines)).encode()
    items = "".join(
        f'<item id="{n}" asks-for="{("cause", "effect")[n % 2]}" most-plausible-alternative="{n % 3 % 2 + 1}">'
        f"<p>The thing {n} fell.</p><a1>It was pushed &amp; shoved.</a1><a2>It was blue.</a2></item>\n"
        for n in range(rows)
    )
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE copa-corpus SYSTEM "copa.dtd">\n'
    copa = f"{head}<copa-corpus>{items}</copa-corpus>".encode()
    return files | {"balanced_copa/balanced-copa-dev-all.xml": copa}
