"""Why bindings of Mesh TensorFlow that no part of a run takes are not in the recipe."""

from collections.abc import Mapping

from spanloom.migration.fates import Kind

_NETWORK = "T5's network has it so"
_DEVICES = "devices are divided by --mesh"
_STORES = "tokens are kept in stores, which are built once and by themselves"
_CHUNKS = "documents are joined and cut by the objective (concat_documents, inputs_length), long ones to their end"
_SPANS = "the lengths follow from inputs_length, noise_density and mean_span_length"
_UNUSED = "it has no meaning for a run here, and is unset there"

MESH_REASONS: Mapping[str, tuple[Kind, str]] = {
    "Bitransformer.shared_embedding": ("needless", _NETWORK),
    "denoise.inputs_fn": ("needless", "span corruption writes one sentinel a span"),
    "denoise.targets_fn": ("needless", "span corruption writes one sentinel a span"),
    "denoise.noise_mask_fn": ("needless", "span corruption masks spans of random lengths"),
    "DenseReluDense.use_bias": ("needless", _NETWORK),
    "EncDecAttention.*": ("needless", _NETWORK),
    "SelfAttention.*": ("needless", _NETWORK),
    "LayerStack.recompute_grads": ("changed", "what is computed again is --model.remat"),
    "LayerStack.*": ("needless", _NETWORK),
    "make_bitransformer.*": ("needless", _NETWORK),
    "make_layer_stack.*": ("needless", _NETWORK),
    "Unitransformer.vocab_divisor": ("needless", "the embedding has as many rows as T5's, a multiple of 128"),
    "Unitransformer.*": ("needless", _NETWORK),
    "sublayer_rms_norm.name": ("needless", _NETWORK),
    "sublayer_rms_norm.*": ("needless", _NETWORK),
    "VarianceScalingInitializer.*": ("needless", _NETWORK),
    "VocabEmbedding.*": ("needless", _NETWORK),
    "unit_scaling_convention.value": ("needless", _NETWORK),
    "get_variable_dtype.*": ("needless", "weights and optimizer are in float32 (--weights.dtype)"),
    "rewrite_stack_variables.*": ("needless", "layers are stacked, and each is updated by itself"),
    "mesh_train_dataset_fn.seed": ("changed", "every run has a seed, here 0, and can be repeated"),
    "mesh_train_dataset_fn.shuffle": ("needless", "training is always in an order drawn from the seed"),
    "mesh_train_dataset_fn.use_cached": ("needless", _STORES),
    "mesh_train_dataset_fn.*": ("needless", _STORES),
    "mesh_eval_dataset_fn.*": ("changed", "spanloom eval"),
    "pack_dataset.use_custom_ops": ("needless", "packing is planned from the lengths of all examples"),
    "random_spans_helper.*": ("needless", _SPANS),
    "random_spans_noise_mask.*": ("needless", _SPANS),
    "rate_num_examples.*": ("needless", "rates are the mixture's own (Weighted.rate)"),
    "reduce_concat_tokens.*": ("needless", _CHUNKS),
    "select_random_chunk.*": ("needless", _CHUNKS),
    "split_tokens.*": ("needless", _CHUNKS),
    "unsupervised.preprocessors": ("needless", "these steps are what span corruption is"),
    "run.autostack": ("needless", "layers are stacked, and each is updated by itself"),
    "run.checkpoint_input_pipeline": ("needless", "every run goes on exactly where its data stood"),
    "run.skip_seen_data": ("needless", "every run goes on exactly where its data stood"),
    "run.seen_data_init_step": ("needless", "every run goes on exactly where its data stood"),
    "run.iterations_per_loop": ("changed", "training lines are written every log.every steps (--log.every)"),
    "run.layout_rules": ("needless", _DEVICES),
    "run.mesh_shape": ("needless", _DEVICES),
    "run.mesh_devices": ("needless", _DEVICES),
    "run.mode": ("needless", "training, evaluating and writing are commands: train, eval, generate"),
    "run.train_dataset_fn": ("needless", "data are read in one way"),
    "run.eval_dataset_fn": ("needless", "held-out parts are those of the tasks"),
    "run.eval_checkpoint_step": ("changed", "spanloom eval ... --checkpoints"),
    "run.eval_summary_dir": ("changed", "spanloom eval ... --results DIR"),
    "run.export_path": ("needless", "the last checkpoint is exported for Hugging Face by itself"),
    "run.export_checkpoint_step": ("needless", "spanloom convert --which STEP"),
    "run.output_eval_examples": ("needless", "spanloom eval writes every answer"),
    "run.perplexity_eval_steps": ("changed", "--eval.max-batches"),
    "run.predict_fn": ("needless", _UNUSED),
    "run.ensemble_inputs": ("needless", _UNUSED),
    "run.total_run_steps": ("needless", _UNUSED),
    "run.variable_filter": ("lost", "all parameters are trained"),
    "SimdMeshImpl.*": ("needless", _DEVICES),
    "tpu_mesh_shape.*": ("needless", _DEVICES),
    "tpu_estimator_model_fn.*": ("needless", "there is no estimator here"),
}
"""By Class.argument or Class.*."""

T5_VALUES: Mapping[str, object] = {
    "Bitransformer.shared_embedding": True,
    "DenseReluDense.use_bias": False,
    "EncDecAttention.relative_attention_type": None,
    "LayerStack.norm_epsilon": None,
    "SelfAttention.attention_func": None,
    "SelfAttention.attention_kwargs": None,
    "SelfAttention.fold_scaling_into_initializer": True,
    "SelfAttention.num_memory_heads": 0,
    "SelfAttention.relative_attention_type": "bias_shared",
    "SelfAttention.shared_kv": False,
    "Unitransformer.input_full_attention": False,
    "Unitransformer.loss_fn": None,
    "Unitransformer.positional_embedding": False,
    "Unitransformer.sinusoid_positional_embedding": False,
    "Unitransformer.token_dropout_rate": 0.0,
}
"""What T5's own configurations bind: anything else is another network."""
