"""README.md of an exported model: what it learnt from, how long, with what result, and how its sentinels count.

The card is made to be published, so absolute paths, which tell of a machine, stand there by their last names.
"""

import json
import re
from pathlib import Path

from spanloom.conversion.trained_model import Lineage
from spanloom.settings.model import Model
from spanloom.settings.objectives import (
    UL2,
    FullLM,
    IidDenoising,
    Objective,
    PrefixLM,
    SpanCorruption,
    Supervised,
    TextInfilling,
)
from spanloom.settings.resolve import row_length
from spanloom.settings.row_sources import (
    HuggingFaceDataset,
    PythonExamples,
    RecordFiles,
    RowFiles,
    SeqioCaches,
    TfdsFolder,
)
from spanloom.settings.run import Run
from spanloom.settings.run_layout import CHECKPOINTS
from spanloom.settings.task import PairFiles, PythonDocs, Source, TextFiles
from spanloom.settings.vocabulary import Bytes, Vocabulary
from spanloom.vocabularies.bytes import ByteVocabulary
from spanloom.vocabularies.correspondence import described

CARD_NAME = "README.md"
_SNAPSHOT = re.compile(r"models--([^/]+?)--([^/]+)/snapshots/([0-9a-f]{40})")
_UNTIED = (
    "transformers 5 warns on loading that `shared.weight` and `lm_head.weight` ought to be tied but differ, so that it "
    "does not tie them. That is right: this model has a head of its own, as its `config.json` says "
    "(`tie_word_embeddings` is false), but transformers 5 takes every T5 for tied until it sees the weights. In a copy "
    "that transformers 5 saves, that setting is true: set it to false there before transformers 4 loads it, or the "
    "head is tied and the logits are scaled."
)


def model_card(
    model: Model,
    vocabulary: Vocabulary,
    lineage: Lineage,
    *,
    folder: str,
    model_type: str,
    num_params: int,
    dtype: str,
) -> str:
    """Markdown with the metadata block that model hubs read; `folder` is how its example names the model, `dtype` what
    its weights are stored in."""
    name = model.name if lineage.run is None else lineage.home.name
    sections = [
        _metadata(model_type, lineage),
        f"# {name}",
        f"An encoder-decoder of the T5 family, exported by Spanloom. Size {_architecture(model, num_params)}.",
        "## Use\n\n" + _usage(model, vocabulary, lineage.run, folder, dtype),
        "## Sentinels\n\n" + _sentinels(vocabulary),
        "## Training\n\n" + "\n".join(f"- {line}" for line in _training(lineage)) + _before(lineage),
        "## Licence\n\nWhoever publishes this model chooses its licence; none is granted by this file. The licences of "
        "the training data, and of the model it was started from, if any, may limit the choice.",
    ]
    return "\n\n".join(sections) + "\n"


def _metadata(model_type: str, lineage: Lineage) -> str:
    """What is known for certain, in YAML: no licence, which its publisher chooses, and no guess of a language."""
    lines = ["library_name: transformers", "pipeline_tag: text2text-generation"]
    if base := _base_model(lineage):
        lines.append(f"base_model: {json.dumps(base)}")
    if lineage.run is not None and all(isinstance(task.source, PythonDocs) for task in lineage.run.tasks):
        lines += ["language:", "- en"]
    lines += ["tags:", f"- {model_type}", "- text2text-generation", "- spanloom"]
    return "\n".join(["---", *lines, "---"])


def _base_model(lineage: Lineage) -> str | None:
    """The model of the Hub at which it all began, where a path in the Hub's cache of downloads tells."""
    for one in (*lineage.before, lineage):
        if found := _SNAPSHOT.search(str(one.started_from if one.run else one.origin)):
            return f"{found[1]}/{found[2]}"
    return None


def _architecture(model: Model, num_params: int) -> str:
    head = "tied" if model.tie_embeddings else "untied"
    return (
        f"{model.name}: {num_params:,} parameters, {model.num_encoder_layers} encoder and {model.num_decoder_layers} "
        f"decoder layers, width {model.d_model}, {model.num_heads} heads of {model.d_kv}, feed-forward width "
        f"{model.d_ff} ({' x '.join(model.activations)}), {model.vocab_size:,} embedding rows, {head} output head"
    )


def _usage(model: Model, vocabulary: Vocabulary, run: Run | None, folder: str, dtype: str) -> str:
    task = run.tasks[0] if run else None
    if task is not None and isinstance(task.source, PairFiles):
        text, comment, most, more = _pair(task.source, task.objective)
    else:
        text, comment, more = _read(task.objective if task is not None else SpanCorruption()), "", ""
        most = 60 if isinstance(vocabulary, Bytes) else 20
    example = f"""```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{folder}")
model = AutoModelForSeq2SeqLM.from_pretrained("{folder}")
inputs = tokenizer({json.dumps(text, ensure_ascii=False)}, return_tensors="pt"){comment}
print(tokenizer.decode(model.generate(**inputs, max_new_tokens={most})[0]{more}))
```

Weights are {dtype}. In float16 the activations of T5 models overflow; use bfloat16 to save memory."""
    return example if model.tie_embeddings else f"{example}\n\n{_UNTIED}"


def _read(objective: Objective) -> str:
    """What an encoder reads of the text of the example."""
    match objective:
        case FullLM():
            return ""
        case PrefixLM():
            return "Thank you for inviting me"
        case UL2() if objective.modes:
            return f"{objective.modes[0]} Thank you <extra_id_0> me to your party."
    return "Thank you <extra_id_0> me to your party."


def _pair(source: PairFiles, objective: Objective) -> tuple[str, str, int, str]:
    """The text of the example for a model of pairs, a comment, the most tokens it writes, more arguments to decode."""
    text = source.inputs if "{" in source.inputs else "..."
    fields = (f"column {name}" if name.isdecimal() else name for name in (source.inputs, source.targets))
    comment = "  # an input as in training ({}); the answer is a target ({})".format(*fields)
    most = objective.targets_length if isinstance(objective, Supervised) else None
    return text, comment, most or 128, ", skip_special_tokens=True"


def _sentinels(vocabulary: Vocabulary) -> str:
    if not isinstance(vocabulary, Bytes):
        kind = (
            "appended after the pieces, the last id first"
            if vocabulary.sentinels == "appended"
            else "pieces of the model"
        )
        return f"Masked spans are `<extra_id_0>`, `<extra_id_1>`, ... ({kind})."
    ids = ByteVocabulary(vocabulary).sentinels
    if not ids:
        return "This vocabulary has no sentinels."
    told = f"Masked spans are marked by ids {ids[0]}, {ids[min(1, len(ids) - 1)]}, ... {ids[-1]}, in order of use"
    if vocabulary.sentinels == "huggingface":
        return f"{told}: `<extra_id_0>`, `<extra_id_1>`, ... of ByT5Tokenizer."
    return (
        f"{told}. **This is not what ByT5Tokenizer does by itself** (259 upwards): use the tokenizer files of this "
        "folder, which map `<extra_id_0>`, `<extra_id_1>`, ... to these ids."
    )


def _training(lineage: Lineage) -> list[str]:
    step = "" if lineage.step is None else f", step {lineage.step:,}"
    hashed = f", checkpoint {lineage.checkpoint}" if lineage.checkpoint else ""
    lines = [f"read from `{public_name(str(lineage.home))}`{step}{hashed}"]
    if lineage.run is not None:
        lines += _run(lineage.run, lineage.step)
        lines.append(f"started from {_start(lineage)}, seed {lineage.run.seed}")
    lines += [*_moved(lineage), *(f"{name}: {value:.4f}" for name, value in lineage.losses.items())]
    if lineage.versions:
        lines.append("made with " + ", ".join(f"{name} {version}" for name, version in lineage.versions.items()))
    return lines


def _before(lineage: Lineage) -> str:
    """What it was before this run, earliest first."""
    stages = [f"{number}. {_stage(one)}" for number, one in enumerate(lineage.before, 1)]
    return "\n\nBefore that it was, earliest first:\n\n" + "\n".join(stages) if stages else ""


def _stage(one: Lineage) -> str:
    if one.run is None:
        return f"`{public_name(one.origin)}`, of which no more is known" + (f", step {one.step:,}" if one.step else "")
    losses = [f"{name}: {value:.4f}" for name, value in one.losses.items()]
    told = [*_tasks(one.run), _steps(one.run, one.step), f"started from {_start(one)}", *_moved(one), *losses]
    return f"`{public_name(one.origin)}`: {'; '.join(told)}"


def _moved(lineage: Lineage) -> list[str]:
    """How the rows of its embedding came about, where it has another vocabulary than what it comes from."""
    return [f"another vocabulary than before: {described(lineage.moved_rows)}"] if lineage.moved_rows else []


def _start(lineage: Lineage) -> str:
    return f"`{public_name(lineage.started_from)}`" if lineage.started_from else "random weights"


def _run(run: Run, step: int | None) -> list[str]:
    return [
        *_tasks(run),
        _steps(run, step),
        f"optimizer: {type(run.optimizer).__name__}, learning rate {run.optimizer.learning_rate:g}, schedule "
        f"{type(run.schedule).__name__}; dropout {run.model.dropout:g}; activations in {run.model.dtype}",
    ]


def _steps(run: Run, step: int | None) -> str:
    done = run.steps if step is None else step
    sequences, length = done * run.batch_size, row_length(run)
    done_to = "written" if all(isinstance(task.objective, FullLM) for task in run.tasks) else "read"
    tokens = f"; {sequences * length:,} tokens {done_to}, padding included" if length else ""
    return f"{done:,} steps of {run.batch_size:,} sequences ({sequences:,} sequences{tokens})"


def _tasks(run: Run) -> list[str]:
    if len(run.tasks) == 1:
        return [f"data: {_data(run.tasks[0].source)}", f"objective: {_objective(run.tasks[0].objective)}"]
    return [f"{task.name}: {_data(task.source)}; {_objective(task.objective)}" for task in run.tasks]


def _data(source: Source) -> str:
    match source:
        case TextFiles():
            return f"text files {_listed(source.files)}"
        case PairFiles():
            return f"pairs ({source.inputs} to {source.targets}) of {_listed(source.files)}"
        case PythonDocs():
            return "the English documentation that ships inside CPython (pydoc topics, standard-library docstrings)"
        case RowFiles() | RecordFiles():
            return f"rows of {_listed(source.files)}"
        case SeqioCaches():
            return f"SeqIO caches {_listed(source.folders)}, split `{source.split}`"
        case TfdsFolder():
            return f"the TFDS folder {_listed((source.folder,))}, split `{source.split}`"
        case HuggingFaceDataset():
            config = f" ({source.config})" if source.config else ""
            return f"the data set {_listed((source.dataset,))}{config}, split `{source.split}`"
        case PythonExamples():
            return f"rows of the function `{source.function.qualname}`" if source.function else "rows of its recipe"


def _listed(patterns: tuple[str, ...]) -> str:
    return ", ".join(f"`{public_name(pattern)}`" for pattern in patterns)


def public_name(path: str) -> str:
    """A relative path as it is; of an absolute one the last name, of a checkpoint the run's and its step too; of what
    lies in the Hub's cache of downloads its name there and the commit."""
    whole = Path(path)
    if found := _SNAPSHOT.search(path):
        return f"{found[1]}/{found[2]}@{found[3][:12]}"
    if not whole.is_absolute():
        return path
    return "/".join(whole.parts[-3:]) if whole.parent.name == CHECKPOINTS else whole.name


def _objective(objective: Objective) -> str:
    match objective:
        case SpanCorruption():
            return (
                f"span corruption, {objective.inputs_length} input tokens, {objective.noise_density:.0%} masked in "
                f"spans of {objective.mean_span_length:g} tokens on average"
            )
        case IidDenoising():
            return f"i.i.d. denoising, {objective.inputs_length} input tokens, {objective.noise_density:.0%} masked"
        case PrefixLM():
            written = f"{objective.noise_density:.0%} written on average"
            return f"prefix LM, rows of {objective.inputs_length} tokens, {written}"
        case FullLM():
            return f"language modelling in the decoder, {objective.targets_length} tokens, nothing in the encoder"
        case TextInfilling():
            return (
                f"text infilling, {objective.inputs_length} input tokens, {objective.noise_density:.0%} masked in "
                f"spans of {objective.mean_span_length:g} tokens on average, each `<extra_id_0>`; all text is written"
            )
        case UL2():
            modes = ", ".join(f"`{mode}`" for mode in objective.modes) or "the last three sentinels"
            return (
                f"UL2's mixture of denoisers, {objective.inputs_length} input tokens; first in the inputs stands the "
                f"mode, R, S or X: {modes}"
            )
        case Supervised():
            return "inputs to targets"
