"""PyTorch's pickles, read without running them: instructions for tables, tuples and tensors, and nothing else.

A pickle is a program that may call anything. Here its instructions are followed by a table of a few that build data;
what it would call is only noted, and must be among the five things that a table of tensors is made with.
"""

import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any


class NotTensorsError(ValueError):
    """A pickle that holds, or would do, something else."""


@dataclass(frozen=True)
class Global:
    """Something that the pickle names, never imported."""

    name: str


@dataclass(frozen=True)
class Storage:
    """Numbers in a row that tensors are views of."""

    kind: str
    """PyTorch's name of the type, "FloatStorage"."""
    key: str
    """Its name in the file."""
    count: int
    """How many numbers."""


@dataclass(frozen=True)
class View:
    """A tensor: a view of a storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


_MARK = object()
_MOST_INSTRUCTIONS = 20_000_000
_MOST_AXES = 8


def read(source: bytes | IO[bytes]) -> Any:
    """What a pickle holds: tables, lists, tuples, text, numbers, `View`s. A file is left behind the pickle's end.

    Raises NotTensorsError for anything else, and ValueError for a pickle that is damaged.
    """
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    argument: Any
    for number, (instruction, argument, _) in enumerate(pickletools.genops(source)):
        name = instruction.name
        if number > _MOST_INSTRUCTIONS:
            raise NotTensorsError("more instructions than any table of tensors has")
        try:
            if name == "STOP":
                return stack.pop()
            if name in ("BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE"):
                memo[len(memo) if name == "MEMOIZE" else argument] = stack[-1]
            elif name in ("BINGET", "LONG_BINGET", "GET"):
                stack.append(memo[argument])
            elif name in _CONSTANTS:
                stack.append(argument)
            elif name in _BUILDERS:
                _BUILDERS[name](stack, argument)
            elif name not in ("PROTO", "FRAME"):
                raise NotTensorsError(f"the instruction {name}, which no table of tensors needs")
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"{name} where there is nothing for it ({error})") from error
    raise ValueError("cut short")


_CONSTANTS = {
    "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "UNICODE",
    "BINUNICODE8", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES",
}  # fmt: skip


def _to_mark(stack: list[Any]) -> list[Any]:
    at = len(stack) - 1
    while stack[at] is not _MARK:
        at -= 1
        if at < 0:
            raise LookupError("no mark")
    found = stack[at + 1 :]
    del stack[at:]
    return found


def _tuple(count: int) -> Callable[[list[Any], Any], None]:
    def build(stack: list[Any], _: Any) -> None:
        if len(stack) < count:
            raise LookupError("too few")
        stack[len(stack) - count :] = [tuple(stack[len(stack) - count :])]

    return build


def _items(stack: list[Any], pairs: list[Any]) -> None:
    table = stack[-1]
    if not isinstance(table, dict):
        raise TypeError("no table")
    for key, value in zip(pairs[::2], pairs[1::2], strict=True):
        if not isinstance(key, str | int):
            raise NotTensorsError(f"a table whose keys are {type(key).__name__}")
        table[key] = value


def _dict(stack: list[Any], _: Any) -> None:
    pairs = _to_mark(stack)
    stack.append({})
    _items(stack, pairs)


def _drop(stack: list[Any], _: Any) -> None:
    stack.pop()


def _set_item(stack: list[Any], _: Any) -> None:
    value, key = stack.pop(), stack.pop()
    _items(stack, [key, value])


def _extend(stack: list[Any], more: list[Any]) -> None:
    if not isinstance(stack[-1], list):
        raise TypeError("no list")
    stack[-1].extend(more)


def _stack_global(stack: list[Any], _: Any) -> None:
    name, module = stack.pop(), stack.pop()
    stack.append(Global(f"{module}.{name}"))


def _call(stack: list[Any], _: Any) -> None:
    arguments, called = stack.pop(), stack.pop()
    name = called.name if isinstance(called, Global) else type(called).__name__
    if name not in _CALLED or not isinstance(arguments, tuple):
        raise NotTensorsError(f"a call of {name[:80]}")
    stack.append(_CALLED[name](*arguments))


def _storage(stack: list[Any], _: Any) -> None:
    kind, storage, key, _place, count, *_view = stack.pop()
    if kind != "storage" or not isinstance(storage, Global) or not isinstance(key, str) or type(count) is not int:
        raise NotTensorsError("a reference that is to no storage")
    stack.append(Storage(storage.name.rpartition(".")[2], key, count))


def _view(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> View:
    # the lengths first: nothing that is long may be gone through once for each of many calls
    lengths = isinstance(shape, tuple) and isinstance(strides, tuple) and len(shape) == len(strides) <= _MOST_AXES
    if not lengths or not all(type(n) is int and 0 <= n < 2**48 for n in (offset, *shape, *strides)):
        raise NotTensorsError("a tensor that is none")
    if not isinstance(storage, Storage) or math.prod(shape) > storage.count:
        raise NotTensorsError(f"a tensor of shape {shape} that is no view of a storage")
    return View(storage, offset, shape, strides)


def _size(numbers: Any = ()) -> tuple[Any, ...]:
    if not isinstance(numbers, tuple | list) or len(numbers) > _MOST_AXES:
        raise NotTensorsError("a size that is none")
    return tuple(numbers)


_CALLED: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": dict,
    "torch._utils._rebuild_tensor_v2": _view,
    "torch._utils._rebuild_tensor": _view,
    "torch._utils._rebuild_parameter": lambda data, *_: data,
    "torch.Size": _size,
}
_BUILDERS: dict[str, Callable[[list[Any], Any], None]] = {
    "MARK": lambda stack, _: stack.append(_MARK),
    "NONE": lambda stack, _: stack.append(None),
    "NEWTRUE": lambda stack, _: stack.append(True),
    "NEWFALSE": lambda stack, _: stack.append(False),
    "EMPTY_DICT": lambda stack, _: stack.append({}),
    "EMPTY_LIST": lambda stack, _: stack.append([]),
    "EMPTY_TUPLE": lambda stack, _: stack.append(()),
    "TUPLE": lambda stack, _: stack.append(tuple(_to_mark(stack))),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "DICT": _dict,
    "LIST": lambda stack, _: stack.append(_to_mark(stack)),
    "SETITEM": _set_item,
    "SETITEMS": lambda stack, _: _items(stack, _to_mark(stack)),
    "APPEND": lambda stack, _: _extend(stack, [stack.pop()]),
    "APPENDS": lambda stack, _: _extend(stack, _to_mark(stack)),
    "GLOBAL": lambda stack, argument: stack.append(Global(argument.replace(" ", "."))),
    "STACK_GLOBAL": _stack_global,
    "REDUCE": _call,
    "BINPERSID": _storage,
    "BUILD": _drop,  # versions that OrderedDict carries along: passed over
    "POP": _drop,
}
