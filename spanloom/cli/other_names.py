"""What other tools call it: said where a flag or a command of theirs is typed here and nothing better resembles it."""

import re
from collections.abc import Iterable, Mapping

_DEVICES = (
    "a run uses every device that is found, and the environment says which are: CUDA_VISIBLE_DEVICES=0 for one GPU, "
    "JAX_PLATFORMS=cpu for none"
)
_HELDOUT = "files of your own to validate by are --heldout FILES"
_GOES_ON = "the same command goes on where it stood, and spanloom train RUN_DIR --steps N trains further"
_PRECISION = "computing in bfloat16 is --model.dtype bfloat16"
_RATE = "the learning rate is --optimizer.learning-rate"
_LENGTHS = "lengths are --inputs-length and --targets-length, in tokens"

_FLAGS: Mapping[str, str] = {
    **dict.fromkeys(("validation", "validation_file", "valid", "val", "dev", "eval_data", "eval_file"), _HELDOUT),
    **dict.fromkeys(("test", "test_file", "test_data"), f"{_HELDOUT}, and a test set is for `spanloom eval`"),
    **dict.fromkeys(("gpu", "gpus", "device", "devices", "cuda", "cpu", "tpu", "num_gpus"), _DEVICES),
    **dict.fromkeys(("epochs", "num_epochs", "num_train_epochs"), "steps are counted: --steps N; how many epochs they "
                    "come to is said at the start, and by `spanloom show`"),
    **dict.fromkeys(("resume", "resume_from_checkpoint", "continue"), _GOES_ON),
    **dict.fromkeys(("bf16", "fp16", "precision", "mixed_precision"), _PRECISION),
    **dict.fromkeys(("lr",), _RATE),
    **dict.fromkeys(("max_source_length", "max_input_length", "seq_length", "sequence_length"), _LENGTHS),
    **dict.fromkeys(("output_dir", "model_dir", "output"), "the directory that a run writes is --out DIR"),
}  # fmt: skip
_COMMANDS: Mapping[str, str] = {
    **dict.fromkeys(("resume", "continue"), _GOES_ON),
    **dict.fromkeys(("predict", "infer", "inference", "write"), "a model writes by `spanloom generate`"),
    **dict.fromkeys(("export", "save"), "`spanloom convert RUN FOLDER --to hf` exports"),
    **dict.fromkeys(("push", "publish", "upload"), "`spanloom convert RUN FOLDER --to hf --push user/name` publishes"),
    **dict.fromkeys(("test", "evaluate", "judge"), "a model is judged by `spanloom eval`"),
    **dict.fromkeys(("tokenize", "preprocess"), "`spanloom cache` builds stores beforehand; `train` does so by itself"),
}
_OF_A_RUN = {
    "data": "task.source.files",
    "text": "task.source.files",
    "heldout": "task.source.heldout_files",
    "inputs": "task.source.inputs",
    "targets": "task.source.targets",
}
"""Parameters of shipped recipes, and the field of a run in which their value stands."""


def of_flag(name: str, known: Iterable[str], begun: bool = False) -> str:
    """'; and what it is called here', or nothing, also where that is none of `known`, the flags that are taken.

    `begun`: the flags are those of a run directory, whose recipe has been called.
    """
    if begun and name in _OF_A_RUN:
        field = _OF_A_RUN[name].replace("_", "-")
        return f"; it is a flag of the recipe that this run began with, and the run has --{field} in its place"
    hint = _FLAGS.get(name, "")
    named = {flag.replace("-", "_") for flag in re.findall(r"--([a-z.-]*[a-z])", hint)}
    return f"; {hint}" if hint and named <= set(known) else ""


def of_command(name: str) -> str:
    """'; and what it is called here', or nothing."""
    return f"; {_COMMANDS[name]}" if name in _COMMANDS else ""
