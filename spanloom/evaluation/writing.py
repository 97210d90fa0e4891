"""What a model writes for requests, each with settings of its own: sorted into batches of few shapes, order kept."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spanloom.evaluation.arguments import check_batch_size, check_ids
from spanloom.evaluation.rows import BATCH, Devices, batches_by_length, padded
from spanloom.evaluation.sequences import check_sequences
from spanloom.model.decoding import Sampling, get_ready, room_for, sample
from spanloom.model.decoding_beams import NOTHING, beam_search
from spanloom.model.decoding_rules import Rules
from spanloom.model.params import T5
from spanloom.settings.generation import Generation, check_generation
from spanloom.settings.model import Model
from spanloom.vocabularies.vocabulary import Ids, Int32Array


@dataclass(frozen=True)
class Request:
    """What is to be written for one input."""

    inputs: Ids
    """Encoder tokens, end of sequence included where the model was trained with it."""
    settings: Generation = field(default_factory=Generation)
    """How."""
    prefix: Ids = ()
    """Tokens with which every output begins; they add nothing to scores."""
    choices: Sequence[Ids] = ()
    """What comes after the prefix is one of these, without end of sequence; none: anything."""


@dataclass(frozen=True)
class Output:
    """A sequence that was written."""

    tokens: Int32Array
    """Without padding; the end of sequence, where there is one, is the last."""
    score: float
    """By which outputs are ordered: of beams, the log-probability over the length penalty; else the log-probability."""
    log_prob: float
    """Summed log-probability by the model, end of sequence included, the prefix left out."""
    token_log_probs: tuple[float, ...] = field(default=(), repr=False)
    """Of each token, 0 for those of the prefix; none of beams."""


class Writer:
    """Writes with one model. Its weights are made ready for decoding once, when this is made."""

    def __init__(
        self, params: T5, model: Model, eos_id: int, devices: Devices | None = None, available: int | None = None
    ) -> None:
        """`available`: bytes of a device, beyond which nothing is tried; None: unknown."""
        self._model, self._eos_id, self._available = model, eos_id, available
        self._devices = devices or Devices()
        self._weights = get_ready(params, model, self._devices.place)

    def write(self, requests: Sequence[Request], batch_size: int = BATCH) -> list[list[Output]]:
        """The outputs of each request, best first (drawn ones as they were drawn).

        A beam search that finds fewer sequences than asked for, as with few choices, gives fewer. Raises ValueError for
        settings that make no sense, more sequences than memory takes, a prefix or choices that leave no room, an empty
        input and ids that the model has not, naming the request.
        """
        check_batch_size(batch_size)
        for number, request in enumerate(requests, 1):
            try:
                _check_ids(request, self._model.vocab_size)
                check_request(request)
                check_sequences(request.settings, self._model, self._available)
            except ValueError as error:
                raise ValueError(f"request {number}: {error}") from None
        groups: dict[Any, list[int]] = {}
        for place, request in enumerate(requests):
            groups.setdefault(_program(request), []).append(place)
        found: dict[int, list[Output]] = {}
        for places in groups.values():
            lengths = [len(requests[place].inputs) for place in places]
            most = max(1, batch_size // max(_count(requests[places[0]].settings) // 4, 1))
            for chosen, width, rows in batches_by_length(lengths, most):
                together = [places[one] for one in chosen]
                outputs = self._batch([requests[place] for place in together], width, rows)
                found |= zip(together, outputs, strict=True)
        return [found[place] for place in range(len(requests))]

    def _batch(self, requests: Sequence[Request], width: int, rows: int) -> list[list[Output]]:
        rows = -(-rows // self._devices.shards) * self._devices.shards
        longest = room_for(max(request.settings.max_length for request in requests))
        inputs = self._devices.put(padded([request.inputs for request in requests], rows, width))
        rules = self._rules(requests, rows, longest)
        settings = [request.settings for request in requests]
        settings += [settings[0]] * (rows - len(settings))
        limit_B = np.array([one.max_length for one in settings], np.int32)
        first = settings[0]
        shared: dict[str, Any] = {"eos_id": self._eos_id, "place": self._devices.place}
        if first.beams > 1:
            alpha_B = np.array([one.alpha for one in settings], np.float32)
            shared |= {"count": first.beams, "alpha_B": alpha_B, "rule": first.search}
            beams = beam_search(self._weights, self._model, inputs, rules, limit_B, **shared)
            tokens, scores, log_probs = self._devices.fetch(tuple(beams))
            return [
                self._beams(tokens[row], scores[row], log_probs[row], one.settings.outputs)
                for row, one in enumerate(requests)
            ]
        drawing = _sampling(settings) if first.temperature > 0 else None
        shared |= {"count": _count(first), "sampling": drawing}
        written = sample(self._weights, self._model, inputs, rules, limit_B, **shared)
        tokens, log_probs = self._devices.fetch(tuple(written))
        return [
            [self._output(tokens[row, k], log_probs[row, k]) for k in range(_count(first))]
            for row in range(len(requests))
        ]

    def _rules(self, requests: Sequence[Request], rows: int, longest: int) -> Rules:
        forced = padded([request.prefix for request in requests], rows, longest)
        choices = None
        if requests[0].choices:
            most = 1 << (max(len(request.choices) for request in requests) - 1).bit_length()
            choices = np.zeros((rows, most, longest), np.int32)
            for row, request in zip(choices, requests, strict=False):
                whole = [[*request.prefix, *choice, self._eos_id] for choice in request.choices]
                row[: len(whole)] = padded(whole, len(whole), longest)
        ngrams = np.zeros(rows, np.int32)
        ngrams[: len(requests)] = [request.settings.no_repeat_ngram for request in requests]
        return Rules(forced, choices, ngrams if ngrams.any() else None)

    def _output(self, tokens_T: np.ndarray, log_probs_T: np.ndarray) -> Output:
        length = _length(tokens_T, self._eos_id)
        each = tuple(map(float, log_probs_T[:length]))
        return Output(tokens_T[:length], sum(each), sum(each), each)

    def _beams(self, tokens: np.ndarray, scores: np.ndarray, log_probs: np.ndarray, outputs: int) -> list[Output]:
        real = [k for k in range(outputs) if scores[k] > NOTHING / 10]
        return [
            Output(tokens[k, : _length(tokens[k], self._eos_id)], float(scores[k]), float(log_probs[k])) for k in real
        ]


def check_request(request: Request) -> None:
    """Raise ValueError, naming what is wrong, for a request that cannot be answered."""
    settings = request.settings
    check_generation(settings)
    if not len(request.inputs):
        raise ValueError("the input has no tokens")
    longest = max((len(choice) + 1 for choice in request.choices), default=1)
    if len(request.prefix) + longest > settings.max_length:
        what = "choices, end of sequence included," if request.choices else "prefix"
        raise ValueError(
            f"max_length is {settings.max_length}, and the {what} needs {len(request.prefix) + longest} tokens: give "
            "it as many"
        )
    if request.choices and not all(len(choice) for choice in request.choices):
        raise ValueError("a choice is empty")
    for number, choice in enumerate(request.choices, 1):
        if _repeats(request.prefix, choice, settings.no_repeat_ngram):
            raise ValueError(
                f"no_repeat_ngram is {settings.no_repeat_ngram}, and choice {number} repeats so many tokens: set it to "
                "0 there"
            )


def _check_ids(request: Request, vocab_size: int) -> None:
    check_ids(request.inputs, vocab_size, "the input")
    check_ids(request.prefix, vocab_size, "the prefix")
    for number, choice in enumerate(request.choices, 1):
        check_ids(choice, vocab_size, f"choice {number}")


def _repeats(prefix: Ids, choice: Ids, length: int) -> bool:
    """Whether a choice ends so many tokens that come before; the start token counts, as in `decoding_rules`."""
    ids = [0, *prefix, *choice]
    runs = [ids[place : place + length] for place in range(len(ids) - length + 1)] if length else []
    return any(run in runs[:place] for place, run in enumerate(runs) if place + length > len(prefix) + 1)


def _program(request: Request) -> tuple[Any, ...]:
    """Requests of one batch have this in common."""
    settings = request.settings
    kind = (settings.beams, settings.search) if settings.beams > 1 else (settings.temperature > 0, settings.outputs)
    return kind, room_for(settings.max_length), bool(request.choices), settings.no_repeat_ngram > 0


def _count(settings: Generation) -> int:
    return settings.beams if settings.beams > 1 else settings.outputs


def _sampling(settings: Sequence[Generation]) -> Sampling:
    def of(name: str, dtype: Any) -> np.ndarray:
        return np.array([getattr(one, name) for one in settings], dtype)

    kinds = {"temperature": np.float32, "top_k": np.int32, "top_p": np.float32, "min_p": np.float32, "seed": np.uint32}
    return Sampling(**{name: of(name, dtype) for name, dtype in kinds.items()})


def _length(tokens_T: np.ndarray, eos_id: int) -> int:
    """Up to the end of sequence, else without the padding at the end."""
    ends = np.flatnonzero(tokens_T == eos_id)
    if len(ends):
        return int(ends[0]) + 1
    written = np.flatnonzero(tokens_T)
    return int(written[-1]) + 1 if len(written) else 0


def settings_with(settings: Generation, changes: dict[str, Any]) -> Generation:
    """The settings with some of one request's own. Raises ValueError for a name that is none of them."""
    from spanloom.settings.nearest import did_you_mean

    known = [one.name for one in dataclasses.fields(Generation)]
    for name in changes:
        if name not in known:
            raise ValueError(f"there is no setting {name!r}{did_you_mean(name, known)}")
    return dataclasses.replace(settings, **changes)
