"""What stands for SeqIO while a task module is imported: registries that keep what they get, and plain records."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from spanloom.migration.stand_ins import Called, Named


@dataclass(frozen=True)
class Vocab:
    """A vocabulary: kind is the name of SeqIO's class."""

    kind: str
    path: str = ""
    extra_ids: int = 0

    @property
    def vocab_size(self) -> int:
        """A size that no real vocabulary has; modules ask for it in passing."""
        return 0


@dataclass(frozen=True)
class OutputFeature:
    """seqio.Feature."""

    vocabulary: Any = None
    add_eos: bool = True
    required: bool = True
    dtype: Any = None
    rank: int = 1


@dataclass(frozen=True)
class DataSource:
    """A source: kind is the name of SeqIO's class."""

    kind: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def splits(self) -> Any:
        """Names of the splits, as far as they are said."""
        found = self.arguments.get("splits") or self.arguments.get("split_to_filepattern") or ("train", "validation")
        return list(found)

    def num_input_examples(self, split: str) -> int | None:
        """How many examples a split has, if it is said."""
        found = self.arguments.get("num_input_examples")
        return found.get(split) if isinstance(found, Mapping) else None


@dataclass(frozen=True)
class CachePlace:
    """seqio.CacheDatasetPlaceholder."""

    required: bool = False


@dataclass(frozen=True)
class Mapped:
    """A function of one element that seqio.map_over_dataset made one of data sets."""

    function: Callable[..., Any]
    seeds: int = 0

    @property
    def __name__(self) -> str:
        return str(getattr(self.function, "__name__", "function"))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Of a data set: not done here."""
        return Called(f"map_over_dataset.{self.__name__}", args, kwargs, {})


@dataclass(frozen=True)
class RegisteredTask:
    """seqio.Task."""

    name: str
    source: Any
    output_features: Mapping[str, Any]
    preprocessors: tuple[Any, ...] = ()
    postprocess_fn: Any = None
    metric_fns: tuple[Any, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""

    @property
    def splits(self) -> Any:
        """Those of the source."""
        return self.source.splits if isinstance(self.source, DataSource) else ["train", "validation"]

    def num_input_examples(self, split: str = "train") -> int | None:
        """Those of the source."""
        return self.source.num_input_examples(split) if isinstance(self.source, DataSource) else None


@dataclass(frozen=True)
class RegisteredMixture:
    """seqio.Mixture."""

    name: str
    tasks: tuple[Any, ...]
    default_rate: Any = None
    place: str = ""


class Registry:
    """What a module has registered; both of SeqIO's registries are views of one."""

    def __init__(self, where: Callable[[], str]):
        self.found: dict[str, RegisteredTask | RegisteredMixture] = {}
        self.where = where

    def get(self, name: str) -> Any:
        """What was registered under this name."""
        if name not in self.found:
            raise KeyError(f"{name} is not registered; there are {', '.join(self.found) or 'none'}")
        return self.found[name]


class Tasks:
    """seqio.TaskRegistry."""

    def __init__(self, registry: Registry):
        self._registry = registry

    def add(self, name: str, source: Any = None, *args: Any, **kwargs: Any) -> RegisteredTask:
        """Keeps a task, whatever version of SeqIO's arguments it is given with."""
        for one in args:
            kwargs.setdefault("output_features" if isinstance(one, Mapping) else "preprocessors", one)
        known = {"output_features", "preprocessors", "postprocess_fn", "metric_fns"}
        task = RegisteredTask(
            name,
            source,
            dict(kwargs.get("output_features") or {}),
            _several(kwargs.get("preprocessors", kwargs.get("text_preprocessor"))),
            kwargs.get("postprocess_fn"),
            _several(kwargs.get("metric_fns")),
            {key: value for key, value in kwargs.items() if key not in known},
            self._registry.where(),
        )
        self._registry.found[name] = task
        return task

    def get(self, name: str) -> Any:
        """A task by its name."""
        return self._registry.get(name)

    def names(self) -> list[str]:
        """Names of all tasks."""
        return [name for name, one in self._registry.found.items() if isinstance(one, RegisteredTask)]

    def remove(self, name: str) -> None:
        """Forgets a task."""
        self._registry.found.pop(name, None)


class Mixtures:
    """seqio.MixtureRegistry."""

    def __init__(self, registry: Registry):
        self._registry = registry

    def add(self, name: str, tasks: Any, default_rate: Any = None, **kwargs: Any) -> RegisteredMixture:
        """Keeps a mixture."""
        mixture = RegisteredMixture(name, _several(tasks), default_rate, self._registry.where())
        self._registry.found[name] = mixture
        return mixture

    def get(self, name: str) -> Any:
        """A mixture by its name."""
        return self._registry.get(name)

    def names(self) -> list[str]:
        """Names of all mixtures."""
        return [name for name, one in self._registry.found.items() if isinstance(one, RegisteredMixture)]

    def remove(self, name: str) -> None:
        """Forgets a mixture."""
        self._registry.found.pop(name, None)


def _several(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    if isinstance(value, list | tuple | set | frozenset):
        return tuple(value)
    return tuple(value) if isinstance(value, Iterator) else (value,)


def known_names(registry: Registry) -> dict[str, Any]:
    """What stands for SeqIO's, t5's and TensorFlow's names that matter; every other is a Named."""
    tasks, mixtures = Tasks(registry), Mixtures(registry)
    known: dict[str, Any] = {}

    def give(value: Any, *names: str) -> None:
        for name in names:
            known[name] = value

    for home in ("seqio", "seqio.dataset_providers", "t5.data", "t5.data.dataset_providers"):
        give(tasks, f"{home}.TaskRegistry")
        give(mixtures, f"{home}.MixtureRegistry")
        give(registry.get, f"{home}.get_mixture_or_task")
        give(OutputFeature, f"{home}.Feature")
        for kind in ("TfdsDataSource", "FunctionDataSource", "TextLineDataSource", "TFExampleDataSource"):
            give(_source(kind), f"{home}.{kind}")
        give(CachePlace, f"{home}.CacheDatasetPlaceholder")
    give(OutputFeature, "seqio.utils.Feature", "seqio.feature_converters.Feature")
    for home in ("seqio", "seqio.vocabularies", "t5.data", "t5.data.vocabularies"):
        give(_sentencepiece, f"{home}.SentencePieceVocabulary")
        give(_bytes, f"{home}.ByteVocabulary")
        give(lambda *args, **kwargs: Vocab("PassThroughVocabulary"), f"{home}.PassThroughVocabulary")
    give(lambda: Vocab("SentencePieceVocabulary", T5_PIECES, 100), "t5.data.get_default_vocabulary")
    give(lambda: Vocab("SentencePieceVocabulary", T5_PIECES, 100), "t5.data.utils.get_default_vocabulary")
    give(_map_over_dataset, "seqio.map_over_dataset", "seqio.utils.map_over_dataset")
    give(_map_over_dataset, "seqio.preprocessors.map_over_dataset", "seqio.preprocessors.utils.map_over_dataset")
    give(_same, "gin.configurable", "gin.register", "tensorflow.function", "tensorflow.autograph.to_graph")
    give(_same, "tensorflow.autograph.experimental.do_not_convert")
    give(_glue_metric, "t5.data.glue_utils.get_glue_metric")
    give(_super_glue_metric, "t5.data.glue_utils.get_super_glue_metric")
    return known


T5_PIECES = "gs://t5-data/vocabs/cc_all.32000/sentencepiece.model"
"""t5.data's default vocabulary, to which 100 extra ids are appended."""
_METRICS = "t5.evaluation.metrics"
_GLUE = {
    "cola": ("matthews_corrcoef",),
    "mrpc": ("f1_score_with_invalid", "accuracy"),
    "qqp": ("f1_score_with_invalid", "accuracy"),
    "stsb": ("pearson_corrcoef", "spearman_corrcoef"),
}
_SUPER_GLUE = {
    "record": ("deduplicate_metric",),
    "multirc": ("multirc_f1_over_all_answers",),
    "axb": ("matthews_corrcoef",),
}


def _source(kind: str) -> Callable[..., DataSource]:
    places = {
        "TfdsDataSource": ("tfds_name", "tfds_data_dir", "splits"),
        "FunctionDataSource": ("dataset_fn", "splits"),
        "TextLineDataSource": ("split_to_filepattern", "skip_header_lines"),
        "TFExampleDataSource": ("split_to_filepattern", "feature_description"),
    }[kind]

    def make(*args: Any, **kwargs: Any) -> DataSource:
        return DataSource(kind, dict(zip(places, args, strict=False)) | kwargs)

    return make


def _sentencepiece(sentencepiece_model_file: Any = "", extra_ids: int | None = 0, *args: Any, **kwargs: Any) -> Vocab:
    return Vocab("SentencePieceVocabulary", str(sentencepiece_model_file), extra_ids or 0)


def _bytes(extra_ids: int = 0, *args: Any, **kwargs: Any) -> Vocab:
    return Vocab("ByteVocabulary", "", extra_ids)


def _map_over_dataset(function: Any = None, *, num_seeds: int | None = None, **kwargs: Any) -> Any:
    if function is None:
        return lambda inner: Mapped(inner, num_seeds or 0)
    return Mapped(function, num_seeds or 0)


def _same(function: Any = None, *args: Any, **kwargs: Any) -> Any:
    """A decorator that changes nothing, with or without arguments."""
    return function if callable(function) else lambda inner: inner


def _glue_metric(name: str) -> list[Named]:
    return [Named(f"{_METRICS}.{one}", {}) for one in _GLUE.get(name, ("accuracy",))]


def _super_glue_metric(name: str) -> list[Named]:
    return [Named(f"{_METRICS}.{one}", {}) for one in _SUPER_GLUE.get(name, ("accuracy",))]
