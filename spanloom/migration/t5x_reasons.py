"""Why bindings of T5X that no part of a run takes are not in the recipe."""

from collections.abc import Mapping

from spanloom.migration.fates import Kind

_FILES = "runs write what they decided into run.json"
_DEVICES = "devices are divided by --mesh"
_STORES = "tokens are kept in stores, which are built once and by themselves"
_SAME_DATA = "every run goes on exactly where its data stood"
_LOGS = "TensorBoard events, metrics.jsonl and tables of results are always written"
_DECODING = "how eval and generate write is set there: --beams, --alpha, --temperature, --top-k, --top-p"

T5X_REASONS: Mapping[str, tuple[Kind, str]] = {
    "train.model_dir": ("needless", "the directory is given when a run begins: spanloom train RECIPE --out DIR"),
    "MODEL_DIR": ("needless", "the directory is given when a run begins: spanloom train RECIPE --out DIR"),
    "train.summarize_config_fn": ("needless", _FILES),
    "train.trainer_cls": ("needless", "there is one trainer"),
    "train.use_hardware_rng": (
        "needless",
        "randomness follows from the seed alone, so that a run can be repeated",
    ),
    "train.stats_period": ("changed", "training lines are written every log.every steps (--log.every)"),
    "train.inference_evaluator_cls": ("needless", "there is one evaluator"),
    "train.train_eval_get_dataset_fn": ("needless", "held-out parts are always read whole and in order"),
    "train.get_dataset_fn": ("lost", "data are read in one way; what a task makes of its rows is in its preprocessors"),
    "train.concurrent_metrics": ("needless", "metrics are fetched a step late, so that devices never wait"),
    "train.use_orbax": ("needless", "checkpoints are Orbax's"),
    "train.gc_period": ("needless", "memory needs no such help here"),
    "train.run_eval_before_training": ("lost", "ask for it by spanloom eval of the start"),
    "train.verify_matching_vocabs_fn": ("needless", "vocabulary, embedding and start are always held against another"),
    "train.actions": ("lost", "early stopping is --stopping.patience N; a loss that is NaN always ends a run"),
    "train.train_state_initializer_cls": ("needless", "there is one"),
    "train.checkpoint_cfg": ("needless", "checkpoints are always written (--checkpoint)"),
    "train.partitioner": ("needless", _DEVICES),
    "get_training_eval_datasets.*": ("needless", "held-out parts are always read whole and in order"),
    "Evaluator.logger_cls": ("needless", _LOGS),
    "Evaluator.num_examples": ("changed", "how much is evaluated in training is --eval.max-batches"),
    "Evaluator.use_memory_cache": ("needless", _STORES),
    "Evaluator.*": ("lost", "spanloom eval has settings of its own"),
    "JSONLogger.write_n_results": ("needless", "spanloom eval writes every answer into OUT/eval"),
    "CheckpointConfig.restore": ("needless", "a run that has begun goes on; what it starts from is `start`"),
    "CheckpointConfig.save": ("needless", "checkpoints are always written (--checkpoint)"),
    "SaveCheckpointConfig.dtype": ("needless", "a checkpoint keeps weights as they are trained (--weights.dtype)"),
    "SaveCheckpointConfig.save_dataset": ("needless", _SAME_DATA),
    "SaveCheckpointConfig.keep_dataset_checkpoints": ("needless", _SAME_DATA),
    "SaveCheckpointConfig.checkpointer_cls": ("lost", "the best are kept beside the last: --checkpoint.keep-best"),
    "SaveCheckpointConfig.*": ("lost", "nothing here does so; --checkpoint has every, keep, keep_best and keep_every"),
    "RestoreCheckpointConfig.mode": ("changed", "`start` names one checkpoint, or a folder, whose last one is taken"),
    "RestoreCheckpointConfig.dtype": ("needless", "weights are trained in float32 (--weights.dtype)"),
    "RestoreCheckpointConfig.restore_dataset": ("needless", _SAME_DATA),
    "RestoreCheckpointConfig.strict": ("needless", "every array of a start is accounted for"),
    "RestoreCheckpointConfig.assignment_map": (
        "lost",
        "a start is taken whole; what it lacks or has too much is an error. Weights alone: --follow.optimizer reset "
        "--follow.schedule restart",
    ),
    "RestoreCheckpointConfig.*": ("lost", "a start is taken whole; what it lacks or has too much is an error"),
    "PjitPartitioner.params_on_devices": ("needless", _DEVICES),
    "PjitPartitioner.*": ("lost", _DEVICES),
    "ModelBasedPjitPartitioner.*": ("lost", _DEVICES),
    "DatasetConfig.use_cached": ("needless", f"{_STORES}; what SeqIO cached is read as a source (SeqioCaches)"),
    "DatasetConfig.use_memory_cache": ("needless", _STORES),
    "DatasetConfig.use_custom_packing_ops": ("needless", "packing is planned from the lengths of all examples"),
    "DatasetConfig.module": ("changed", "name the module: --module FILE.py"),
    "DatasetConfig.trim_output_features": ("changed", "what is too long is cut, or an error: objective.too_long"),
    "DatasetConfig.num_workers": ("changed", "--loading.workers"),
    "DatasetConfig.num_prefetch_threads": ("changed", "--loading.ahead"),
    "train/DatasetConfig.shuffle": ("needless", "training is always in an order drawn from the seed"),
    "train_eval/DatasetConfig.shuffle": ("needless", "held-out parts are read in order"),
    "train_eval/DatasetConfig.seed": ("needless", "held-out examples are the same at every evaluation"),
    "train_eval/DatasetConfig.pack": ("needless", "held-out batches are packed as training's are"),
    "train_eval/DatasetConfig.task_feature_lengths": ("needless", "held-out examples have the lengths of the task"),
    "infer_eval/DatasetConfig.*": (
        "changed",
        "what is written and judged in training is that of train_eval, with --eval.answers all; spanloom eval does so "
        "apart from training",
    ),
    "DatasetConfig.shuffle": ("needless", "held-out parts are read in order"),
    "DatasetConfig.seed": ("needless", "nothing is drawn where a held-out part is read"),
    "DatasetConfig.pack": ("needless", "rows are made as training's are"),
    "standard_logical_axis_rules.additional_rules": ("lost", "rules of your own are --mesh.more-rules AXIS=MESH_AXIS"),
    "Trainer.learning_rate_fn": ("needless", "the schedule is the recipe's"),
    "Trainer.weight_metrics_computer": ("changed", "--log.parameters N writes the RMS of every parameter"),
    "EncoderDecoderModel.module": ("needless", "there is one network"),
    "EncoderDecoderModel.feature_converter_cls": ("needless", "there is one, T5X's EncDecFeatureConverter"),
    "EncoderDecoderModel.decode_fn": ("changed", _DECODING),
    "EncoderDecoderModel.default_decoder_params": ("changed", _DECODING),
    "predict_batch_with_aux.*": ("changed", _DECODING),
    "temperature_sample.*": ("changed", _DECODING),
    "beam_search.*": ("changed", _DECODING),
    "Transformer.config": ("needless", "there is one network"),
    "T5Config.float32_attention_logits": ("needless", "attention's softmax is always in float32"),
    "T5Config.param_scan_axis": ("needless", "layers are stacked on axis 0; converting moves them"),
    "Adafactor.logical_factor_rules": ("needless", "axes have T5X's names, and each layer is updated by itself"),
    "Adafactor.dtype_momentum": ("needless", "momentum is in float32"),
    "infer.*": ("changed", "spanloom generate, score and eval have flags for these: --help"),
    "evaluate.*": ("changed", "spanloom eval has flags for these: --help"),
    "INFER_OUTPUT_DIR": ("changed", "spanloom generate ... --output FILE"),
    "EVAL_OUTPUT_DIR": ("changed", "spanloom eval ... --results DIR"),
}
"""By Class.argument, scope/Class.argument or Class.*."""
