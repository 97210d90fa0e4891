"""A run: everything that decides the result, as one frozen dataclass."""

from dataclasses import dataclass, field
from typing import Literal

from spanloom.settings.follow import Follow
from spanloom.settings.mesh import Mesh
from spanloom.settings.mixture import Mixture, tasks_of
from spanloom.settings.model import Model
from spanloom.settings.optimizer import Adafactor, Optimizer, Rsqrt, Schedule
from spanloom.settings.packing import Packing, Unpacked
from spanloom.settings.stopping import Stopping
from spanloom.settings.task import Task
from spanloom.settings.vocabulary import Vocabulary
from spanloom.settings.weights import Weights

Normalizer = Literal["sum", "real_tokens", "all_tokens", "sequences"] | float


@dataclass(frozen=True)
class Loss:
    """Cross-entropy of the targets, as T5X computes it."""

    z_loss: float = 1e-4
    """Weight of log^2 Z, which keeps the softmax normaliser near 1."""
    label_smoothing: float = 0.0
    """Share of the probability spread over the whole vocabulary."""
    normalizer: Normalizer = "real_tokens"
    """What the summed loss is divided by: sum (nothing), real_tokens (the sum of the weights), all_tokens,
    sequences (each sequence counts 1), or a number."""


@dataclass(frozen=True)
class Loading:
    """How batches are made ahead of the steps. May change on resume: it decides nothing of what is in them."""

    workers: int = 0
    """Processes that make batches, beside the one that trains; 0: a thread of that one, which is enough for most."""
    ahead: int = 2
    """Batches made before they are asked for (of each process)."""


@dataclass(frozen=True)
class Checkpoints:
    """When checkpoints are written and which are kept. May change on resume."""

    every: int = 1000
    """Steps between checkpoints."""
    keep: int = 3
    """Latest checkpoints kept."""
    keep_best: int = 1
    """Checkpoints kept for the lowest held-out loss."""
    best_task: str | None = None
    """Task whose held-out loss tells which checkpoint is the best, and ends a run early (see --stopping); unset: the
    mean of all tasks that are learnt."""
    keep_every: int = 0
    """Also keep every checkpoint whose step is a multiple of this; 0: none."""


@dataclass(frozen=True)
class Evaluation:
    """Held-out loss during training. May change on resume."""

    every: int = 1000
    """Steps between evaluations."""
    max_batches: int = 50
    """At most this many held-out batches, of examples spread evenly over the held-out part, always the same; 0: all."""
    batch_size: int | None = None
    """Sequences in a held-out batch; unset: those of a training batch, or of a microbatch."""
    answers: Literal["none", "ranks", "all"] = "none"
    """Measured beside the losses of tasks on pairs: ranks, whether the answer choice that the model finds likeliest is
    right; all, also the metrics of what it writes, which takes longer. `spanloom eval` does so apart from training."""
    fills: int = 0
    """Held-out examples of each task on text whose gaps the model fills in at each evaluation, for `spanloom report`
    and `watch` to show how it gets better; 0: none."""
    also: tuple[Task, ...] = ()
    """Tasks whose held-out parts are measured beside the run's own, though nothing is learnt from them. Stages have
    those of one another here."""


@dataclass(frozen=True)
class Logging:
    """What is written while training. May change on resume."""

    every: int = 10
    """Steps between training lines in metrics.jsonl."""
    tensorboard: bool = True
    """Also write TensorBoard event files."""
    wandb: bool | str = False
    """Also log to Weights & Biases: true (project spanloom), or the name of a project. A resumed run goes on under the
    same name; WANDB_MODE=offline needs no network. pip install 'spanloom[wandb]'."""
    trackio: bool | str = False
    """Also log to trackio, which keeps what it gets on this machine: true (project spanloom), or the name of a project.
    pip install 'spanloom[trackio]'."""
    copy_to: str | None = None
    """An address of a bucket, s3://bucket/runs/a or gs://bucket/runs/a: metrics, settings and results are copied there
    once a minute, for `spanloom watch` and `report` of that address anywhere. Checkpoints are not."""
    parameters: int = 0
    """Steps between lines with the RMS of each parameter, of its gradient and of its step, layer by layer; 0: none."""


@dataclass(frozen=True)
class After:
    """What happens once the last step is done. May change on resume."""

    baselines: bool = True
    """Print the held-out loss beside unigram and bigram models of the training text (text tasks)."""
    fills: int = 5
    """Held-out examples shown with what the model makes of them; 0: none."""
    export: bool = True
    """Write the last checkpoint as a Hugging Face folder, OUT/huggingface."""


@dataclass(frozen=True)
class Run:
    """A training run. The same run on the same machine gives the same losses to the last bit."""

    name: str
    """Name of the run."""
    task: Task | Mixture
    """What to learn from."""
    model: Model
    """What to train."""
    optimizer: Optimizer = field(default_factory=Adafactor)
    """How weights are updated."""
    schedule: Schedule = field(default_factory=Rsqrt)
    """How the learning rate moves."""
    loss: Loss = field(default_factory=Loss)
    """What is minimised."""
    weights: Weights = field(default_factory=Weights)
    """How weights are kept."""
    batch_size: int = 128
    """Sequences in a training batch, over all devices; of packed data, rows."""
    batch_tokens: int | None = None
    """Tokens that a training batch reads (full LM: writes), padding included, in place of batch_size, which follows;
    T0: 1048576, which are 1,024 rows of 1,024."""
    microbatch_size: int | None = None
    """Sequences whose gradients are computed at a time, which memory must hold, and added up; unset: the whole batch.
    It must divide batch_size. The loss is the batch's, whatever its normaliser."""
    microbatch_tokens: int | None = None
    """Likewise in tokens, as batch_tokens counts them, in place of microbatch_size, which follows."""
    packing: Packing = field(default_factory=Unpacked)
    """Whether short examples share rows."""
    steps: int = 10_000
    """Training steps, counted from the start checkpoint. May be raised on resume."""
    seed: int = 0
    """Seed of initialisation, data order, noise and dropout."""
    start: str | None = None
    """Checkpoint or Hugging Face folder to start from; unset: random weights."""
    follow: Follow = field(default_factory=Follow)
    """What is taken over from there beside the weights."""
    out: str | None = None
    """Directory the run writes; the same command with the same directory goes on where it stopped.
    Unset: runs/ and the name of the recipe."""
    mesh: Mesh = field(default_factory=Mesh)
    """Devices."""
    loading: Loading = field(default_factory=Loading)
    """Reading ahead."""
    checkpoint: Checkpoints = field(default_factory=Checkpoints)
    """Saving."""
    eval: Evaluation = field(default_factory=Evaluation)
    """Held-out evaluation."""
    stopping: Stopping = field(default_factory=Stopping)
    """Ending early."""
    log: Logging = field(default_factory=Logging)
    """Logging."""
    after: After = field(default_factory=After)
    """After the last step."""

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Every task that the run learns from, once."""
        return tasks_of(self.task)

    @property
    def at_a_time(self) -> int:
        """Sequences whose gradients are computed at a time."""
        return self.microbatch_size or self.batch_size

    @property
    def microbatches(self) -> int:
        """Parts of a batch whose gradients are computed one after another."""
        return self.batch_size // self.at_a_time

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary that all tasks share."""
        return self.tasks[0].vocabulary

    def resolve(self) -> "Run":
        """The run with every value that follows from others filled in; see `spanloom.settings.resolve`.

        Raises ValueError, naming the setting and the fix, where settings contradict each other.
        """
        from spanloom.settings.resolve import resolve

        return resolve(self)
