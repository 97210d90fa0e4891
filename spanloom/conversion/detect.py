"""What a path is, by the files that are there. Reads no weights and no jax."""

from pathlib import Path
from typing import Literal

from spanloom.conversion.errors import ConversionError
from spanloom.settings.run_layout import CHECKPOINTS, RUN_FILE, is_checkpoint, is_converted, is_run_directory

Kind = Literal["run", "checkpoint", "converted", "huggingface", "t5x"]
KINDS: dict[Kind, str] = {
    "run": "a Spanloom run directory",
    "checkpoint": "a Spanloom checkpoint",
    "converted": "a model converted by Spanloom",
    "huggingface": "a Hugging Face folder",
    "t5x": "a checkpoint of T5X or Mesh TensorFlow",
}
# Patterns that tell a foreign checkpoint by name, and what it is.
_FOREIGN = (
    ("adapter_config.json", "a PEFT adapter without its base model"),
    ("checkpoint_*", "a folder of T5X checkpoints, none of them whole"),
    ("checkpoint", "a checkpoint of TensorFlow, or an empty one of T5X"),
    ("_CHECKPOINT_METADATA", "an Orbax checkpoint that Spanloom did not write"),
    ("tokenizer_config.json", "a tokenizer without a model"),
)


def detect(path: str | Path) -> Kind:
    """What `path` is. ConversionError says what was found where it is nothing that can be read."""
    path = Path(path)
    if not path.exists() and _is_t5x(path.with_name(path.name + ".index")):
        return "t5x"
    if not path.exists():
        near = f"; beside it there are: {_listing(path.parent)}" if path.parent.is_dir() else ""
        raise ConversionError(path, f"does not exist{near}")
    if not path.is_dir():
        if _is_t5x(path):
            return "t5x"
        raise ConversionError(path, f"is a file; name {_kinds()}" + (" (its folder)" if path.suffix else ""))
    if is_checkpoint(path):
        return "checkpoint"
    if is_run_directory(path):
        return "run"
    if is_converted(path):
        return "converted"
    if (path / "config.json").is_file():
        return "huggingface"
    if _is_t5x(path):
        return "t5x"
    raise ConversionError(path, f"is {_what_instead(path)}; {_kinds()} is needed")


def _is_t5x(path: Path) -> bool:
    """Whether a path is a checkpoint of T5X, or a folder that holds some."""
    from spanloom.conversion import t5x_checkpoint

    index = path.is_file() and path.name == t5x_checkpoint.INDEX
    return t5x_checkpoint.is_checkpoint(path.parent if index else path) or bool(t5x_checkpoint.steps_in(path))


def _what_instead(path: Path) -> str:
    if (path / RUN_FILE).is_file() or (path / CHECKPOINTS).is_dir():
        return "a Spanloom run directory without any checkpoint yet"
    for pattern, kind in _FOREIGN:
        if next(path.glob(pattern), None) is not None:
            return kind
    if next(path.glob("*.safetensors"), None) is not None:
        return "a folder with safetensors, but without the config.json that describes the model"
    return f"none of these (it holds {_listing(path)})"


def _listing(folder: Path, limit: int = 8) -> str:
    names = sorted(child.name for child in folder.iterdir())
    shown = ", ".join(names[:limit]) or "nothing"
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")


def _kinds() -> str:
    *kinds, last = KINDS.values()
    return f"{', '.join(kinds)} or {last}"
