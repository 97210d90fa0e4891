"""SeqIO task modules of shapes that are in use: languages of a corpus, a stream of the Hub, prompts, own functions."""

HMBYT5 = """
import functools

import seqio
import tensorflow as tf
import t5.data
from t5.data import postprocessors
from t5.data import preprocessors as t5_preprocessors
from t5.evaluation import metrics
from seqio import FunctionDataSource, utils
import tensorflow_datasets as tfds

vocabulary = seqio.ByteVocabulary()
MEAN_NOISE_SPAN_LENGTH = 20
DEFAULT_OUTPUT_FEATURES = {
    "inputs": seqio.Feature(vocabulary=vocabulary, required=False, add_eos=True),
    "targets": seqio.Feature(vocabulary=vocabulary, add_eos=True),
}

for lang in ["en", "de", "fr", "fi", "sv", "nl"]:
    seqio.TaskRegistry.add(
        f"{lang}_corpus",
        source=seqio.TfdsDataSource(tfds_name=f"{lang}_dataset:1.0.0"),
        preprocessors=[
            functools.partial(seqio.preprocessors.rekey, key_map={"inputs": None, "targets": "text"}),
            seqio.preprocessors.tokenize,
            seqio.CacheDatasetPlaceholder(),
            functools.partial(t5_preprocessors.span_corruption, mean_noise_span_length=MEAN_NOISE_SPAN_LENGTH),
            seqio.preprocessors.append_eos_after_trim,
        ],
        output_features=DEFAULT_OUTPUT_FEATURES,
        metric_fns=[],
    )

LANGUAGES = ("en", "de", "fr", "fi", "sv", "nl")
seqio.MixtureRegistry.add("hm_corpus", [f"{lang}_corpus" for lang in LANGUAGES], default_rate=1)
"""
ROMANIAN = '''
import functools
from collections import OrderedDict

import seqio
import tensorflow as tf
import tensorflow_datasets as tfds
from datasets import load_dataset
from seqio import FunctionDataSource, utils
from t5.data import preprocessors
from t5.evaluation import metrics

vocabulary = seqio.SentencePieceVocabulary("gs://myv4-bucket/sentencepiece/ro.model", extra_ids=0)
DEFAULT_OUTPUT_FEATURES = {
    "inputs": seqio.Feature(vocabulary=vocabulary, add_eos=True, required=False),
    "targets": seqio.Feature(vocabulary=vocabulary, add_eos=True),
}
dataset_name = "dumitrescustefan/rlm"
dataset_params = {"path": dataset_name, "streaming": True, "use_auth_token": True}
dataset_shapes = None


def gen_dataset(split, shuffle=False, seed=None, column="content", dataset_params=None):
    dataset = load_dataset(**dataset_params)
    if shuffle:
        if seed:
            dataset = dataset.shuffle(seed=seed)
        else:
            dataset = dataset.shuffle()
    while True:
        for item in dataset[str(split)]:
            yield item[column]


def dataset_fn(split, shuffle_files, seed=None, dataset_params=None):
    return tf.data.Dataset.from_generator(
        functools.partial(gen_dataset, split, shuffle_files, seed, dataset_params=dataset_params),
        output_signature=tf.TensorSpec(shape=(), dtype=tf.string, name=dataset_name),
    )


@utils.map_over_dataset
def target_to_key(x, key_map, target_key):
    """Assign the value from the dataset to target_key in key_map"""
    return {**key_map, target_key: x}


seqio.TaskRegistry.add(
    "rlm_span_corruption_stream",
    source=seqio.FunctionDataSource(
        dataset_fn=functools.partial(dataset_fn, dataset_params=dataset_params),
        splits=("train", "validation"),
        caching_permitted=False,
        num_input_examples=dataset_shapes,
    ),
    preprocessors=[
        functools.partial(target_to_key, key_map={"inputs": None, "targets": None}, target_key="targets"),
        seqio.preprocessors.tokenize,
        # seqio.CacheDatasetPlaceholder(),
        preprocessors.span_corruption,
        seqio.preprocessors.append_eos_after_trim,
    ],
    output_features={"targets": DEFAULT_OUTPUT_FEATURES["targets"]},
    metric_fns=[],
)
'''
T0_UTILS = """
import re

import datasets
import tensorflow as tf


def hf_dataset_to_tf_dataset(dataset):
    return tf.data.Dataset.from_generator(dataset.__iter__, output_signature={"inputs": tf.TensorSpec((), tf.string)})


def apply_template(dataset, template):
    def map_fn(ex):
        inputs, targets = template.apply(ex)
        return {"inputs": inputs, "targets": targets}

    return dataset.map(map_fn).filter(lambda ex: len(ex["inputs"]) > 0)


def get_dataset_splits(dataset_name, subset_name=None):
    info = datasets.get_dataset_infos(dataset_name)
    subset_name = subset_name or list(info.keys())[0]
    return info[subset_name].splits


def task_clean(text):
    return re.sub(r"[^\\w\\d\\._]+", "_", text)


def get_task_name(dataset_name, subset_name, template_name):
    return task_clean(dataset_name + (f"_{subset_name}_" if subset_name is not None else "_") + template_name)
"""
T0 = '''
import csv
import functools
from typing import Dict, List, Optional, Tuple

import datasets
import promptsource.templates
import seqio
import t5
import tensorflow as tf
from promptsource.templates import INCLUDED_USERS
from t5.data.glue_utils import get_glue_metric, get_super_glue_metric
from t5.evaluation import metrics as mt

from . import utils

GET_METRICS = {"BLEU": mt.bleu, "ROUGE": mt.rouge, "Span Squad": mt.span_squad, "Squad": mt.squad,
               "Trivia QA": mt.trivia_qa, "Accuracy": mt.accuracy}
MAX_EXAMPLES_PER_DATASET = 500_000
all_templates = promptsource.templates.TemplateCollection()
all_templates.remove("other")  # its splits have names of their own
TRAIN_SIZE: Dict[Tuple[str, Optional[str]], int] = {("glue", "mrpc"): 3668, ("imdb", None): 25000}
TRAIN_SIZE[("big", None)] = 4_000_000


def strip_whitespace(output_or_target, example=None, is_target=False):
    """Cached tasks from promptsource all have a leading space on the ground-truth targets."""
    return output_or_target.strip()


def maybe_get_class_id_postprocessor(template):
    if template.get_fixed_answer_choices_list():

        def postprocess_fn(output_or_target, example=None, is_target=False):
            output_or_target = strip_whitespace(output_or_target)
            return t5.data.postprocessors.string_label_to_class_id(
                output_or_target, label_classes=template.get_fixed_answer_choices_list()
            )

        return postprocess_fn
    return strip_whitespace


def get_tf_dataset(split, shuffle_files, seed, dataset_name, subset_name, template, split_mapping):
    del shuffle_files, seed
    dataset = datasets.load_dataset(dataset_name, subset_name)
    dataset = dataset[split_mapping[split]]
    dataset = utils.apply_template(dataset, template)
    return utils.hf_dataset_to_tf_dataset(dataset)


def add_task(dataset_name, subset_name, template_name, task_name=None, split_mapping=None):
    template = all_templates.get_dataset(dataset_name, subset_name)[template_name]
    task_name = task_name or utils.get_task_name(dataset_name, subset_name, template_name)
    if dataset_name == "glue":
        metrics = get_glue_metric(subset_name)
    else:
        metrics = [GET_METRICS[m] for m in template.metadata.metrics if m in GET_METRICS]
    dataset_splits = utils.get_dataset_splits(dataset_name, subset_name)
    split_mapping = split_mapping or {k: k for k in dataset_splits.keys()}
    dataset_fn = functools.partial(
        get_tf_dataset, seed=None, dataset_name=dataset_name, subset_name=subset_name, template=template,
        split_mapping=split_mapping,
    )
    data_source = seqio.FunctionDataSource(
        dataset_fn,
        splits=list(split_mapping.keys()),
        num_input_examples={s: dataset_splits[split_mapping[s]].num_examples for s in split_mapping.keys()},
    )
    output_features = {
        "inputs": seqio.Feature(t5.data.get_default_vocabulary(), add_eos=False, dtype=tf.int32),
        "targets": seqio.Feature(t5.data.get_default_vocabulary(), add_eos=True, dtype=tf.int32),
    }
    preprocessors = [
        seqio.preprocessors.tokenize,
        seqio.preprocessors.append_eos,
        seqio.CacheDatasetPlaceholder(required=False),
    ]
    seqio.TaskRegistry.add(
        task_name, data_source, preprocessors=preprocessors, output_features=output_features, metric_fns=metrics,
        postprocess_fn=maybe_get_class_id_postprocessor(template),
    )
    return task_name


t0_train_mixture: List[str] = []
mixture_cap: Dict[str, int] = {}
for dataset_name, subset_name in all_templates.keys:
    if (dataset_name, subset_name) not in TRAIN_SIZE:
        all_templates.remove(dataset_name, subset_name)
        continue
    dataset = all_templates.get_dataset(dataset_name, subset_name)
    train_size = TRAIN_SIZE[(dataset_name, subset_name)]
    num_templates = len(dataset.all_template_names)
    cap = MAX_EXAMPLES_PER_DATASET // num_templates if train_size > MAX_EXAMPLES_PER_DATASET else train_size
    for template_name in dataset.all_template_names:
        name = add_task(dataset_name, subset_name, template_name)
        t0_train_mixture.append(name)
        mixture_cap[name] = cap

for number in ("r1", "r2"):
    for template_name in all_templates.get_dataset("other", None).all_template_names:
        name = utils.get_task_name("other", None, template_name) + f"_{number}"
        add_task("other", None, template_name, name, {"train": f"train_{number}", "validation": f"dev_{number}"})

seqio.MixtureRegistry.add("t0_train", [task for task in t0_train_mixture], default_rate=lambda t: mixture_cap[t.name])
'''
OWN = """
import functools
import os
from typing import Mapping, Optional, Sequence, Text

import not_installed_anywhere
import seqio
import t5.data.mixtures
import tensorflow.compat.v2 as tf
from seqio import map_over_dataset
from t5.evaluation import metrics

TSV = os.path.join("/data", "qa-{split}.tsv")
PUNCTUATION = (".", "!")
V = seqio.SentencePieceVocabulary("/models/sp.model", extra_ids=100)
FEATURES = {"inputs": seqio.Feature(V), "targets": seqio.Feature(V)}


def question(ds):
    def to_pair(ex):
        return {
            "inputs": tf.strings.join(["question: ", ex["question"], " context: ", tf.strings.lower(ex["context"])]),
            "targets": tf.strings.regex_replace(ex["answer"]["text"], r"\\s+", " "),
        }

    return ds.map(to_pair, num_parallel_calls=tf.data.experimental.AUTOTUNE)


@map_over_dataset
def prefixed(ex, prefix):
    return {**ex, "inputs": prefix + ex["inputs"]}


def windows(ds, sequence_length):
    return ds.map(lambda ex: {"inputs": ex["text"][: sequence_length["inputs"]], "targets": ex["text"]})


def words(ds):
    return ds.map(lambda ex: {"inputs": tf.strings.split(ex["text"])[0], "targets": ex["text"]})


def ended(text):
    return text.endswith(PUNCTUATION)


def share_ended(targets, predictions):
    return {"ended": 100 * sum(map(ended, predictions)) / len(targets)}


def clean(text: Text, example: Optional[Mapping[str, tf.Tensor]] = None, is_target: bool = False) -> Text:
    return text.strip()


def doubled(targets: Sequence[str], predictions: Sequence[str]) -> Mapping[str, float]:
    return {"doubled": float(len(set(predictions)) < len(predictions))}


def tf_metric(targets, predictions):
    return {"x": tf.reduce_mean(predictions)}


seqio.TaskRegistry.add(
    "qa",
    source=seqio.TextLineDataSource(split_to_filepattern={s: TSV.format(split=s) for s in ("train", "validation")}),
    preprocessors=[
        functools.partial(t5.data.preprocessors.parse_tsv, field_names=["question", "context", "answer"]),
        question,
        functools.partial(prefixed, prefix="qa "),
        seqio.preprocessors.tokenize,
        seqio.preprocessors.append_eos,
    ],
    output_features=FEATURES,
    postprocess_fn=clean,
    metric_fns=[metrics.bleu, functools.partial(metrics.rouge), share_ended, doubled, tf_metric, lambda t, p: {}],
)
seqio.TaskRegistry.add(
    "windows",
    source=seqio.TfdsDataSource("wiki/en:1.0.0", splits={"train": "train[:90%]", "validation": "train[90%:]"}),
    preprocessors=[words, windows, seqio.preprocessors.tokenize, t5.data.preprocessors.neighboring_pairs],
    output_features=FEATURES,
)
seqio.MixtureRegistry.add("inner", [("windows", 2)], default_rate=1.0)
seqio.MixtureRegistry.add(
    "both",
    ["qa", ("inner", 3), ("c4_v220_span_corruption", t5.data.mixtures.rate_unsupervised)],
    default_rate=functools.partial(seqio.mixing_rate_num_examples, maximum=2**19, temperature=2),
)
"""
