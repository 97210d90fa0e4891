"""Functions that the tests' tasks have for preprocessors, metrics and so on."""

from dataclasses import dataclass

PREFIX = "say: "


def prefixed(example):
    return {**example, "inputs": PREFIX + example["inputs"]}


def not_third(example, number):
    return number % 3 != 2


def doubled(example):
    yield example
    yield {**example, "inputs": example["inputs"] + "!"}


def shuffled(example, rng):
    words = example["inputs"].split()
    rng.shuffle(words)
    return {**example, "inputs": " ".join(words)}


def now_and_then(example, rng):
    return rng.random() < 0.5


def both(example, rng):
    return [example, example]


def lengths_told(example, run):
    return {**example, "inputs": f"{run.inputs_length} {run.targets_length} {example['inputs']}"}


def joined(example, between=" "):
    return {"inputs": between.join(example["words"]), "targets": str(len(example["words"]))}


def fails(example):
    return {"inputs": example["nothing"], "targets": ""}


def fails_late(example):
    yield example
    raise RuntimeError("after the first")


def fails_at_200(example, number):
    return example if number != 200 else example["none"]


def nothing(example):
    example["inputs"] = "changed in place"


def a_tuple(example):
    return (example,)


def texts(example):
    return ["a", "b"]


def text_of(example):
    return {"text": example["inputs"]}


def ids(example):
    return {"inputs": [5, 6, 7], "targets": example["targets"]}


def scored(example, number):
    return {"targets": example["targets"], **({} if number == 2 else {"score": number + 0.5})}


def paraphrase(example):
    """A row of the Microsoft Research Paraphrase Corpus with the names and numbers of GLUE."""
    sentences = {"sentence1": example["#1 String"], "sentence2": example["#2 String"]}
    return {**sentences, "label": int(example["Quality"]), "idx": int(example["#1 ID"])}


def same_first(targets, predictions):
    return {"same_first": sum(t[:1] == p[:1] for t, p in zip(targets, predictions, strict=True)) / len(targets)}


def with_input(text, example, is_target):
    return f"{example['inputs'][:3]}|{text}|{is_target}"


KEPT = []


def kept(targets, predictions):
    """Shows the test what it was given."""
    KEPT[:] = [targets, predictions]
    return {"count": len(targets)}


def no_dict(targets, predictions):
    return 0.5


def no_number(targets, predictions):
    return {"worst": "text"}


def fails_as_metric(targets, predictions):
    return {"share": 1 / 0}


def fails_to_post(text):
    raise ValueError("never")


def numbered(example, number):
    return {**example, "number": number}


@dataclass(frozen=True)
class Cut:
    """The inputs, cut."""

    most: int
    fields: tuple[str, ...] = ("inputs",)

    def __call__(self, example):
        return {**example, **{name: example[name][: self.most] for name in self.fields}}


@dataclass
class Loose:
    """May change while it is used."""

    def __call__(self, example):
        return example


class Plain:
    def method(self, example):
        return example

    def __call__(self, example):
        return example


def upper_text(example):
    return {**example, "text": example["text"].upper()}


def leaves(row):
    """Ends Python, as a script does."""
    raise SystemExit(3)


def score_gap(targets, scores):
    """Takes scores, so it is not for predictions."""
    return {"gap": max(scores) - min(scores)}


def with_choices(example):
    return {**example, "answer_choices": ["t1", "t2"], "label": 0}
