"""What a SeqIO module has registered, as Spanloom's tasks and mixtures."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spanloom.migration.draft import Asked, FoundData, MigrationError, Parameter, TaskFinder
from spanloom.migration.fates import Note
from spanloom.migration.lifting import NotPlainError, keep, lifted
from spanloom.migration.module_import import Registered, import_modules
from spanloom.migration.recipe_code import RECIPE, identifier
from spanloom.migration.seqio_shape import (
    CachePlace,
    Mapped,
    OutputFeature,
    RegisteredMixture,
    RegisteredTask,
    Vocab,
)
from spanloom.migration.seqio_sources import FoundSource, source_of
from spanloom.migration.seqio_steps import DONE_ANYWAY, EOS, OBJECTIVES, NoCounterpartError, counterpart
from spanloom.migration.stand_ins import Called, UntraceableError, name_of, place_of, unwrapped
from spanloom.migration.t5_tasks import REKEY, denoising, find_without_module, length_notes, supervised
from spanloom.migration.t5x_model import bytes_of, sentencepiece_of, vocabulary_parameter
from spanloom.migration.tracing import Row, Stream, Value, function_text, renamed
from spanloom.settings.feature import MODEL_INPUTS, Feature
from spanloom.settings.function import Function
from spanloom.settings.measures import METRICS, POSTPROCESSORS
from spanloom.settings.mixture import BySize, Mixture, Rate, Weighted, map_tasks, tasks_of
from spanloom.settings.nearest import did_you_mean
from spanloom.settings.objectives import Objective, Supervised
from spanloom.settings.task import PairFiles, Task, TextFiles
from spanloom.settings.vocabulary import Bytes, Vocabulary
from spanloom.tasks.prompts.prompted import prompt, prompted_task
from spanloom.tasks.prompts.template import PromptTemplate

_REWRITE = (
    "Write it as a plain function of one example, def f(example): return {...} (a dict of texts and numbers in, a "
    "dict, a bool or several dicts out); the recipe holds an empty one in its place"
)
_TAKEN = ("recipe", "named", "partial", "text", "data", "start", "tfds", "vocabulary")
"""Names of the recipe's own, its parameters included."""
_OBJECTIVE_ARGUMENTS = {
    "mean_noise_span_length": "mean_span_length",
    "noise_density": "noise_density",
    "merge_examples_to_reduce_padding": "merge",
    "random_roll": "random_roll",
}


def finder_of(modules: Sequence[str], prompts: Sequence[str] = ()) -> TaskFinder:
    """Finds tasks and mixtures among those that modules register. Raises MigrationError where a module fails."""
    registered = import_modules(modules, prompts)
    return lambda asked: _Reader(registered, modules).data(asked)


@dataclass
class _Reader:
    """Reads what a run asks for, and collects what the recipe needs for it."""

    registered: Registered
    modules: Sequence[str]
    notes: list[Note] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    functions: dict[str, str] = field(default_factory=dict)
    imports: set[str] = field(default_factory=set)
    tasks: dict[str, Task] = field(default_factory=dict)

    def data(self, asked: Asked) -> FoundData:
        """The task or mixture that is asked for."""
        found = self.registered.found
        if asked.name not in found:
            if asked.name.startswith(("c4_v", "wmt_t2t_")):
                return find_without_module(asked)
            near = did_you_mean(asked.name, found)
            raise MigrationError(
                f"{', '.join(self.modules)}: nothing is registered as {asked.name!r}{near or '; nothing at all'}"
            )
        for module in self.registered.absent:
            self.note("changed", "", f"import {module}", "not installed: stood in for while the module was imported")
        for one in dict.fromkeys(self.registered.hub.asked):
            why = "asked the Hub for its splits: taken to be train, validation and test"
            self.note("changed", "", f"data set {one}", why)
        data = self._of_one_vocabulary(self._data(asked.name, asked, ()))
        if isinstance(data, Task):
            self.notes += length_notes(data, asked)
        elif tasks_of(data):
            self.notes += length_notes(tasks_of(data)[0], asked)
        return FoundData(
            data, tuple(dict.fromkeys(self.parameters)), tuple(self.notes), self.functions, tuple(sorted(self.imports))
        )

    def note(self, kind: Any, place: str, what: str, why: str) -> None:
        """Say what became of a part of the module, once."""
        note = Note(kind, place, what, why)
        if note not in self.notes:
            self.notes.append(note)

    def _of_one_vocabulary(self, data: Task | Mixture) -> Task | Mixture:
        """Tasks of t5.data that no module registers read with the vocabulary of those that one does."""
        own = [one.vocabulary for one in self.tasks.values()]
        if not own or any(one != own[0] for one in own):
            return data
        return map_tasks(data, lambda task: replace(task, vocabulary=own[0]))

    def _data(self, name: str, asked: Asked, within: tuple[str, ...]) -> Task | Mixture:
        found = self.registered.found.get(name)
        if name in within:
            raise MigrationError(f"mixtures hold one another in a circle: {' -> '.join((*within, name))}")
        if isinstance(found, RegisteredMixture):
            return self._mixture(found, asked, (*within, name))
        if found is None:
            data = find_without_module(replace(asked, name=name))
            self.parameters += data.parameters
            self.notes += data.notes
            assert isinstance(data.data, Task)
            return data.data
        if name not in self.tasks:
            self.tasks[name] = self._task(found, asked)
        return self.tasks[name]

    def _mixture(self, found: RegisteredMixture, asked: Asked, within: tuple[str, ...]) -> Mixture:
        if not found.tasks:
            raise MigrationError(f"{found.place}: mixture {found.name} holds no tasks: name some, or another mixture")
        parts = []
        for entry in found.tasks:
            one, rate = entry if isinstance(entry, list | tuple) else (entry, found.default_rate)
            name = one if isinstance(one, str) else one.name
            data = self._data(name, asked, within)
            parts.append(Weighted(data, self._rate(rate, name, found, isinstance(data, Mixture))))
        return Mixture(found.name, tuple(parts))

    def _rate(self, rate: Any, name: str, mixture: RegisteredMixture, of_mixture: bool) -> Rate:
        if rate is None:
            self.note("lost", mixture.place, f"rate of {name} in {mixture.name}", "none is given; 1 stands in")
            return 1.0
        if isinstance(rate, int | float):
            return float(rate)
        code, given = unwrapped(rate)
        short = (name_of(code) or "").rpartition(".")[2]
        if short in ("mixing_rate_num_examples", "rate_num_examples") and not of_mixture:
            maximum, temperature, scale = (given.get(one) for one in ("maximum", "temperature", "scale"))
            return BySize(maximum and float(maximum), float(temperature or 1.0), float(scale or 1.0))
        if short == "rate_unsupervised":
            return float(given.get("value", 1e6))
        if short == "mixing_rate_num_characters" and not of_mixture:
            return BySize(None, float(given.get("temperature") or 1.0), unit="characters")
        try:
            return float(rate(self.registered.found.get(name)))
        except (Exception, SystemExit) as error:
            why = (
                f"its rate is code that needs more than the task's name ({type(error).__name__}: {error}); 1 stands in"
            )
            self.note("lost", place_of(code) or mixture.place, f"rate of {name} in {mixture.name}", why)
            return 1.0

    def _task(self, found: RegisteredTask, asked: Asked) -> Task:
        source = source_of(found, asked)
        self.notes += source.notes
        self.parameters += source.parameters
        vocabulary = self._vocabulary(found, asked)
        name = re.sub(r"[:/\\]+", "_", found.name)
        if name != found.name:
            self.note("changed", found.place, f"task {found.name}", f"is called {name}: names are those of folders")
        if not isinstance(source.element, Row | Value | dict):
            return self._prompted(found, name, source, vocabulary, asked)
        steps = self._steps(found, source, asked)
        task = Task(name, source.source, vocabulary, steps.objective)
        if isinstance(steps.objective, Supervised):
            task = replace(
                task,
                preprocessors=tuple(steps.functions),
                features=self._features(found, steps.has_eos),
                metrics=tuple(self._metrics(found)),
                postprocess=self._postprocess(found),
            )
            if isinstance(task.source, TextFiles) and not task.preprocessors and not task.features:
                task = replace(task, source=PairFiles(task.source.files, task.source.heldout_files))
            return task
        for metric in found.metric_fns:
            self.note("lost", found.place, f"metric {metric!r} of {name}", "text has its held-out loss alone")
        return replace(task, **self._of_text(task, steps))

    def _of_text(self, task: Task, steps: "_Steps") -> dict[str, Any]:
        """What gives an objective on text its field `text`, where that is not what the source has."""
        rest, last = steps.functions[:-1], steps.functions[-1] if steps.functions else None
        if last is None or last.name != REKEY:
            return {"preprocessors": tuple(steps.functions)}
        key_map = last.arguments["key_map"]
        column = key_map.get("targets") or key_map.get("text") or "text"
        if rest:
            return {"preprocessors": (*rest, Function(REKEY, {"key_map": {"text": column}}))}
        if isinstance(task.source, TextFiles):
            return {"source": task.source if column == "text" else replace(task.source, field=column)}
        if column == "text":
            return {}
        return {"preprocessors": (Function(REKEY, {"key_map": {"text": column}}),)}

    def _vocabulary(self, found: RegisteredTask, asked: Asked) -> Vocabulary:
        """That of the targets; the model's where the task does not say."""
        features = found.output_features
        feature = features.get("targets") or next(iter(features.values()), None)
        vocabulary = getattr(feature, "vocabulary", None)
        if isinstance(vocabulary, Vocab) and vocabulary.kind == "ByteVocabulary":
            return bytes_of(vocabulary.extra_ids)
        if isinstance(vocabulary, Vocab) and vocabulary.kind == "SentencePieceVocabulary":
            known = getattr(asked.vocabulary, "path", "")
            if known and _plain_path(vocabulary.path) == _plain_path(known):
                assert asked.vocabulary is not None
                return asked.vocabulary
            if known:
                why = f"it is {vocabulary.path}, and the model's {known}: the task's is taken; a start must fit it"
                self.note("lost", found.place.rpartition(":")[0], "vocabulary of the tasks", why)
            self.parameters.append(vocabulary_parameter(vocabulary.path))
            return sentencepiece_of(vocabulary.path, vocabulary.extra_ids, "vocabulary")
        if vocabulary is not None:
            what = f"vocabulary of {found.name}"
            self.note("lost", found.place, what, f"{vocabulary!r} is not known here; the model's is taken")
        return asked.vocabulary or Bytes()

    def _features(self, found: RegisteredTask, has_eos: bool) -> tuple[Feature, ...]:
        """Inputs and targets, where they differ from the usual; what else the task gives is only noted."""
        made = []
        for name in ("inputs", "targets"):
            given = found.output_features.get(name)
            if not isinstance(given, OutputFeature):
                made.append(Feature(name))
                continue
            made.append(Feature(name, add_eos=given.add_eos and has_eos, required=given.required))
        for name in found.output_features:
            if name not in ("inputs", "targets"):
                why = "a model here reads inputs and writes targets; the field stays in the example for metrics"
                self.note("changed", found.place, f"feature {name} of {found.name}", why)
        return () if tuple(made) == MODEL_INPUTS else tuple(made)

    def _prompted(
        self, found: RegisteredTask, name: str, source: FoundSource, vocabulary: Vocabulary, asked: Asked
    ) -> Task:
        """A task of T0: a template of promptsource over a data set of the Hub."""
        template = source.element
        objective = supervised(asked.lengths)
        mine = PromptTemplate(template.name, template.jinja, template.answer_choices)
        features = found.output_features.get("inputs")
        assert not isinstance(source.source, TextFiles | PairFiles)
        return prompted_task(
            name,
            source.source,  # type: ignore[arg-type]
            (prompt(mine, empty_target="<NO LABEL>"),),
            vocabulary,
            objective,
            has_choices=bool(template.answer_choices),
            inputs_eos=bool(getattr(features, "add_eos", True)),
            metrics=() if template.answer_choices else tuple(self._metrics(found)),
        )

    def _steps(self, found: RegisteredTask, source: FoundSource, asked: Asked) -> "_Steps":
        steps = _Steps(source.element, supervised(asked.lengths))
        if isinstance(steps.element, dict):  # what a generator yields
            self._give(steps, steps.element, "fields", found.place)
            steps.element = Row()
        for code in found.preprocessors:
            self._step(code, steps, found, asked)
        return steps

    def _step(self, code: Any, steps: "_Steps", found: RegisteredTask, asked: Asked) -> None:
        inner, given = unwrapped(code)
        if isinstance(inner, CachePlace) or inner is CachePlace:
            return self.note("needless", found.place, "CacheDatasetPlaceholder", "stores are built by themselves")
        name = name_of(inner)
        if name is None and isinstance(inner, Called):
            name = inner._name
        if name is None:
            return self._own_step(inner, given, steps, found)
        short = name.rpartition(".")[2]
        if short in EOS:
            steps.has_eos = True
        if short in DONE_ANYWAY:
            return self.note("needless", found.place, short, DONE_ANYWAY[short])
        if short in OBJECTIVES:
            steps.objective = self._objective(short, given, found, asked)
            return None
        try:
            steps.functions.append(counterpart(short, given))
            steps.element = Row()
        except NoCounterpartError as error:
            self._stub(short, found.place, f"{error}. {_REWRITE}", steps)
        return None

    def _objective(self, short: str, given: Mapping[str, Any], found: RegisteredTask, asked: Asked) -> Objective:
        values: dict[str, Any] = {}
        for key, value in given.items():
            if key in _OBJECTIVE_ARGUMENTS and isinstance(value, int | float):
                ours = _OBJECTIVE_ARGUMENTS[key]
                values[ours] = float(value) if ours in ("mean_span_length", "noise_density") else value
            else:
                why = f"{short} takes no such argument here"
                self.note("lost", found.place, f"{key}={value!r} of {short}", why)
        try:
            return denoising(short, asked, **values)
        except TypeError:
            self.note("lost", found.place, f"arguments of {short}", "none of them is one of ours")
            return denoising(short, asked)

    def _own_step(self, inner: Any, given: Mapping[str, Any], steps: "_Steps", found: RegisteredTask) -> None:
        """A function of the user's: followed, or named."""
        place = place_of(inner)
        name = identifier(getattr(inner, "__name__", "") or "step")
        try:
            if isinstance(inner, Mapped):
                if inner.seeds:
                    raise UntraceableError("it draws random numbers: take rng as a parameter")
                result = inner.function(steps.element, **given)
            else:
                stream = _of_data_set(inner, given, steps.element, asked_for=found)
                result = stream.element
            if not isinstance(result, Mapping):
                raise UntraceableError("what it makes of an example is no dict")
            self._give(steps, result, name, place)
        except (Exception, SystemExit) as error:
            why = str(error) if isinstance(error, UntraceableError) else f"{type(error).__name__}: {error}"
            self._stub(
                name, place or found.place, f"code of TensorFlow that is not followed ({why}). {_REWRITE}", steps
            )
        steps.element = Row()

    def _give(self, steps: "_Steps", result: Mapping[str, Any], name: str, place: str) -> None:
        """What gives these fields: Rekey, or a function that the recipe holds. Raises UntraceableError."""
        names = renamed(result)
        if names is not None:
            if any(names[one] != one for one in names):
                steps.functions.append(Function(REKEY, {"key_map": {k: v or None for k, v in names.items()}}))
            return
        where = place.rpartition("/")[2]
        text, imports = function_text("name", result, where)
        free = self._free(name, text)
        self.functions[free] = text.replace("def name(", f"def {free}(", 1)
        self.imports |= imports
        steps.functions.append(Function(f"{RECIPE}:{free}"))
        self.note("changed", place, f"{name} of TensorFlow", f"as the recipe's function {free}: compare them")

    def _free(self, name: str, text: str) -> str:
        """The name of a function of this text in the recipe."""
        name = f"{name}_of_example" if name in _TAKEN else name
        number, free = 1, name
        while free in self.functions and self.functions[free] != text.replace("def name(", f"def {free}(", 1):
            number += 1
            free = f"{name}_{number}"
        return free

    def _stub(self, name: str, place: str, why: str, steps: "_Steps") -> None:
        """A function that must be written before the recipe can read data."""
        where = place.rpartition("/")[2]
        text = (
            f'def name(example):\n    """To be written: what {name} in {where} does, for one example."""\n'
            f'    raise NotImplementedError("{name}: write this function as {where} has it, for one example")\n'
        )
        free = self._free(name, text)
        self.functions[free] = text.replace("def name(", f"def {free}(", 1)
        steps.functions.append(Function(f"{RECIPE}:{free}"))
        self.note("lost", place, name, why)

    def _metrics(self, found: RegisteredTask) -> Iterator[Function]:
        for code in found.metric_fns:
            made = self._measure(code, METRICS, "metric", found)
            if made is not None:
                yield made

    def _postprocess(self, found: RegisteredTask) -> Function | None:
        code = found.postprocess_fn
        return None if code is None else self._measure(code, POSTPROCESSORS, "postprocess_fn", found)

    def _measure(self, code: Any, known: Mapping[str, str], what: str, found: RegisteredTask) -> Function | None:
        """A metric or postprocessor: ours of the same name, or the user's own, if it is plain Python."""
        inner, given = unwrapped(code)
        name = name_of(inner)
        label = f"{what} of {found.name}"
        if name is not None:
            short = name.rpartition(".")[2]
            if short in known and all(not key.isdecimal() for key in given):
                return Function(known[short], given)
            self.note("lost", found.place, f"{label}: {name}", f"not known here; there are {', '.join(known)}")
            return None
        try:
            texts, imports = lifted(inner)
            functions = dict(self.functions)
            for one in texts.items():
                keep(functions, *one)
        except NotPlainError as error:
            fix = "write it as a plain function in the recipe, and name it in the task"
            self.note("lost", place_of(inner) or found.place, label, f"{error}: {fix}")
            return None
        self.functions = functions
        self.imports |= imports
        self.note("changed", place_of(inner), label, f"the recipe holds {inner.__name__}")
        return Function(f"{RECIPE}:{inner.__name__}", given)


@dataclass
class _Steps:
    """A task's preprocessors so far."""

    element: Any
    """What the next one gets: a Row, a Field, or a dict of them."""
    objective: Objective
    functions: list[Function] = field(default_factory=list)
    has_eos: bool = False


def _plain_path(path: str) -> str:
    """The same for a model of T5's whose extra ids are appended and for one that holds them."""
    return path.replace(".100extra/", "/")


def _of_data_set(code: Callable[..., Any], given: Mapping[str, Any], element: Any, asked_for: RegisteredTask) -> Stream:
    """What a function of data sets makes of one. Raises UntraceableError."""
    names = getattr(getattr(code, "__code__", None), "co_varnames", ())
    count = getattr(getattr(code, "__code__", None), "co_argcount", 0)
    more: dict[str, Any] = {}
    if "output_features" in names[:count] and "output_features" not in given:
        more["output_features"] = asked_for.output_features
    if "sequence_length" in names[:count] and "sequence_length" not in given:
        raise UntraceableError("it looks at sequence_length: take run as a parameter, whose inputs_length it is")
    made = code(Stream(element), **given, **more)
    if not isinstance(made, Stream):
        raise UntraceableError(f"it returns {type(made).__name__}, not what became of its data set")
    return made
