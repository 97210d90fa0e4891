"""A byte-level T5 1.1 on Python's own documentation: three minutes on two CPU cores, no network.

    spanloom train quickstart

Text: the English documentation inside every CPython (about 2 MB). Model: 1.8 million parameters. Cost: about 255 CPU
seconds. Expect a held-out loss near 2.06 nats a target token (unigram model 2.84, bigram model 2.31), and near 2.08 a
byte of text alone (3.23, 2.63).
"""

from spanloom.model.sizes import named
from spanloom.settings.objectives import SpanCorruption
from spanloom.settings.optimizer import AdamWRMS, Cosine
from spanloom.settings.run import Checkpoints, Evaluation, Logging, Run
from spanloom.settings.task import PythonDocs, Task
from spanloom.settings.vocabulary import Bytes


def recipe() -> Run:
    """The run."""
    steps = 1200
    return Run(
        name="quickstart",
        task=Task(
            name="python_docs",
            source=PythonDocs(heldout_share=0.05),
            vocabulary=Bytes(),
            # T5 masks 15 %: 30 % gives twice the targets for the same encoder, and long spans teach the decoder sooner.
            objective=SpanCorruption(inputs_length=128, noise_density=0.3, mean_span_length=8.0),
        ),
        model=named("byt5_nano"),
        optimizer=AdamWRMS(learning_rate=2e-2),
        # The end is a number of its own, not "the run's steps", so that a longer run goes on as a shorter one began.
        schedule=Cosine(warmup_steps=50, decay_steps=steps, end_factor=0.05),
        batch_size=16,
        steps=steps,
        checkpoint=Checkpoints(every=300),
        eval=Evaluation(every=300, max_batches=0),
        log=Logging(every=10),
    )
