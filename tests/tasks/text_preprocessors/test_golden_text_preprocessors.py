"""Every case of the reference that names a preprocessor of ours; defective rows have their right answers here."""

import json
from inspect import signature

import pytest
from golden_data import golden_dir

from spanloom.tasks import text_preprocessors as pp

PLAIN = {
    "lm": pp.lm, "trivia_qa": pp.trivia_qa, "squad_span_space_tokenized": pp.squad_span_space_tokenized,
}  # fmt: skip
WITH_SETTINGS = {
    "rekey": pp.Rekey, "translate": pp.Translate, "multi_translate": pp.MultiTranslate, "summarize": pp.Summarize,
    "pad_nonspaced_languages": pp.PadNonspacedLanguages, "squad": pp.Squad, "glue": pp.Glue, "wsc_simple": pp.WscSimple,
    "definite_pronoun_resolution_simple": pp.DefinitePronounResolutionSimple, "parse_tsv": pp.ParseTsv,
    "preprocess_tsv": pp.PreprocessTsv, "rank_classification_formatter": pp.RankClassificationFormatter,
}  # fmt: skip
EOS = ("append_eos, then the task's right trim", "append_eos_after_trim, then the task's right trim")
# of the reference's token-level rows, those below are for tests/pipeline/test_objectives_golden.py
ELSEWHERE = {
    "reduce_concat_tokens", "split_tokens", "concatenate_and_split_to_fixed_length", "full_lm", "prefix_lm",
    "random_prefix_noise_mask (prefix_lm)",
}  # fmt: skip


def cases():
    lines = (golden_dir("seqio") / "text_preprocessors.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["preprocessor"] not in ELSEWHERE]


def build(row):
    name, args = row["preprocessor"], row["args"]
    if name in PLAIN:
        return PLAIN[name]
    if name == "glue_config":
        suite = {"Glue": "glue", "SuperGlue": "super_glue"}[args["suite"]]
        return pp.glue_preprocessor(f"{suite}/{args['config']}", args["label_classes"] or ())
    if name == "rank_classification":
        kept = tuple(args.get("passthrough_feature_keys", ()))
        return pp.RankClassification(
            lambda x: [x["inputs"]] * len(x["answer_choices"]), lambda x: x["answer_choices"],
            lambda x: [choice == x["targets"].strip() for choice in x["answer_choices"]], lambda x: 1.0,
            mode=args["mode"], passthrough_feature_keys=kept,
        )  # fmt: skip
    if name in EOS:
        return eos_and_trim(name, args)
    return WITH_SETTINGS[name](**{key: () if key == "key_map" and not value else value for key, value in args.items()})


def eos_and_trim(name, args):
    lengths = args["sequence_length"] or {"inputs": None, "targets": None}
    features = ("inputs", "targets") if args["features"] == "add_eos on both" else ("targets",)
    if name == EOS[0]:
        append = pp.AppendEos(features)
    else:
        append = pp.AppendEosAfterTrim({name: lengths[name] for name in features})
    return lambda example: {name: tokens[: lengths[name]] for name, tokens in append(example).items()}


def run(preprocessor, examples):
    outputs = []
    takes_number = "number" in signature(preprocessor).parameters
    for number, example in enumerate(examples):
        result = preprocessor(example, number) if takes_number else preprocessor(example)
        outputs += [result] if isinstance(result, dict) else list(result)
    return outputs


def equal(found, wanted):
    """Lists, texts and numbers that are the same; floats to 1e-6, a boolean stored as 0 or 1 as itself."""
    return found == pytest.approx(wanted, rel=1e-6) if isinstance(wanted, float) else found == wanted


@pytest.mark.golden
def test_every_case_that_is_not_defective():
    seen = set()
    for row in cases():
        if row["defective"]:
            continue
        if "error" in row:
            with pytest.raises(ValueError, match="columns"):
                run(build(row), row["inputs"])
            continue
        found = run(build(row), row["inputs"])
        for one, wanted in zip(found, row["outputs"], strict=True):
            assert one.keys() == wanted.keys(), (row["preprocessor"], row["args"])
            for name in wanted:
                assert equal(one[name], wanted[name]), (row["preprocessor"], row["args"], name)
        seen.add(row["preprocessor"])
    assert seen >= {*PLAIN, *WITH_SETTINGS, "glue_config", "rank_classification", *EOS}


RIGHT = {  # of the defective rows: what literal answers, spans and values give
    "a.c": [("abc a . c", "a . c"), ("the U . S . army", "u . s . ")],
    "c++": [("I like c + + a lot", "c + + ")],
    "(x": [("I like ( x a lot", " ( x")],
    "The (big) dog saw it .": "wsc text: The * (big) * dog saw # it # .",
    "A\\1": [("A\\1B {a b}", "A\\1!"), ("A\\1B {a b}", "{B}")],
    "A\\0x": [("A\\0x B", "A\\0x!"), ("A\\0x B", "no")],
    "has {b} inside": [("has {b} inside B", "has {b} inside!"), ("has {b} inside B", "no")],
    "My body cast a shadow over the grass.": [
        ("a The sun was rising.", "c My body cast a shadow over the grass."),
        ("b The grass was cut.", "d My body cast a shadow over the grass."),
    ],
}


@pytest.mark.golden
def test_what_the_reference_gets_wrong():
    rows = [row for row in cases() if row["defective"]]
    assert rows
    for row in rows:
        example = row["inputs"][0]
        found = run(build(row), [example])
        if row["preprocessor"] == "trivia_qa":
            question = "question: How many career sacks did Jared Allen have ? context: "
            right = RIGHT.get(example["answer"]["normalized_aliases"][0])
            expected = right and [(question + context, answer) for context, answer in right]
        elif row["preprocessor"] == "glue_config":
            right = RIGHT.get(example["text"])
            expected = right and [(right, "<unk>")]
        else:
            expected = RIGHT.get(example.get("a") or example.get("premise"))
            assert [one["is_correct"] for one in found] == [True, False]
        if expected:  # of further defective rows no right answer is known; they must not fail
            assert [(one["inputs"], one["targets"]) for one in found] == expected
