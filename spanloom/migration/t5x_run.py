"""A T5X configuration as a run: what its bindings mean here.

The model, the optimizer and the schedule have the same numbers; what differs by design is said in notes. Steps are
counted from the start here, and from the first step of the start's own training there.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spanloom.migration.draft import Asked, Draft, FoundData, MigrationError, Parameter, TaskFinder
from spanloom.migration.fates import Bindings
from spanloom.migration.gin_statements import Reference
from spanloom.migration.parameters import needed_by
from spanloom.migration.recipe_code import Expression, quoted
from spanloom.migration.t5x_model import model_of, vocabulary_of
from spanloom.migration.t5x_optimizer import optimizer_of, schedule_of
from spanloom.migration.t5x_reasons import T5X_REASONS
from spanloom.settings.follow import Follow
from spanloom.settings.mesh import Mesh
from spanloom.settings.mixture import tasks_of
from spanloom.settings.objectives import Supervised
from spanloom.settings.packing import Packed, Packing, Unpacked
from spanloom.settings.run import Checkpoints, Evaluation, Loss, Normalizer, Run

_STEP = re.compile(r"(?:checkpoint_|model\.ckpt-)(\d+)/?$")
_NORMALIZERS: dict[Any, Normalizer] = {
    None: "sum",
    "NUM_REAL_TARGET_TOKENS": "real_tokens",
    "NUM_TOTAL_TARGET_TOKENS": "all_tokens",
    "AVERAGE_PER_SEQUENCE": "sequences",
}
_DEFAULT_STEPS = 10_000
_START = "Checkpoint to start from; T5X's and Mesh TensorFlow's are read as they are. Fetch it to this machine."


_SCRIPTS = ("train", "infer", "evaluate")


def is_t5x(found: Bindings) -> bool:
    """Whether the configuration is one of T5X's scripts."""
    return _script(found) is not None


def _script(found: Bindings) -> str | None:
    named = {one.selector.rpartition(".")[2] for one in found.config.bindings}
    return next((one for one in _SCRIPTS if one in named), None)


def t5x_draft(found: Bindings, name: str, tasks: TaskFinder) -> Draft:
    """The run of a T5X configuration for train, infer or eval. Raises MigrationError where it cannot be one."""
    script = _script(found) or "train"
    training = script == "train"
    owner = _model(found, script)
    model = model_of(found, owner)
    data_config = _config(
        found, script, "train_dataset_cfg" if training else "dataset_cfg", "train" if training else ""
    )
    assert data_config is not None
    watched = _config(found, "train", "train_eval_dataset_cfg", "train_eval") if training else data_config
    _note_modules(found, data_config, watched, found.reference(script, "infer_eval_dataset_cfg"))
    asked = _asked(found, data_config, watched, training)
    vocabulary, parameters = vocabulary_of(found, owner)
    data = tasks(replace(asked, vocabulary=vocabulary))
    start, follow, done = _start(found)
    if not training:
        why = "the checkpoint is named on the command line: spanloom eval CHECKPOINT RECIPE"
        found.note("changed", why, "RestoreCheckpointConfig", "path")
    run = Run(
        name=name,
        task=data.data,
        model=model,
        optimizer=optimizer_of(found, owner, training),
        schedule=schedule_of(found, owner),
        loss=_loss(found, owner),
        batch_size=_or_macro(found, data_config, "batch_size", "BATCH_SIZE") or 128,
        packing=_packing(found, data_config, data, asked),
        steps=_steps(found, done),
        seed=_seed(found, data_config),
        start=None if start is None or not training else Expression(start, "start"),
        follow=follow if training else Follow(),
        mesh=_mesh(found),
        checkpoint=_checkpoints(found),
        eval=_evaluation(found, watched),
    )
    if microbatches := found.take("Trainer", "num_microbatches"):
        run = replace(run, microbatch_size=max(run.batch_size // microbatches, 1))
    if run.start is not None:
        parameters += (Parameter("start", "str | None", quoted(str(run.start)), _START),)
    return Draft(
        run,
        needed_by(run, (*data.parameters, *parameters)),
        (*found.notes(T5X_REASONS), *data.notes),
        "train" if training else "eval",
        data.functions,
        data.imports,
    )


def _owner(reference: Reference) -> str:
    return reference.selector


def _config(found: Bindings, script: str, argument: str, scope: str) -> Reference | None:
    """The configuration of data that a script is given; what T5X's own files give it where nothing does."""
    if found.find(script, argument) is None:
        return Reference(f"{scope}/utils.DatasetConfig" if scope else "utils.DatasetConfig", True)
    return found.reference(script, argument)


def _or_macro(found: Bindings, config: Reference, argument: str, macro: str) -> Any:
    """What data are configured with, or the macro that T5X's own files have for it."""
    value = found.take(config.selector, argument, None, config.scope)
    return found.take_macro(macro) if value is None else value


def _model(found: Bindings, script: str) -> str:
    reference = found.reference(script, "model") or found.take_macro("MODEL")
    if not isinstance(reference, Reference) or reference.short != "EncoderDecoderModel":
        what = "nothing" if reference is None else repr(reference)
        raise MigrationError(
            f"{script}.model is {what}, and Spanloom trains encoder-decoders alone (models.EncoderDecoderModel)"
        )
    return reference.selector


def _note_modules(found: Bindings, *configs: Reference | None) -> None:
    for one in configs:
        if one is not None and found.find(one.selector, "module", one.scope) is not None:
            if found.take(one.selector, "module", None, one.scope) is None:
                found.note("needless", "no module is named", one.selector, "module", one.scope)
            else:
                found.note("changed", "the module is given as --module FILE.py", one.selector, "module", one.scope)


def _asked(found: Bindings, config: Reference, watched: Reference | None, training: bool) -> Asked:
    name = _or_macro(found, config, "mixture_or_task_name", "MIXTURE_OR_TASK_NAME")
    if not isinstance(name, str):
        raise MigrationError("nothing says which task or mixture is learnt: give --gin.MIXTURE_OR_TASK_NAME='\"...\"'")
    lengths = _or_macro(found, config, "task_feature_lengths", "TASK_FEATURE_LENGTHS") or {}
    if not isinstance(lengths, Mapping):
        raise MigrationError(
            f"task_feature_lengths is {lengths!r}, and must be such as {{'inputs': 512, 'targets': 114}}"
        )
    split = found.take(_owner(config), "split", "train", config.scope)
    heldout = None if watched is None else found.take(_owner(watched), "split", "validation", watched.scope)
    if watched is not None and training:
        other = found.take(_owner(watched), "mixture_or_task_name", name, watched.scope)
        if other != name:
            found.note(
                "lost",
                f"held-out loss is that of {name}; to watch another task, too, put it into eval.also",
                _owner(watched),
                "mixture_or_task_name",
                watched.scope,
            )
    if not training:
        split, heldout = "train", split
    return Asked(name, {k: v for k, v in lengths.items() if isinstance(v, int)}, split, heldout)


def _loss(found: Bindings, owner: str) -> Loss:
    """T5X's defaults are 0, 0 and a sum; older files bind loss_fn."""
    values: dict[str, Any] = {}
    for name, default in (("z_loss", 0.0), ("label_smoothing", 0.0), ("loss_normalizing_factor", None)):
        older = found.take(f"{owner}.loss_fn", name, default)
        values[name] = found.take(owner, name, older)
    factor = values["loss_normalizing_factor"]
    if isinstance(factor, str) and factor not in _NORMALIZERS:
        raise MigrationError(
            f"loss_normalizing_factor is {factor!r}, which is none of {', '.join(map(str, _NORMALIZERS))}"
        )
    normalizer = _NORMALIZERS[factor] if factor is None or isinstance(factor, str) else float(factor)
    return Loss(float(values["z_loss"]), float(values["label_smoothing"]), normalizer)


def _packing(found: Bindings, config: Reference, data: FoundData, asked: Asked) -> Packing:
    pack = found.take(_owner(config), "pack", False, config.scope)
    if not any(isinstance(task.objective, Supervised) for task in tasks_of(data.data)):
        found.note(
            "needless",
            "examples of span corruption fill their rows, so none can be packed",
            _owner(config),
            "pack",
            config.scope,
        )
        return Unpacked()
    if not pack:
        return Unpacked()
    return Packed(asked.lengths.get("inputs"), asked.lengths.get("targets"))


def _start(found: Bindings) -> tuple[str | None, Follow, int | None]:
    """The checkpoint, what is taken over from it, and the step that it has come to, if its name says so."""
    path = found.take("RestoreCheckpointConfig", "path")
    if isinstance(path, list | tuple):
        if len(path) > 1:
            found.note("changed", "of several checkpoints the first is taken", "RestoreCheckpointConfig", "path")
        path = path[0] if path else None
    if not isinstance(path, str):
        return None, Follow(), 0
    step = _STEP.search(path)
    return path, Follow(optimizer="continue", schedule="continue"), int(step[1]) if step else None


def _steps(found: Bindings, done: int | None) -> int:
    relative = found.take("train", "relative_steps")
    total = found.take("train", "total_steps")
    total = found.take_macro("TRAIN_STEPS") if total is None and relative is None else total
    if relative is not None:
        if total is not None:
            found.note("needless", "relative_steps counts from the start, and wins", "train", "total_steps")
        return int(relative)
    if total is None:
        return _DEFAULT_STEPS
    if done is None:
        found.note(
            "changed",
            f"{total} counts the steps of the start, whose name does not say how many: lower --steps by them",
            "train",
            "total_steps",
        )
    if done and total > done:
        found.note("changed", f"{total:,} less the {done:,} of the start", "train", "total_steps")
        return int(total) - done
    if done:
        raise MigrationError(
            f"total_steps is {total}, but the start is at step {done} already: nothing is left to train"
        )
    return int(total)


def _seed(found: Bindings, config: Reference) -> int:
    """One seed decides everything here: that of the run, or of its data."""
    data = found.take(_owner(config), "seed", None, config.scope)
    run = found.take("train", "random_seed")
    if data is None:
        found.note("changed", "every run has a seed, here 0, and can be repeated", _owner(config), "seed", config.scope)
    if run is None:
        found.note("changed", "every run has a seed, here 0, and can be repeated", "train", "random_seed")
    elif data is not None and data != run:
        found.note("changed", f"one seed decides data, noise and weights: {run}", _owner(config), "seed", config.scope)
    return int(run if run is not None else data or 0)


def _mesh(found: Bindings) -> Mesh:
    reference = found.reference("train", "partitioner") or Reference("PjitPartitioner", True)
    owner = reference.selector
    if reference.short != "PjitPartitioner":
        for argument in ("num_partitions", "model_parallel_submesh", "logical_axis_rules"):
            found.note("needless", f"the partitioner is another, {reference!r}", "PjitPartitioner", argument)
    partitions = found.take(owner, "num_partitions", 1)
    submesh = found.take(owner, "model_parallel_submesh")
    if submesh:
        partitions = 1
        for one in submesh:
            partitions *= one
    rules = found.reference(owner, "logical_axis_rules")
    if rules is not None and rules.short != "standard_logical_axis_rules":
        found.note(
            "lost",
            "rules of a module of your own: --mesh.fsdp N divides weights and optimizer along the batch's axis, "
            "--mesh.more-rules AXIS=MESH_AXIS adds rules",
            owner,
            "logical_axis_rules",
        )
    activations = found.take("standard_logical_axis_rules", "activation_partitioning_dims", 1)
    parameters = found.take("standard_logical_axis_rules", "parameter_partitioning_dims", None)
    mesh = Mesh(tensor=int(partitions or 1))
    if activations == 2 or parameters is not None:
        mesh = replace(mesh, rules=f"t5x_a{activations}_p{parameters or 1}")  # type: ignore[arg-type]
    return mesh


def _checkpoints(found: Bindings) -> Checkpoints:
    owner = "SaveCheckpointConfig"
    every = found.take(owner, "period", Checkpoints.every)
    keep = found.take(owner, "keep")
    if keep is None:
        found.note("changed", f"all are kept: checkpoint.keep_every {every}", owner, "keep")
        return Checkpoints(every=every, keep_every=every)
    return Checkpoints(every=every, keep=keep)


def _evaluation(found: Bindings, watched: Reference | None) -> Evaluation:
    every = found.take("train", "eval_period", Evaluation.every)
    most = found.take("train", "eval_steps", Evaluation.max_batches)
    answers = found.reference("train", "infer_eval_dataset_cfg") is not None
    if watched is None:
        why = "held-out loss costs little: --eval.every N, above --steps for never"
        found.note("changed", why, "train", "train_eval_dataset_cfg")
        return Evaluation(every=every, answers="all" if answers else "none")
    size = found.take(watched.selector, "batch_size", None, watched.scope)
    train = found.find("DatasetConfig", "batch_size", "train")
    same = train is not None and found.config.value(train.value) == size
    return Evaluation(
        every=every,
        max_batches=most,
        batch_size=None if same or size is None else size,
        answers="all" if answers else "none",
    )
