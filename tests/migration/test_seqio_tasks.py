"""SeqIO modules are imported where SeqIO and TensorFlow are not, and what they register becomes tasks."""

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import seqio_modules

from spanloom.migration.draft import Asked, FoundData, MigrationError
from spanloom.migration.seqio_tasks import finder_of
from spanloom.settings.feature import Feature
from spanloom.settings.function import Function
from spanloom.settings.mixture import BySize, Mixture
from spanloom.settings.objectives import SpanCorruption, Supervised
from spanloom.settings.row_sources import HuggingFaceDataset, TfdsFolder
from spanloom.settings.task import Task, TextFiles
from spanloom.settings.vocabulary import Bytes, SentencePiece

PAIRS = {"inputs": 1024, "targets": 256}
REKEY = "spanloom.tasks.text_preprocessors.rekeying:Rekey"


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """Stand-ins are gone after every import, whether it worked or not."""
    before, path, finders = dict(sys.modules), list(sys.path), list(sys.meta_path)
    yield
    for name in ("seqio", "t5", "tensorflow", "tensorflow_datasets", "datasets", "promptsource", "tasks", "t0"):
        assert sys.modules.get(name) is before.get(name)
        assert not [one for one in sys.modules if one.startswith(f"{name}.") and one not in before]
    assert sys.path == path and sys.meta_path == finders


def found(text: str, folder: Path, name: str, lengths: dict[str, int] | None = None, **asked: Any) -> FoundData:
    (folder / "tasks.py").write_text(text)
    return finder_of([str(folder / "tasks.py")])(Asked(name, lengths or PAIRS, **asked))


def lost(data: FoundData) -> dict[str, str]:
    return {note.what: f"{note.place}: {note.why}" for note in data.notes if note.kind == "lost"}


def test_hmbyt5(tmp_path: Path) -> None:
    made = found(seqio_modules.HMBYT5, tmp_path, "hm_corpus", {"inputs": 1024, "targets": 189}, heldout_split=None)
    assert isinstance(made.data, Mixture)
    assert [(part.part.name, part.rate) for part in made.data.parts] == [
        (f"{language}_corpus", 1.0) for language in ("en", "de", "fr", "fi", "sv", "nl")
    ]
    assert made.data.parts[0].part == Task(
        "en_corpus",
        TfdsFolder("~/tensorflow_datasets/en_dataset/1.0.0", "train", None),
        Bytes("google"),
        SpanCorruption(concat_documents=128, inputs_length=1024, mean_span_length=20.0),
    )
    assert lost(made) == {}


def test_a_stream_of_the_hub(tmp_path: Path) -> None:
    made = found(seqio_modules.ROMANIAN, tmp_path, "rlm_span_corruption_stream", {"inputs": 512, "targets": 256})
    assert made.data == Task(
        "rlm_span_corruption_stream",
        HuggingFaceDataset("dumitrescustefan/rlm", None, "train", "validation", streaming=True),
        SentencePiece("gs://myv4-bucket/sentencepiece/ro.model", "pieces"),
        SpanCorruption(concat_documents=128),
        preprocessors=(Function(REKEY, {"key_map": {"text": "content"}}),),
    )
    assert lost(made) == {}
    assert any("114 tokens" in note.why for note in made.notes)


def prompts(folder: Path) -> str:
    """Templates of four data sets, of which T0's module takes three."""
    pytest.importorskip("yaml")
    text = """
        dataset: {name}
        {subset}
        templates:
          a: !Template
            id: a{name}
            name: yes or no?
            jinja: "{{{{text}}}} Yes or no? ||| {{{{answer_choices[label]}}}}"
            answer_choices: no ||| yes
            metadata: !TemplateMetadata {{choices_in_prompt: true, metrics: [Accuracy], original_task: true}}
          b: !Template
            id: b{name}
            name: write
            jinja: "Write: ||| {{{{text}}}}"
            answer_choices: null
            metadata: !TemplateMetadata {{choices_in_prompt: false, metrics: [BLEU, Other], original_task: false}}
    """
    for name, subset in (("glue", "mrpc"), ("imdb", ""), ("big", ""), ("other", "")):
        place = folder / "templates" / name / subset
        place.mkdir(parents=True)
        one = textwrap.dedent(text).format(name=name, subset=f"subset: {subset}" if subset else "")
        (place / "templates.yaml").write_text(one)
    return str(folder)


def t0(folder: Path) -> str:
    package = folder / "t0" / "seqio_tasks"
    package.mkdir(parents=True)
    (folder / "t0" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("from . import tasks\n")
    (package / "utils.py").write_text(seqio_modules.T0_UTILS)
    (package / "tasks.py").write_text(seqio_modules.T0)
    return str(package / "tasks.py")


def test_t0(tmp_path: Path) -> None:
    finder = finder_of([t0(tmp_path)], [prompts(tmp_path / "prompts")])
    made = finder(Asked("t0_train", PAIRS))
    assert isinstance(made.data, Mixture)
    assert {part.part.name: part.rate for part in made.data.parts} == {
        "big_write": 250_000.0,
        "big_yes_or_no_": 250_000.0,
        "glue_mrpc_write": 3668.0,
        "glue_mrpc_yes_or_no_": 3668.0,
        "imdb_write": 25_000.0,
        "imdb_yes_or_no_": 25_000.0,
    }
    task = next(part.part for part in made.data.parts if part.part.name == "glue_mrpc_yes_or_no_")
    assert isinstance(task, Task)
    assert task.source == HuggingFaceDataset("glue", "mrpc", "train", "validation")
    assert task.vocabulary == SentencePiece("gs://t5-data/vocabs/cc_all.32000/sentencepiece.model", "appended")
    assert task.features == (Feature("inputs", add_eos=False), Feature("targets"))
    assert task.objective == Supervised(1024, 256, "trim")
    assert task.preprocessors[0].arguments["jinja"] == "{{text}} Yes or no? ||| {{answer_choices[label]}}"
    assert task.preprocessors[0].arguments["empty_target"] == "<NO LABEL>"
    assert str(task.postprocess) == "answer_number"
    written = next(part.part for part in made.data.parts if part.part.name == "big_write")
    assert isinstance(written, Task) and [str(one) for one in written.metrics] == ["bleu"]
    assert lost(made) == {}
    assert any("asked the Hub for its splits" in note.why for note in made.notes)
    round_2 = finder(Asked("other_write_r2", PAIRS)).data
    assert isinstance(round_2, Task)
    assert round_2.source == HuggingFaceDataset("other", None, "train_r2", "dev_r2")


def run_functions(made: FoundData) -> dict[str, Any]:
    """The functions that the recipe holds."""
    names: dict[str, Any] = {}
    exec("\n".join([*made.imports, *made.functions.values()]), names)
    return names


def test_functions_of_ones_own(tmp_path: Path) -> None:
    made = found(seqio_modules.OWN, tmp_path, "both")
    assert isinstance(made.data, Mixture)
    assert [(part.part.name, part.rate) for part in made.data.parts] == [
        ("qa", BySize(2**19, 2.0)),
        ("inner", 3.0),
        ("c4_v220_span_corruption", 1e6),
    ]
    qa = made.data.parts[0].part
    assert isinstance(qa, Task)
    assert qa.source == TextFiles(("/data/qa-train.tsv",), ("/data/qa-validation.tsv",), format="txt")
    assert [one.qualname for one in qa.preprocessors] == ["ParseTsv", "question", "prefixed"]
    assert [one.qualname for one in qa.metrics] == ["bleu", "rouge", "share_ended", "doubled"]
    functions = run_functions(made)
    row = functions["question"]({"question": "Who?", "context": "ABC", "answer": {"text": "a \n b"}})
    assert row == {"inputs": "question: Who? context: abc", "targets": "a b"}
    assert functions["prefixed"]({"inputs": "x", "targets": "y"}) == {"inputs": "qa x", "targets": "y"}
    assert functions["share_ended"](["a", "b"], ["a.", "b"]) == {"ended": 50.0}
    assert functions["clean"](" a ") == "a" and functions["doubled"]([], ["a", "a"]) == {"doubled": 1.0}


def test_what_is_tensorflow_is_named_with_file_line_and_a_rewrite(tmp_path: Path) -> None:
    made = found(seqio_modules.OWN, tmp_path, "inner")
    said = lost(made)
    lines = seqio_modules.OWN.splitlines()
    for name, why in (("words", "tensorflow.compat.v2.strings.split"), ("windows", "take run as a parameter")):
        line = lines.index(next(one for one in lines if one.startswith(f"def {name}("))) + 1
        assert said[name].startswith(f"{tmp_path / 'tasks.py'}:{line}: ") and why in said[name]
        assert "plain function of one example" in said[name]
        with pytest.raises(NotImplementedError, match=rf"tasks\.py:{line}"):
            run_functions(made)[name]({})
    assert "Spanloom has no neighboring_pairs" in said["neighboring_pairs"]


HEAD = """
import functools
import seqio
import tensorflow as tf
from t5.data import preprocessors
V = seqio.ByteVocabulary()
F = {"inputs": seqio.Feature(V), "targets": seqio.Feature(V)}
S = seqio.TfdsDataSource("a:1.0.0")
EOS = [seqio.preprocessors.tokenize, seqio.preprocessors.append_eos]


def add(*steps, source=S, name="x", **more):
    seqio.TaskRegistry.add(name, source=source, preprocessors=[*steps, *EOS], output_features=F, **more)


"""


def steps_of(text: str, folder: Path) -> tuple[Task, FoundData]:
    made = found(HEAD + text, folder, "x")
    assert isinstance(made.data, Task)
    return made.data, made


@pytest.mark.parametrize(
    ("step", "ours"),
    [
        ("functools.partial(preprocessors.translate, source_language='en', target_language='de')", "Translate"),
        ("preprocessors.squad", "Squad"),
        ("preprocessors.trivia_qa", "trivia_qa"),
        ("functools.partial(preprocessors.summarize, article_key='a', summary_key='b')", "Summarize"),
        ("functools.partial(preprocessors.glue, benchmark_name='cola', label_names=['a', 'b'])", "Glue"),
        ("functools.partial(preprocessors.preprocess_tsv, inputs_format='q {0}')", "PreprocessTsv"),
        ("preprocessors.lm", "lm"),
        ("functools.partial(seqio.preprocessors.rekey, key_map={'inputs': 'a', 'targets': 'b'})", "Rekey"),
    ],
)
def test_preprocessors_that_are_ours(step: str, ours: str, tmp_path: Path) -> None:
    task, made = steps_of(f"add({step})\n", tmp_path)
    assert [one.qualname for one in task.preprocessors] == [ours] and lost(made) == {}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def f(ds):\n    return ds.filter(lambda ex: True)\n", "asked for .filter"),
        ("def f(ds):\n    return ds.map(lambda ex: ex if ex['a'] == 1 else None)\n", "compared"),
        ("def f(ds):\n    return ds.map(lambda ex: {'inputs': f\"{ex['a']}\", 'targets': ''})\n", "f-string"),
        ("def f(ds):\n    return ds.map(lambda ex: {k: ex[k] for k in ex})\n", "looped over"),
        ("@seqio.map_over_dataset(num_seeds=2)\ndef f(ex, seeds):\n    return ex\n", "rng"),
        ("f = lambda ds: ds.apply(tf.data.experimental.unbatch())\n", "asked for .apply"),
        ("def f(ds):\n    raise ValueError('x')\n", "ValueError: x"),
        ("def f(ds):\n    raise SystemExit\n", "SystemExit"),
        ("f = preprocessors.next_sentence_prediction\n", "Spanloom has no next_sentence_prediction"),
        ("f = functools.partial(preprocessors.squad, nonsense=1)\n", "no argument nonsense"),
    ],
)
def test_code_that_is_not_followed_is_named(code: str, reason: str, tmp_path: Path) -> None:
    task, made = steps_of(f"{code}\n\nadd(f)\n", tmp_path)
    assert len(lost(made)) == 1 and reason in next(iter(lost(made).values()))
    assert len(task.preprocessors) == 1 and task.preprocessors[0].place == "recipe"


@pytest.mark.parametrize(
    ("code", "text", "made"),
    [
        ("tf.strings.lower(ex['a'])", "ÀB C", "Àb c"),
        ("tf.strings.lower(ex['a'], encoding='utf-8')", "ÀB C", "àb c"),
        ("tf.strings.upper(ex['a'])", "éa", "éA"),
        ("tf.strings.strip(ex['a'])", " \u00a0a\n", "\u00a0a"),
        (r"tf.strings.regex_replace(ex['a'], r'\W', '_')", "é a", "__a"),
        (r"tf.strings.regex_replace(ex['a'], 'a(b)', r'<\0>\10\\1')", "cab", r"c<ab>b0\1"),
    ],
)
def test_texts_are_changed_as_tensorflow_changes_them(code: str, text: str, made: str, tmp_path: Path) -> None:
    """Its functions of texts know ASCII's letters alone where no encoding is named, and RE2's classes always."""
    more = f"def f(ds):\n    return ds.map(lambda ex: {{'inputs': {code}, 'targets': 'x'}})\nadd(f)\n"
    _, data = steps_of(more, tmp_path)
    assert run_functions(data)["f"]({"a": text}) == {"inputs": made, "targets": "x"}


@pytest.mark.parametrize("pattern", [r"\pL", r"\z", "[[:alpha:]]"])
def test_a_pattern_that_python_has_not_is_named(pattern: str, tmp_path: Path) -> None:
    code = f"tf.strings.regex_replace(ex['a'], r'{pattern}', '')"
    _, data = steps_of(f"def f(ds):\n    return ds.map(lambda ex: {{'inputs': {code}}})\nadd(f)\n", tmp_path)
    assert len(lost(data)) == 1 and "Python" in next(iter(lost(data).values()))


def test_functions_of_one_name_do_not_stand_for_one_another(tmp_path: Path) -> None:
    (tmp_path / "first.py").write_text("def tidy(a):\n    return a.strip()\n")
    (tmp_path / "other.py").write_text(
        "from first import tidy as short\n\n\ndef same(targets, predictions):\n"
        "    return {'same': float([short(one) for one in targets] == predictions)}\n"
    )
    (tmp_path / "last.py").write_text(
        "def tidy(a):\n    return ''\n\n\n"
        "def empty(targets, predictions):\n    return {'empty': float(not tidy('a'))}\n"
    )
    more = "import last\nimport other\nadd(preprocessors.lm, metric_fns=[other.same, last.empty])\n"
    task, data = steps_of(more, tmp_path)
    assert [one.qualname for one in task.metrics] == ["same"]
    assert run_functions(data)["same"]([" a "], ["a"]) == {"same": 1.0}
    assert "another tidy" in lost(data)["metric of x"]


def test_renaming_inside_of_a_data_set_function(tmp_path: Path) -> None:
    task, made = steps_of(
        "def f(ds):\n    return ds.map(lambda ex: {'inputs': ex['q'], 'targets': ex['a']['b']})\nadd(f)\n", tmp_path
    )
    assert task.preprocessors == (Function(REKEY, {"key_map": {"inputs": "q", "targets": "a/b"}}),)
    assert made.functions == {}


def test_sources(tmp_path: Path) -> None:
    text = (
        HEAD
        + """
add(name="tf", source=seqio.TFExampleDataSource({"train": ["a", "b"], "validation": "c"}, {}))
lines = lambda split, shuffle_files, seed=None: tf.data.TextLineDataset(split)
add(name="own", source=seqio.FunctionDataSource(lines, ["train"]))
add(name="gen", source=seqio.FunctionDataSource(
    lambda split, shuffle_files: tf.data.Dataset.from_generator(lambda: iter([1]), tf.int32), ["train"]))
add(name="split", source=seqio.TfdsDataSource("b/c:2.0.0", splits={"train": "train[:5%]"}))
add(name="where", source=seqio.TfdsDataSource("b:2.0.0", tfds_data_dir="gs://x"))
"""
    )
    (tmp_path / "tasks.py").write_text(text)
    finder = finder_of([str(tmp_path / "tasks.py")])

    def source(name: str) -> Any:
        data = finder(Asked(name, PAIRS)).data
        assert isinstance(data, Task)
        return data.source

    assert (source("tf").files, source("tf").heldout_files) == (("a", "b"), ("c",))
    assert source("own").files == ("train",)
    assert source("split") == TfdsFolder("~/tensorflow_datasets/b/c/2.0.0", "train[:5%]", None)
    assert source("where").folder == "gs://x/b/2.0.0"
    assert "PythonExamples(function)" in next(iter(lost(finder(Asked("gen", PAIRS))).values()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import seqio\nraise KeyError('a')\n", r"tasks\.py:2: KeyError: 'a'"),
        ("import seqio\nx = (\n", r"tasks\.py:2: SyntaxError"),
        ("import sys\nsys.exit(3)\n", r"tasks\.py:2: SystemExit: 3"),
        ("import seqio\nraise GeneratorExit\n", r"tasks\.py:2: GeneratorExit"),
        ("import seqio\nseqio.MixtureRegistry.add('x', [], 1)\n", r"tasks\.py:2: mixture x holds no tasks"),
        ("import tensorflow as tf\nif tf.constant(1):\n    pass\n", r"tasks\.py:2: .*asked whether it is true"),
        ("import seqio\nseqio.TaskRegistry.get('y')\n", r"tasks\.py:2: KeyError: .*y is not registered"),
    ],
)
def test_a_module_that_fails_is_named_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(MigrationError, match=message):
        found(text, tmp_path, "x")


def test_a_module_that_goes_to_another_folder_leaves_us_where_we_are(tmp_path: Path) -> None:
    here = Path.cwd()
    with pytest.raises(MigrationError, match="nothing is registered"):
        found(f"import os\nos.chdir({str(tmp_path)!r})\n", tmp_path, "x")
    assert Path.cwd() == here


def test_names_that_nothing_registers(tmp_path: Path) -> None:
    with pytest.raises(MigrationError, match=r"'en_corpu'; did you mean en_corpus"):
        found(seqio_modules.HMBYT5, tmp_path, "en_corpu")
    with pytest.raises(MigrationError, match="no such file"):
        finder_of(["nowhere.py"])


def test_mixtures_that_hold_one_another(tmp_path: Path) -> None:
    text = "import seqio\nM = seqio.MixtureRegistry\nM.add('a', ['b'], 1)\nM.add('b', ['a'], 1)\n"
    with pytest.raises(MigrationError, match="a -> b -> a"):
        found(text, tmp_path, "a")


def test_neighbours_are_imported_and_what_is_absent_is_said(tmp_path: Path) -> None:
    (tmp_path / "shared.py").write_text("import seqio\nV = seqio.ByteVocabulary(extra_ids=100)\n")
    text = HEAD.replace("V = seqio.ByteVocabulary()", "from shared import V\nimport surely_not_here.at_all") + "add()\n"
    task, made = steps_of_text(text, tmp_path)
    assert task.vocabulary == Bytes("seqio", extra_ids=100)
    assert any(note.what == "import surely_not_here" for note in made.notes)
    assert "shared" not in sys.modules


def steps_of_text(text: str, folder: Path) -> tuple[Task, FoundData]:
    made = found(text, folder, "x")
    assert isinstance(made.data, Task)
    return made.data, made


def test_libraries_that_are_installed_are_not_stood_in_for(tmp_path: Path) -> None:
    text = HEAD + "import numpy as np\nimport json\nassert np.arange(3).sum() == 3 and json.loads('1') == 1\nadd()\n"
    steps_of_text(text, tmp_path)
