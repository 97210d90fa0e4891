"""A Mesh TensorFlow operative configuration (t5.models.mesh_transformer) as a run, as far as it has a meaning here."""

import re
from dataclasses import replace
from typing import Any

from spanloom.migration.draft import Asked, Draft, MigrationError, Parameter, TaskFinder
from spanloom.migration.fates import Bindings
from spanloom.migration.gin_statements import Reference
from spanloom.migration.mesh_reasons import MESH_REASONS, T5_VALUES
from spanloom.migration.parameters import needed_by
from spanloom.migration.recipe_code import Expression, quoted
from spanloom.migration.t5x_model import bytes_of, sentencepiece_of, vocabulary_parameter
from spanloom.model.sizes import published_name
from spanloom.settings.follow import Follow
from spanloom.settings.mesh import Mesh
from spanloom.settings.mixture import Mixture, map_tasks, tasks_of
from spanloom.settings.model import Model
from spanloom.settings.objectives import SpanCorruption, Supervised
from spanloom.settings.optimizer import Adafactor, Constant, Rsqrt, Schedule
from spanloom.settings.packing import Packed, Packing, Unpacked
from spanloom.settings.run import Checkpoints, Loss, Run
from spanloom.settings.task import Task
from spanloom.settings.vocabulary import Bytes, Vocabulary

_STEP = re.compile(r"model\.ckpt-(\d+)$")
_PIECES = {"mt5": ("gs://t5-data/vocabs/mc4.250000.100extra/sentencepiece.model", 250112)}
_T5_PIECES = ("gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model", 32128)
_BYTE_ROWS = 384


def is_mesh(found: Bindings) -> bool:
    """Whether the configuration is one of Mesh TensorFlow."""
    return any(found.find(owner, "d_model") for owner in ("Unitransformer", "make_bitransformer")) or bool(
        found.find("run", "train_steps") or found.find("run", "model_type")
    )


def mesh_draft(found: Bindings, name: str, tasks: TaskFinder) -> Draft:
    """The run of an operative configuration. Raises MigrationError where it cannot be one."""
    kind = found.take("run", "model_type", "bitransformer")
    if kind != "bitransformer":
        raise MigrationError(f"run.model_type is {kind!r}, and Spanloom trains encoder-decoders alone (bitransformer)")
    start, done = _start(found)
    vocabulary, rows, parameters = _vocabulary(found, start)
    lengths = found.take("run", "sequence_length", {}) or {}
    asked = Asked(
        _task_name(found),
        {key: value for key, value in lengths.items() if isinstance(value, int)},
        found.take("run", "dataset_split", "train"),
        None,
        vocabulary,
    )
    data = tasks(asked)
    task = _with_gin_objective(found, data.data)
    if isinstance(tasks_of(task)[0].vocabulary, Bytes):
        rows = _BYTE_ROWS
    size, tokens = _batch(found)
    topology = str(found.take("tpu_mesh_shape", "tpu_topology", ""))
    tensor = int(found.take("tpu_mesh_shape", "model_parallelism", 1) or 1)
    rate, schedule = _schedule(found)
    run = Run(
        name=name,
        task=task,
        model=_model(found, rows),
        optimizer=_adafactor(found, rate),
        schedule=schedule,
        loss=Loss(
            float(found.take("Unitransformer", "z_loss", 1e-4, "decoder") or 0.0),
            float(found.take("Unitransformer", "label_smoothing", 0.0, "decoder") or 0.0),
            _denominator(found),
        ),
        batch_size=size,
        batch_tokens=tokens,
        microbatch_tokens=_microbatch(found, topology, tensor),
        packing=_packing(found, task, asked),
        steps=_steps(found, done),
        start=None if start is None else Expression(start, "start"),
        follow=Follow() if start is None else Follow(optimizer="continue", schedule="continue"),
        mesh=Mesh(tensor=tensor),
        checkpoint=_checkpoints(found),
    )
    if start is not None:
        text = "Checkpoint to start from; Mesh TensorFlow's are read as they are. Fetch it to this machine."
        parameters += (Parameter("start", "str | None", quoted(start), text),)
    return Draft(
        run,
        needed_by(run, (*data.parameters, *parameters)),
        (*found.notes(MESH_REASONS), *data.notes),
        functions=data.functions,
        imports=data.imports,
    )


def _task_name(found: Bindings) -> str:
    for owner in ("mesh_train_dataset_fn", "get_vocabulary", "mesh_eval_dataset_fn"):
        name = found.take(owner, "mixture_or_task_name")
        if isinstance(name, str):
            for other in ("get_vocabulary", "mesh_eval_dataset_fn"):
                found.take(other, "mixture_or_task_name")
            return name
    raise MigrationError("nothing says which task or mixture is learnt: give --gin.MIXTURE_NAME='\"...\"'")


def _start(found: Bindings) -> tuple[str | None, int]:
    path = found.take("run", "init_checkpoint")
    if not isinstance(path, str) or not path:
        return None, 0
    step = _STEP.search(path)
    return path, int(step[1]) if step else 0


def _vocabulary(found: Bindings, start: str | None) -> tuple[Vocabulary, int, tuple[Parameter, ...]]:
    """An operative configuration names a task, whose vocabulary is; the start's name tells which T5 it is."""
    words = f"{start or ''} {_task_name(found)}".lower()
    if "byt5" in words or "byte" in words:
        return bytes_of(0), _BYTE_ROWS, ()
    path, rows = next((known for name, known in _PIECES.items() if name in words), _T5_PIECES)
    return sentencepiece_of(path, 0, "vocabulary"), rows, (vocabulary_parameter(path),)


def _with_gin_objective(found: Bindings, data: Task | Mixture) -> Task | Mixture:
    """What gin binds of span corruption holds for tasks that do not set it themselves."""
    density = found.take("random_spans_helper", "noise_density", found.take("denoise", "noise_density"))
    found.take("denoise", "noise_density")
    length = found.take("random_spans_helper", "mean_noise_span_length")
    found.take("random_spans_noise_mask", "mean_noise_span_length")
    inputs = found.take("random_spans_helper", "inputs_length")
    documents = found.take("reduce_concat_tokens", "batch_size")

    def change(task: Task) -> Task:
        old = task.objective
        if not isinstance(old, SpanCorruption):
            return task
        new = replace(
            old,
            inputs_length=inputs if isinstance(inputs, int) else old.inputs_length,
            noise_density=old.noise_density if density is None else float(density),
            mean_span_length=old.mean_span_length if length is None else float(length),
            concat_documents=documents if isinstance(documents, int) else old.concat_documents,
        )
        return replace(task, objective=new)

    return map_tasks(data, change)


def _model(found: Bindings, rows: int) -> Model:
    def take(owner: str, argument: str, default: Any = None, scope: str = "encoder") -> Any:
        value = found.take(owner, argument, default, scope)
        other = "decoder" if scope == "encoder" else "encoder"
        if found.take(owner, argument, value, other) != value:
            found.note("lost", f"both stacks have the {scope}'s here, {value!r}", owner, argument, other)
        return value

    activations = take("DenseReluDense", "activation", "relu")
    activations = (activations,) if isinstance(activations, str) else tuple(activations)
    numbers = {
        "d_model": take("Unitransformer", "d_model"),
        "d_ff": take("DenseReluDense", "hidden_size"),
        "num_heads": take("SelfAttention", "num_heads"),
        "d_kv": take("SelfAttention", "key_value_size"),
        "num_encoder_layers": found.take("make_layer_stack", "num_layers", None, "encoder"),
        "num_decoder_layers": found.take("make_layer_stack", "num_layers", None, "decoder"),
    }
    if absent := [name for name, value in numbers.items() if not isinstance(value, int)]:
        raise MigrationError(f"the configuration does not say the model's {', '.join(absent)}")
    dtype = str(found.take("get_variable_dtype", "activation_dtype", "float32"))
    model = Model(
        vocab_size=rows,
        **numbers,
        activations=activations,
        tie_embeddings=bool(found.take("Unitransformer", "shared_embedding_and_softmax_weights", False, "decoder")),
        relative_position_buckets=take("SelfAttention", "relative_attention_num_buckets", 32),
        dropout=float(take("DenseReluDense", "dropout_rate", 0.0) or 0.0),
        dtype="bfloat16" if dtype == "bfloat16" else "float32",
        norm_epsilon=found.take("sublayer_rms_norm", "epsilon", 1e-6),
    )
    for owner in ("SelfAttention", "sublayer_dropout", "LayerStack"):
        take(owner, "dropout_rate", 0.0)
    _note_other_networks(found)
    return replace(model, name=published_name(model))


def _note_other_networks(found: Bindings) -> None:
    """Say of what T5 has otherwise that it is not carried over."""
    for name, usual in T5_VALUES.items():
        owner, _, argument = name.partition(".")
        for scope in ("encoder", "decoder"):
            binding = found.find(owner, argument, scope)
            if binding is not None and found.config.value(binding.value) != usual:
                found.note("lost", f"T5's network has {usual!r} there, and Spanloom no other", owner, argument, scope)


def _schedule(found: Bindings) -> tuple[float, Schedule]:
    """The base rate and the schedule; of a truncated or unknown one T5's."""
    reference = found.take("run", "learning_rate_schedule")
    reference = reference[0] if isinstance(reference, list | tuple) and reference else reference
    name = reference.short if isinstance(reference, Reference) else "learning_rate_schedule_noam"
    if name == "constant_learning_rate":
        return float(found.take(name, "learning_rate", 1e-3)), Constant()
    if name in ("learning_rate_schedule_noam", "rsqrt_no_ramp_down", "truncated_rsqrt"):
        rate = found.take(name, "multiplier", 1.0)
        warmup = found.take(name, "warmup_steps", 10_000)
        offset = found.take(name, "offset", 0)
        if found.take(name, "linear_decay_fraction", 0.0):
            why = "the last steps decay to zero there; stop at --steps, or take --schedule linear for such a run"
            found.note("lost", why, name, "linear_decay_fraction")
        return float(rate), Rsqrt(warmup_steps=warmup, step_offset=offset)
    found.note("lost", f"there is no {name} here; rsqrt stands in (--schedule)", "run", "learning_rate_schedule")
    return 1.0, Rsqrt()


def _adafactor(found: Bindings, rate: float) -> Adafactor:
    owner = "AdafactorOptimizer"
    optimizer = found.reference("run", "optimizer")
    if optimizer is not None and optimizer.short != owner:
        raise MigrationError(f"run.optimizer is {optimizer!r}; of Mesh TensorFlow's Spanloom has Adafactor")
    if found.take(owner, "decay_rate") is not None:
        found.note("lost", "the decay follows the step, 1 - (t + 1)^-0.8", owner, "decay_rate")
    values: dict[str, Any] = {}
    for theirs, ours in (
        ("clipping_threshold", "clipping_threshold"),
        ("epsilon1", "epsilon1"),
        ("epsilon2", "epsilon2"),
        ("factored", "factored"),
        ("min_dim_size_to_factor", "min_dim_size_to_factor"),
        ("multiply_by_parameter_scale", "multiply_by_parameter_scale"),
    ):
        if found.find(owner, theirs) is not None:
            values[ours] = found.take(owner, theirs)
    values["beta1"] = found.take(owner, "beta1", 0.0) or None
    values["step_offset"] = found.take("adafactor_decay_rate_pow", "offset", 0)
    return Adafactor(learning_rate=rate, **values)


def _denominator(found: Bindings) -> Any:
    value = found.take("Unitransformer", "loss_denominator", None, "decoder")
    if isinstance(value, int | float):
        return float(value)
    # Mesh TensorFlow's own: every token of the batch, padding included
    return "all_tokens"


def _batch(found: Bindings) -> tuple[int, int | None]:
    value = found.take("run", "batch_size", 128)
    if isinstance(value, int):
        return value, None
    kind, number = value
    if kind == "tokens_per_batch":
        return Run.batch_size, int(number)
    if kind == "sequences_per_batch":
        return int(number), None
    raise MigrationError(f"run.batch_size is {value!r}; tokens_per_batch and sequences_per_batch have a meaning here")


def _microbatch(found: Bindings, topology: str, tensor: int) -> int | None:
    """Tokens at a time over all devices, of those on each of them."""
    owner, name = "serialize_num_microbatches", "tokens_per_microbatch_per_replica"
    tokens = found.take(owner, name)
    if not isinstance(tokens, int):
        return None
    cores = re.fullmatch(r"v\d\w*-(\d+)", topology)
    if cores is None:
        found.note("lost", "how many devices share a batch is not said: --microbatch-tokens", owner, name)
        return None
    found.note("changed", f"times the {int(cores[1]) // tensor} replicas of {topology}", owner, name)
    return tokens * max(int(cores[1]) // tensor, 1)


def _packing(found: Bindings, data: Task | Mixture, asked: Asked) -> Packing:
    if not found.take("mesh_train_dataset_fn", "pack", False):
        return Unpacked()
    if not any(isinstance(task.objective, Supervised) for task in tasks_of(data)):
        why = "examples of span corruption fill their rows, so none can be packed"
        found.note("needless", why, "mesh_train_dataset_fn", "pack")
        return Unpacked()
    return Packed(asked.lengths.get("inputs"), asked.lengths.get("targets"))


def _steps(found: Bindings, done: int) -> int:
    total = found.take("run", "train_steps", 10_000)
    if done and total > done:
        found.note("changed", f"{total:,} less the {done:,} of the start", "run", "train_steps")
    return total - done if total > done else total


def _checkpoints(found: Bindings) -> Checkpoints:
    every = found.take("run", "save_checkpoints_steps", Checkpoints.every)
    keep = found.take("run", "keep_checkpoint_max", Checkpoints.keep)
    if keep is None:
        found.note("changed", f"all are kept: checkpoint.keep_every {every}", "run", "keep_checkpoint_max")
        return Checkpoints(every=every, keep_every=every)
    return Checkpoints(every=every, keep=keep)
