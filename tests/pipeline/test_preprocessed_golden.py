"""t5.data's text preprocessors as tasks use them: rows in, a store out, in the order and the words of the reference."""

import json
from collections.abc import Mapping

import pytest
from golden_data import golden_dir

from spanloom.pipeline.store import open_or_build_all
from spanloom.settings.objectives import Supervised
from spanloom.settings.row_sources import RowFiles
from spanloom.settings.task import Task
from spanloom.settings.vocabulary import Bytes
from spanloom.tasks import text_preprocessors as pp
from spanloom.vocabularies.build import build

BYTES = build(Bytes())
MADE = {
    "lm": pp.lm, "trivia_qa": pp.trivia_qa, "squad_span_space_tokenized": pp.squad_span_space_tokenized,
    "translate": pp.Translate, "multi_translate": pp.MultiTranslate, "summarize": pp.Summarize, "squad": pp.Squad,
    "glue": pp.Glue, "wsc_simple": pp.WscSimple, "parse_tsv": pp.ParseTsv, "preprocess_tsv": pp.PreprocessTsv,
    "definite_pronoun_resolution_simple": pp.DefinitePronounResolutionSimple,
    "rank_classification_formatter": pp.RankClassificationFormatter,
}  # fmt: skip


def stored(tmp_path, rows, *preprocessors):
    """(inputs, targets) of every example of the store."""
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    source = RowFiles((str(path),), heldout_share=0.0)
    task = Task("golden", source, objective=Supervised(), preprocessors=preprocessors)
    store = open_or_build_all(task, {"train": tmp_path / "store"}, BYTES, shard_bytes=500, workers=2)["train"]
    columns = store.columns["inputs"], store.columns["targets"]
    return [tuple(BYTES.decode(column.row(i)) for column in columns) for i in range(store.num_rows)]


def preprocessor_of(row):
    name, args = row["preprocessor"], row["args"]
    if name == "glue_config":
        suite = {"Glue": "glue", "SuperGlue": "super_glue"}[args["suite"]]
        return pp.glue_preprocessor(f"{suite}/{args['config']}", args["label_classes"] or ())
    made = MADE.get(name)
    return made(**args) if isinstance(made, type) else made


def cases():
    lines = (golden_dir("seqio") / "text_preprocessors.jsonl").read_text(encoding="utf-8").splitlines()
    for row in map(json.loads, lines):
        outputs = row.get("outputs", [])
        is_text = all(isinstance(one.get(side), str) for one in outputs for side in ("inputs", "targets"))
        if outputs and is_text and not row["defective"] and (preprocessor_of(row) is not None):
            yield row


@pytest.mark.golden
def test_every_case_of_text_comes_out_of_a_store_as_the_reference_has_it(tmp_path):
    seen = set()
    for number, row in enumerate(cases()):
        (tmp_path / str(number)).mkdir()
        rows = [one if isinstance(one, Mapping) else {"text": one} for one in row["inputs"]]
        found = stored(tmp_path / str(number), rows, preprocessor_of(row))
        assert found == [(one["inputs"], one["targets"]) for one in row["outputs"]], (row["preprocessor"], row["args"])
        seen.add(row["preprocessor"])
    assert len(seen) >= 10


@pytest.mark.short
def test_a_case_of_ones_own(tmp_path):
    rows = [{"de": f"Satz {i}", "en": f"sentence {i}", "idx": i} for i in range(40)]
    found = stored(tmp_path, rows, pp.Translate("en", "de"), pp.Lowercase(("targets",)))
    assert found == [(f"translate English to German: sentence {i}", f"satz {i}") for i in range(40)]
