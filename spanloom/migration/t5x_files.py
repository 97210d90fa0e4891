"""What T5X's own gin files bind, for where T5X is not there: its settings as facts, in as few lines as say them.

From google-research/t5x at cc342d4 (t5x/configs/runs, t5x/examples/t5, t5x/examples/scalable_t5). A file of that name
that is found is always read in place of these.
"""

import re

from spanloom.model.sizes import SIZES

_MODEL = """
from __gin__ import dynamic_registration
import seqio
from t5x import adafactor
from t5x import models
from t5x.examples.{examples} import network
Z_LOSS = 0.0001
LABEL_SMOOTHING = 0.0
LOSS_NORMALIZING_FACTOR = None
DROPOUT_RATE = %gin.REQUIRED
VOCABULARY = @seqio.{vocabulary}()
OPTIMIZER = @adafactor.Adafactor()
adafactor.Adafactor.decay_rate = 0.8
adafactor.Adafactor.step_offset = 0
adafactor.Adafactor.logical_factor_rules = @adafactor.standard_logical_factor_rules()
MODEL = @models.EncoderDecoderModel()
models.EncoderDecoderModel.module = @network.Transformer()
models.EncoderDecoderModel.input_vocabulary = %VOCABULARY
models.EncoderDecoderModel.output_vocabulary = %VOCABULARY
models.EncoderDecoderModel.optimizer_def = %OPTIMIZER
models.EncoderDecoderModel.z_loss = %Z_LOSS
models.EncoderDecoderModel.label_smoothing = %LABEL_SMOOTHING
models.EncoderDecoderModel.loss_normalizing_factor = %LOSS_NORMALIZING_FACTOR
network.Transformer.config = @network.T5Config()
network.T5Config.vocab_size = {vocab_size}
network.T5Config.dtype = 'bfloat16'
network.T5Config.mlp_activations = {activations}
network.T5Config.dropout_rate = %DROPOUT_RATE
network.T5Config.logits_via_embedding = {tied}
"""
_SIZE = """
network.T5Config.emb_dim = {model.d_model}
network.T5Config.num_heads = {model.num_heads}
network.T5Config.num_encoder_layers = {model.num_encoder_layers}
network.T5Config.num_decoder_layers = {model.num_decoder_layers}
network.T5Config.head_dim = {model.d_kv}
network.T5Config.mlp_dim = {model.d_ff}
"""
_MODEL_FILE = re.compile(r"t5x/examples/(t5|scalable_t5)/(t5_1_0|t5_1_1|mt5|byt5)/(\w+)\.gin")
_FAMILIES = {"t5_1_0": "t5", "t5_1_1": "t5_1_1", "mt5": "mt5", "byt5": "byt5"}
_PIECES = {"t5_1_0": "cc_all.32000.100extra", "t5_1_1": "cc_all.32000.100extra", "mt5": "mc4.250000.100extra"}

_TRAIN = """
from __gin__ import dynamic_registration
import __main__ as train_script
from t5x import gin_utils
from t5x import partitioning
from t5x import utils
from t5x import trainer
MODEL_DIR = %gin.REQUIRED
MIXTURE_OR_TASK_NAME = %gin.REQUIRED
TASK_FEATURE_LENGTHS = %gin.REQUIRED
TRAIN_STEPS = %gin.REQUIRED
MIXTURE_OR_TASK_MODULE = None
BATCH_SIZE = 128
USE_CACHED_TASKS = True
USE_HARDWARE_RNG = False
RANDOM_SEED = None
TRAIN_STEPS_RELATIVE = None
train_script.train.model = %MODEL
train_script.train.model_dir = %MODEL_DIR
train_script.train.train_dataset_cfg = @train/utils.DatasetConfig()
train_script.train.train_eval_dataset_cfg = @train_eval/utils.DatasetConfig()
train_script.train.checkpoint_cfg = @utils.CheckpointConfig()
train_script.train.partitioner = @partitioning.PjitPartitioner()
train_script.train.trainer_cls = @trainer.Trainer
train_script.train.total_steps = %TRAIN_STEPS
train_script.train.relative_steps = %TRAIN_STEPS_RELATIVE
train_script.train.random_seed = %RANDOM_SEED
train_script.train.use_hardware_rng = %USE_HARDWARE_RNG
train_script.train.summarize_config_fn = @gin_utils.summarize_gin_config
partitioning.PjitPartitioner.num_partitions = 1
partitioning.PjitPartitioner.model_parallel_submesh = None
partitioning.PjitPartitioner.logical_axis_rules = @partitioning.standard_logical_axis_rules()
utils.CheckpointConfig.restore = @utils.RestoreCheckpointConfig()
utils.CheckpointConfig.save = @utils.SaveCheckpointConfig()
utils.SaveCheckpointConfig.dtype = 'float32'
utils.SaveCheckpointConfig.keep = None
utils.SaveCheckpointConfig.save_dataset = False
trainer.Trainer.num_microbatches = None
trainer.Trainer.learning_rate_fn = @utils.create_learning_rate_scheduler()
"""
_DATA = """
{scope}utils.DatasetConfig.mixture_or_task_name = %MIXTURE_OR_TASK_NAME
{scope}utils.DatasetConfig.task_feature_lengths = {lengths}
{scope}utils.DatasetConfig.split = '{split}'
{scope}utils.DatasetConfig.batch_size = {batch}
{scope}utils.DatasetConfig.shuffle = {shuffle}
{scope}utils.DatasetConfig.seed = {seed}
{scope}utils.DatasetConfig.use_cached = {cached}
{scope}utils.DatasetConfig.pack = {pack}
{scope}utils.DatasetConfig.module = %MIXTURE_OR_TASK_MODULE
"""


def _data(
    scope: str,
    split: str,
    *,
    lengths: str = "%TASK_FEATURE_LENGTHS",
    batch: str = "%BATCH_SIZE",
    shuffle: str = "False",
    seed: str = "42",
    cached: str = "%USE_CACHED_TASKS",
    pack: str = "True",
) -> str:
    return _DATA.format(
        scope=scope, split=split, lengths=lengths, batch=batch, shuffle=shuffle, seed=seed, cached=cached, pack=pack
    )


_PRETRAIN = (
    _TRAIN
    + """
SHUFFLE_TRAIN_EXAMPLES = True
train_script.train.infer_eval_dataset_cfg = None
train_script.train.eval_steps = 20
train_script.train.eval_period = 1000
utils.RestoreCheckpointConfig.path = []
utils.SaveCheckpointConfig.period = 1000
utils.create_learning_rate_scheduler.factors = 'constant * rsqrt_decay'
utils.create_learning_rate_scheduler.base_learning_rate = 1.0
utils.create_learning_rate_scheduler.warmup_steps = 10000
"""
    + _data("train/", "train", shuffle="%SHUFFLE_TRAIN_EXAMPLES", seed="None")
    + _data("train_eval/", "validation")
)

_FINETUNE = (
    _TRAIN
    + """
import seqio
INITIAL_CHECKPOINT_PATH = %gin.REQUIRED
DROPOUT_RATE = 0.1
EVAL_STEPS = 20
EVAL_PERIOD = 1000
EVALUATOR_USE_MEMORY_CACHE = True
EVALUATOR_NUM_EXAMPLES = None
JSON_WRITE_N_RESULTS = None
train_script.train.infer_eval_dataset_cfg = @infer_eval/utils.DatasetConfig()
train_script.train.inference_evaluator_cls = @seqio.Evaluator
train_script.train.eval_steps = %EVAL_STEPS
train_script.train.eval_period = %EVAL_PERIOD
seqio.Evaluator.logger_cls = [@seqio.PyLoggingLogger, @seqio.TensorBoardLogger, @seqio.JSONLogger]
seqio.Evaluator.num_examples = %EVALUATOR_NUM_EXAMPLES
seqio.Evaluator.use_memory_cache = %EVALUATOR_USE_MEMORY_CACHE
seqio.JSONLogger.write_n_results = %JSON_WRITE_N_RESULTS
utils.RestoreCheckpointConfig.path = %INITIAL_CHECKPOINT_PATH
utils.RestoreCheckpointConfig.mode = 'specific'
utils.RestoreCheckpointConfig.dtype = 'float32'
utils.SaveCheckpointConfig.period = 5000
utils.create_learning_rate_scheduler.factors = 'constant'
utils.create_learning_rate_scheduler.base_learning_rate = 0.001
utils.create_learning_rate_scheduler.warmup_steps = 1000
"""
    + _data("train/", "train", shuffle="True", seed="None")
    + _data("train_eval/", "validation")
    + _data("infer_eval/", "validation", lengths="None", pack="False")
)

_INFER = """
from __gin__ import dynamic_registration
import __main__ as infer_script
from t5x import partitioning
from t5x import utils
CHECKPOINT_PATH = %gin.REQUIRED
INFER_OUTPUT_DIR = %gin.REQUIRED
MIXTURE_OR_TASK_NAME = %gin.REQUIRED
TASK_FEATURE_LENGTHS = %gin.REQUIRED
MIXTURE_OR_TASK_MODULE = None
infer_script.infer.mode = 'predict'
infer_script.infer.model = %MODEL
infer_script.infer.output_dir = %INFER_OUTPUT_DIR
infer_script.infer.dataset_cfg = @utils.DatasetConfig()
infer_script.infer.partitioner = @partitioning.PjitPartitioner()
infer_script.infer.restore_checkpoint_cfg = @utils.RestoreCheckpointConfig()
infer_script.infer.checkpoint_period = 100
infer_script.infer.shard_id = 0
infer_script.infer.num_shards = 1
partitioning.PjitPartitioner.num_partitions = 1
partitioning.PjitPartitioner.logical_axis_rules = @partitioning.standard_logical_axis_rules()
utils.RestoreCheckpointConfig.path = %CHECKPOINT_PATH
utils.RestoreCheckpointConfig.mode = 'specific'
utils.RestoreCheckpointConfig.dtype = 'bfloat16'
""" + _data("", "test", batch="32", seed="0", cached="False", pack="False")

_EVAL = """
from __gin__ import dynamic_registration
import __main__ as eval_script
import seqio
from t5x import partitioning
from t5x import utils
CHECKPOINT_PATH = %gin.REQUIRED
EVAL_OUTPUT_DIR = %gin.REQUIRED
MIXTURE_OR_TASK_NAME = %gin.REQUIRED
TASK_FEATURE_LENGTHS = None
MIXTURE_OR_TASK_MODULE = None
eval_script.evaluate.model = %MODEL
eval_script.evaluate.output_dir = %EVAL_OUTPUT_DIR
eval_script.evaluate.dataset_cfg = @utils.DatasetConfig()
eval_script.evaluate.partitioner = @partitioning.PjitPartitioner()
eval_script.evaluate.restore_checkpoint_cfg = @utils.RestoreCheckpointConfig()
eval_script.evaluate.inference_evaluator_cls = @seqio.Evaluator
seqio.Evaluator.logger_cls = [@seqio.PyLoggingLogger, @seqio.TensorBoardLogger, @seqio.JSONLogger]
partitioning.PjitPartitioner.num_partitions = 1
utils.RestoreCheckpointConfig.path = %CHECKPOINT_PATH
utils.RestoreCheckpointConfig.mode = 'specific'
""" + _data("", "test", batch="32", cached="False", pack="False")

_RUNS = {"pretrain": _PRETRAIN, "finetune": _FINETUNE, "infer": _INFER, "eval": _EVAL}


def t5x_file(name: str) -> str | None:
    """The bindings of one of T5X's files, by the name that others include it under; None for one that is not known."""
    if run := re.fullmatch(r"t5x/configs/runs/(\w+)\.gin", name):
        return _RUNS.get(run[1])
    if not (match := _MODEL_FILE.fullmatch(name)):
        return None
    examples, family, size = match.groups()
    model = SIZES.get(f"{_FAMILIES[family]}_{size.lower()}")
    if model is None or (examples == "scalable_t5" and family == "byt5"):
        return None
    vocabulary = "ByteVocabulary" if family == "byt5" else "SentencePieceVocabulary"
    text = _MODEL.format(
        examples=examples,
        vocabulary=vocabulary,
        vocab_size=model.vocab_size,
        activations=repr(model.activations),
        tied=model.tie_embeddings,
    )
    if family != "byt5":
        path = f"gs://t5-data/vocabs/{_PIECES[family]}/sentencepiece.model"
        text += f"seqio.SentencePieceVocabulary.sentencepiece_model_file = '{path}'\n"
    if examples == "scalable_t5":
        text += "network.T5Config.scan_layers = True\nnetwork.T5Config.remat_policy = 'minimal'\n"
    return text + _SIZE.format(model=model)
