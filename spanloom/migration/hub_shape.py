"""What stands for the `datasets` library while a task module's source is looked at: which data set, which column."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spanloom.migration.tracing import Row


@dataclass(frozen=True)
class HubData:
    """What load_dataset was asked for, and what was done to it since."""

    dataset: str
    config: str | None = None
    split: str | None = None
    streaming: bool = False
    revision: str | None = None
    files: Any = None
    done: tuple[str, ...] = ()
    """Names of the methods that were called and are not followed."""
    log: "HubLog | None" = field(default=None, compare=False, repr=False)
    """Decides whether it has a row."""

    def __getitem__(self, key: Any) -> "HubData":
        return replace(self, split=str(key)) if isinstance(key, str) else self

    def __iter__(self) -> Iterator[Row]:
        if self.log is None or not self.log.gives_row:
            raise RowAskedError(self)
        return iter([Row()])

    def keys(self) -> list[str]:
        """The usual splits: nobody is asked for the real ones."""
        return ["train", "validation", "test"]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def method(*args: Any, **kwargs: Any) -> "HubData":
            return self if name in _FOLLOWED else replace(self, done=(*self.done, name))

        return method


_FOLLOWED = {"shuffle", "with_format", "set_format", "repeat"}
"""Methods after which rows are the same: order is the run's own."""


class RowAskedError(Exception):
    """A loop over the rows of a data set begins."""

    def __init__(self, data: HubData):
        super().__init__(f"rows of {data.dataset}")
        self.data = data


@dataclass(frozen=True)
class _SplitInfo:
    num_examples: int | None = None


class _Splits(dict[str, _SplitInfo]):
    """The usual splits, and any that is asked for by its name."""

    def __init__(self) -> None:
        super().__init__({name: _SplitInfo() for name in ("train", "validation", "test")})

    def __missing__(self, key: str) -> _SplitInfo:
        return _SplitInfo()


@dataclass(frozen=True)
class _Info:
    splits: Mapping[str, _SplitInfo] = field(default_factory=_Splits)


@dataclass(frozen=True)
class _Builder:
    info: _Info = field(default_factory=_Info)


class HubLog:
    """Which data sets a module asked for while it was imported: nothing is looked up for it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gives_row = False

    def known_names(self) -> dict[str, Any]:
        """What stands for names of the library."""
        return {
            "datasets.load_dataset": self.load,
            "datasets.load_dataset_builder": self.builder,
            "datasets.get_dataset_infos": self.infos,
            "datasets.get_dataset_config_names": lambda *args, **kwargs: [],
            "datasets.load.load_dataset": self.load,
            "promptsource.utils.get_dataset_builder": self.builder,
        }

    def load(self, path: Any = "", name: Any = None, *args: Any, **kwargs: Any) -> HubData:
        """load_dataset."""
        return HubData(
            str(path),
            None if name is None else str(name),
            kwargs.get("split"),
            bool(kwargs.get("streaming", False)),
            kwargs.get("revision"),
            kwargs.get("data_files"),
            log=self,
        )

    def builder(self, path: Any = "", name: Any = None, *args: Any, **kwargs: Any) -> _Builder:
        """load_dataset_builder."""
        self.asked.append(str(path) if name is None else f"{path}/{name}")
        return _Builder()

    def infos(self, path: Any = "", *args: Any, **kwargs: Any) -> Mapping[str, _Info]:
        """get_dataset_infos."""
        self.asked.append(str(path))
        return _Infos()


class _Infos(dict[str, _Info]):
    """One configuration, and any that is asked for by its name."""

    def __init__(self) -> None:
        super().__init__({"default": _Info()})

    def __missing__(self, key: str) -> _Info:
        return _Info()
