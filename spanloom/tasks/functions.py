"""From the name that settings hold to a callable, in any process; and the source text that decides what it does."""

import functools
import hashlib
import importlib
import inspect
import json
import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spanloom.settings.function import Function, FunctionError
from spanloom.settings.nearest import did_you_mean
from spanloom.settings.serialize import to_json
from spanloom.tasks.source_text import source_of

_TEXT = "__spanloom_source__"


def resolve(function: Function) -> Callable[..., Any]:
    """The callable: the function with its further arguments filled in, or an instance of the class.

    A module is imported; a file is run once in a process, and again if it has changed since. Raises FunctionError where
    there is no such thing, or where its file or class fails, and says which.
    """
    found: Any = module_of(function)
    for name in function.qualname.split("."):
        if not hasattr(found, name):
            names = [key for key in vars(found) if not key.startswith("_")] if hasattr(found, "__dict__") else []
            raise FunctionError(f"{function.place} has no {name!r}{did_you_mean(name, names)}")
        found = getattr(found, name)
    arguments = {name: _resolved(value) for name, value in function.arguments.items()}
    if isinstance(found, type):
        try:
            made: Callable[..., Any] = found(**arguments)
        except (TypeError, ValueError) as error:
            raise FunctionError(f"{function}: {error}") from error
        return made
    if not callable(found):
        raise FunctionError(f"{function.name} is of type {type(found).__name__}, no function")
    _check_arguments(function, found, arguments)
    return functools.partial(found, **arguments) if arguments else found


def module_of(function: Function) -> types.ModuleType:
    """The module that holds it, loaded. Raises FunctionError."""
    if function.is_of_file:
        return _load_file(function.place)
    try:
        return importlib.import_module(function.place)
    except ImportError as error:
        raise FunctionError(
            f"{function.name} cannot be imported ({error}): install its package, or set PYTHONPATH to its folder"
        ) from error


def code_hash(function: Function) -> str:
    """SHA-256, in hexadecimal, of the source text of the function or class and of all that it uses of its own file, of
    neighbouring files and of functions among its arguments. Of code without source text only the name counts.
    """
    digest = hashlib.sha256()
    for one in [function, *_inner(function.arguments)]:
        module = module_of(one)
        text = getattr(module, _TEXT, None) or _text_of(module)
        path = Path(getattr(module, "__file__", None) or one.place)
        digest.update(f"{one.qualname}\0".encode())
        digest.update(source_of(text, one.qualname.split(".")[0], path).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def described(function: Function) -> dict[str, Any]:
    """What decides what it does, as JSON data: its name without folders, its arguments and the hash of its code."""
    arguments = json.loads(json.dumps(to_json(function.arguments)))
    return {"name": shown_name(function), "arguments": arguments, "code": code_hash(function)}


def shown_name(function: Function) -> str:
    """The name, of a file only the last part of its path: the same wherever it lies."""
    place = os.path.basename(function.place) if function.is_of_file else function.place
    return f"{place}:{function.qualname}"


def parameters_of(call: Callable[..., Any]) -> frozenset[str]:
    """Names of the parameters that are not filled in yet; none for code that does not tell."""
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):
        return frozenset()
    filled = set(call.keywords) if isinstance(call, functools.partial) else set()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return frozenset(p.name for p in signature.parameters.values() if p.kind in named and p.name not in filled)


def code_file(call: Callable[..., Any]) -> str:
    """The file that holds its code; empty where there is none."""
    call = call.func if isinstance(call, functools.partial) else call
    inner = call if inspect.isfunction(call) else getattr(type(call), "__call__", None)  # noqa: B004
    code = getattr(inspect.unwrap(inner) if inner else None, "__code__", None)
    return code.co_filename if code is not None else ""


def _resolved(value: Any) -> Any:
    if isinstance(value, Function):
        return resolve(value)
    if isinstance(value, tuple):
        return tuple(map(_resolved, value))
    return {key: _resolved(one) for key, one in value.items()} if isinstance(value, dict) else value


def _inner(value: Any) -> Iterator[Function]:
    """Functions inside of arguments."""
    if isinstance(value, Function):
        yield value
        yield from _inner(value.arguments)
    elif isinstance(value, dict | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _inner(one)


def _check_arguments(function: Function, call: Callable[..., Any], arguments: dict[str, Any]) -> None:
    try:
        parameters = inspect.signature(call).parameters
    except (TypeError, ValueError):
        return
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for name in arguments:
        if name not in parameters:
            raise FunctionError(f"{function.qualname} has no parameter {name!r}{did_you_mean(name, parameters)}")


def _load_file(path: str) -> types.ModuleType:
    """A file as a module of its own, whose name is that of its path and text."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise FunctionError(
            f"{path}, whose functions this run uses, cannot be read ({error.strerror}): put it back where it was"
        ) from error
    name = f"spanloom_file_{hashlib.sha256(path.encode() + bytes(1) + text).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    module = types.ModuleType(name)
    module.__file__ = path
    setattr(module, _TEXT, text.decode("utf-8", "replace"))
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.append(folder)  # it may import its neighbours, and a numbers.py among them is not Python's
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(compile(text, path, "exec"), module.__dict__)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise FunctionError(f"{path} fails: {type(error).__name__}: {error}") from error
    return module


def _text_of(module: types.ModuleType) -> str:
    try:
        return inspect.getsource(module)
    except (OSError, TypeError):
        return ""
