"""Values of golden/t5x/gin/expected as ours, and as gin writes them; well-known files in words of our own."""

from typing import Any

from spanloom.migration.gin_statements import Macro, Reference


def ours(value: Any) -> Any:
    """A value of the golden files as `read_gin` has it."""
    if isinstance(value, list):
        return [ours(one) for one in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"tuple"}:
        return tuple(ours(one) for one in value["tuple"])
    if set(value) == {"macro"}:
        return Macro(value["macro"])
    if set(value) == {"reference", "call"}:
        return Reference(value["reference"], value["call"])
    return {key: ours(one) for key, one in value.items()}


def written(bindings: dict[str, Any]) -> str:
    """Bindings as a gin file: every third as a block, every fifth over several lines, with comments between."""
    lines = ["# a file of the same grammar", ""]
    for number, (key, value) in enumerate(bindings.items()):
        owner, dot, argument = key.rpartition(".")
        text = repr(ours(value))
        if number % 3 == 0 and dot:
            lines += [f"{owner}:  # a block", "", f"    {argument} = {text}", ""]
        elif number % 5 == 0 or len(text) > 100:
            lines += [f"{key} = \\", f"    {text}  # {number}"]
        else:
            lines.append(f"{key} = {text}")
    return "\n".join(lines) + "\n"


C4_PRETRAIN = """
from __gin__ import dynamic_registration
import __main__ as train_script
import t5.data.mixtures
from t5x import utils

include "t5x/examples/t5/t5_1_1/small.gin"
include 't5x/configs/runs/pretrain.gin'

MIXTURE_OR_TASK_NAME = "c4_v220_span_corruption"
TASK_FEATURE_LENGTHS = {
    "inputs": 512,  # the encoder's
    "targets": 114,
}
TRAIN_STEPS = 10_000
DROPOUT_RATE = 0.0
BATCH_SIZE = 256
"""
SMALL_WMT_FINETUNE = """
from __gin__ import dynamic_registration
import __main__ as train_script
from t5.data import mixtures
from t5x import models

include 't5x/examples/t5/t5_1_1/small.gin'
include 't5x/configs/runs/finetune.gin'

MIXTURE_OR_TASK_NAME = "wmt_t2t_ende_v003"
TASK_FEATURE_LENGTHS = {"inputs": 256, "targets": 256}
TRAIN_STEPS = 1_020_000  # 1000000 pre-trained steps + 20000 fine-tuning steps.
DROPOUT_RATE = 0.0
INITIAL_CHECKPOINT_PATH = "gs://t5-data/pretrained_models/t5x/t5_1_1_small/checkpoint_1000000"
LOSS_NORMALIZING_FACTOR = 233472
USE_CACHED_TASKS = False
"""
BASE_WMT_FINETUNE = """
from __gin__ import dynamic_registration
import __main__ as train_script
import seqio
import t5.data.mixtures
from t5x import utils

include "t5x/configs/runs/finetune.gin"
include "t5x/examples/t5/t5_1_1/base.gin"

MIXTURE_OR_TASK_NAME = "wmt_t2t_ende_v003"
TASK_FEATURE_LENGTHS = {"inputs": 256, "targets": 256}
TRAIN_STEPS = 1_020_000
USE_CACHED_TASKS = False
DROPOUT_RATE = 0.1
INITIAL_CHECKPOINT_PATH = "gs://t5-data/pretrained_models/t5x/t5_1_1_base/checkpoint_1000000"
LOSS_NORMALIZING_FACTOR = 233472
train_script.train:
  eval_period = 100
seqio.Evaluator.num_examples = None
seqio.Evaluator.use_memory_cache = True
models.EncoderDecoderModel.predict_batch_with_aux.num_decodes = 4
infer_eval/utils.DatasetConfig:
  task_feature_lengths = %TASK_FEATURE_LENGTHS
  batch_size = 64
"""
BASE_WMT_INFER = """
from __gin__ import dynamic_registration
import __main__ as infer_script
from t5.data import mixtures
from t5x import utils

include "t5x/examples/t5/t5_1_1/base.gin"
include "t5x/configs/runs/infer.gin"

MIXTURE_OR_TASK_NAME = "wmt_t2t_ende_v003"
TASK_FEATURE_LENGTHS = {"inputs": 64, "targets": 64}
DROPOUT_RATE = 0.0
utils.DatasetConfig.split = "test"
utils.DatasetConfig.batch_size = 32
"""
RO_BASE = """
from __gin__ import dynamic_registration
import __main__ as train_script
from t5x import partitioning
import ro_tasks

include "t5x/examples/t5/t5_1_1/base.gin"
include "ro_pretrain.gin"

network.T5Config.vocab_size = 64000
VOCABULARY = @seqio.SentencePieceVocabulary()
seqio.SentencePieceVocabulary.sentencepiece_model_file = "gs://myv4-bucket/sentencepiece/ro.model"
MIXTURE_OR_TASK_NAME = "rlm_span_corruption_stream"
TASK_FEATURE_LENGTHS = {"inputs": 512, "targets": 256}
TRAIN_STEPS = 2_000_000
DROPOUT_RATE = 0.0
PjitPartitioner.num_partitions = 2
"""
TOP_LEVEL = {
    "t5x__examples__t5__t5_1_1__examples__small_c4_pretrain": C4_PRETRAIN,
    "t5x__examples__t5__t5_1_1__examples__small_wmt_finetune": SMALL_WMT_FINETUNE,
    "t5x__examples__t5__t5_1_1__examples__base_wmt_finetune": BASE_WMT_FINETUNE,
    "t5x__examples__t5__t5_1_1__examples__base_wmt_infer": BASE_WMT_INFER,
}
"""Golden files of T5X whose includes are known, each with what its top-level file says."""
