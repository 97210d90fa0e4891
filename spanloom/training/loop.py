"""Training, from top to bottom: one linear function. Start reading here."""

import contextlib
import functools
import math
from collections.abc import Collection
from pathlib import Path

import jax
import jax.numpy as jnp

from spanloom.evaluation.heldout import make_heldout_step
from spanloom.evaluation.task_metrics import try_metrics
from spanloom.model.flops import train_flops
from spanloom.model.loss import expected_initial_loss
from spanloom.model.params import declare, initialize, num_params
from spanloom.optim.build import build as build_optimizer
from spanloom.optim.rounding import as_kept
from spanloom.pipeline.data import open_data
from spanloom.pipeline.eras import to_data
from spanloom.pipeline.prefetch import StepReader, prefetch
from spanloom.pipeline.spool.needed import standings
from spanloom.pipeline.watched import open_watched
from spanloom.settings.run import Run
from spanloom.settings.run_layout import CHECKPOINTS, TENSORBOARD
from spanloom.training.checkpoint_paths import clean_up, latest
from spanloom.training.checkpoints import CheckpointWriter, restore
from spanloom.training.compile_cache import enable_compile_cache, seal_entries
from spanloom.training.divergence import all_finite, diverged
from spanloom.training.facts import Facts, read_facts
from spanloom.training.first_loss import FirstLoss
from spanloom.training.fits import available_memory, check_fits, check_heldout
from spanloom.training.judge import Judge
from spanloom.training.lock import directory_lock
from spanloom.training.loggers import METRICS_FILE, Loggers, MetricsFile, TensorBoard
from spanloom.training.lost import refuse_lost
from spanloom.training.machine import describe_machine, differences, measured_peak
from spanloom.training.memory import return_freed_memory
from spanloom.training.origin import FROM_THE_BEGINNING, origin_after, origin_in, rate_of_count, rate_of_step
from spanloom.training.patience import patience_of, say_finished
from spanloom.training.progress import Display, make_display
from spanloom.training.recorder import Recorder, Speeds, count_tokens
from spanloom.training.run_file import restore_run, write_run
from spanloom.training.same_data import changed_parts, refuse_changed_text, vocabulary_for
from spanloom.training.say import saved_sayer, say_data, say_first_loss, say_model, say_resume, say_stopped
from spanloom.training.signals import stop_signals
from spanloom.training.skipped import Skipped, most_skipped
from spanloom.training.start import find_start, load_start
from spanloom.training.state import TrainState, fresh_state
from spanloom.training.step import make_train_step
from spanloom.training.streams import ahead_of, keep_needed


def train(
    run: Run, directory: Path, *, display: Display | None = None, accepted: Collection[str] = (), workers: int = 1
) -> bool:
    """Train `run` in `directory`, going on from its last checkpoint if it has one.

    Returns True once the last step is done, False if Ctrl-C or SIGTERM ended it earlier, with everything saved. The
    settings are taken as they are: refusing to go on with other ones than before is `spanloom.cli`'s part. Other data
    under the same settings are refused here, unless `accepted` (dotted fields) has "task.source" or "task.vocabulary".
    Up to `workers` processes build missing stores (see `spanloom.pipeline.build_workers`).

    Raises DivergedError on a NaN, CheckpointError on a damaged or unwritable checkpoint, ChangedDataError,
    DirectoryInUseError if another process trains there, and what reading the data raises.
    """
    run, directory = run.resolve(), Path(directory)
    step: int | None = None
    with contextlib.ExitStack() as stack:
        # ---- Set up --------------------------------------------------------------------------------------------------
        display = display or make_display()
        stack.callback(display.close)
        stack.enter_context(directory_lock(directory))
        clean_up(directory / CHECKPOINTS)
        stop = stack.enter_context(stop_signals())
        cache = enable_compile_cache()
        machine, device = describe_machine(), jax.devices()[0]

        # ---- What can be refused without reading data or weights is refused now --------------------------------------
        checkpoint = latest(directory)
        if checkpoint is None:
            refuse_lost(directory)
        facts = read_facts(checkpoint) if checkpoint else None
        found = find_start(run) if run.start and not checkpoint else None
        origin = origin_in(facts) if facts else origin_after(run, found.facts) if found else FROM_THE_BEGINNING
        specs = declare(run.model)
        optimizer = build_optimizer(run.optimizer, rate_of_count(run, origin), specs, run.weights, run.seed)

        # ---- Read the data -------------------------------------------------------------------------------------------
        # A checkpoint needs nothing but itself: its vocabulary is used, not the file that this once came from.
        vocabulary = None
        if checkpoint and facts:
            vocabulary = vocabulary_for(checkpoint, facts, run, accepted)
            refuse_changed_text(checkpoint, facts, run, directory, accepted)
        data = open_data(
            run,
            directory,
            vocabulary=vocabulary,
            resumption=facts.resumption if facts else None,
            progress=display.building,
            workers=workers,
            warn=display.warn,
        )
        say_data(display, run, data)
        watched = open_watched(
            run, directory, data.vocabulary, progress=display.building, workers=workers, warn=display.warn
        )
        heldout = {**data.heldout, **watched}
        say_model(display, run, num_params(specs), origin)
        for one in data.tasks:
            try_metrics(one.task, one.heldout, data.vocabulary)

        # ---- Restore, in this order ----------------------------------------------------------------------------------
        # 1. The last checkpoint of this directory: weights, optimizer, step and position; the run goes on.
        # 2. `start` names a Spanloom checkpoint or run: its weights, and its optimizer as `follow` says, from step 0.
        # 3. `start` names a Hugging Face folder: its weights alone.
        # 4. Otherwise random weights, drawn from the seed.
        # 5. What is damaged or does not fit is an error, never passed over for the next in this order.
        # From here on a signal waits: an exception that breaks into JAX's tracing can crash Python as it ends.
        stack.enter_context(stop.deferred())
        first_step, position = 0, data.train.start
        least, most = expected_initial_loss(run.model, run.loss)
        shapes = jax.eval_shape(lambda key: optimizer.init(initialize(specs, key)), jax.random.key(0))
        if checkpoint and facts:
            other = changed_parts(checkpoint, facts, run, data, accepted)
            restored = restore(checkpoint, opt_state_like=shapes)
            first_step, position = restored.step, restored.position
            state = TrainState(jnp.asarray(first_step, jnp.int32), restored.params, restored.opt_state)
            say_resume(display, restored.facts, run, other, differences(restored.facts.machine, machine))
        elif found:
            start = load_start(run, found, shapes if run.follow.optimizer == "continue" else None)
            state, least = fresh_state(as_kept(start.params, run.weights), optimizer, start.opt_state), -math.inf
            display.say(f"start: {start.description}")
            for warning in start.warnings:
                display.warn(warning)
        else:
            draw = jax.jit(lambda key: as_kept(initialize(specs, key), run.weights))
            state = fresh_state(draw(jax.random.key(run.seed)), optimizer)
        state = jax.device_put(state, device)
        stop.check()
        write_run(run, directory)  # not before: settings that fail with their data bind nobody
        metrics_file = MetricsFile(directory / METRICS_FILE, first_step)
        stack.callback(metrics_file.close)
        over = (patience := patience_of(facts)).ended(run.stopping)
        if (over or first_step >= run.steps) and all(metrics_file.has("eval", task, first_step) for task in heldout):
            say_finished(display, run, directory, patience)
            return True

        stack.enter_context(ahead_of(data, checkpoint, display.say))

        # ---- Compile the step ----------------------------------------------------------------------------------------
        display.say("compiling the training step")
        # One program for one shape of batch: another shape would be an error here, never a silent second compilation.
        example, _ = data.train.take(position, run.batch_size)
        rate, skips = rate_of_step(run, origin), run.stopping.nonfinite == "skip"
        jitted = make_train_step(run.model, run.loss, optimizer, rate, run.seed, run.microbatches, skips)
        train_step = jitted.lower(state, example).compile()
        check_fits(train_step, run, available_memory(device))
        heldout_step = make_heldout_step(run.model, data.vocabulary)
        check_heldout(heldout_step, state, run, heldout.values(), available_memory(device))
        return_freed_memory()
        if cache:
            seal_entries(cache)
            stack.callback(seal_entries, cache)
        stop.check()

        # ---- Open what the run writes --------------------------------------------------------------------------------
        tensorboard = [TensorBoard(directory / TENSORBOARD, first_step)] if run.log.tensorboard else []
        logger = Loggers(metrics_file, *tensorboard)
        stack.callback(logger.close)
        flops = train_flops(run.model, run.batch_size, data.lengths["encoder"], data.lengths["decoder"])
        speeds = Speeds(flops, measured_peak(run.model.dtype))
        recorder = Recorder(
            logger,
            display,
            speeds,
            log_every=run.log.every,
            last_step=run.steps,
            diverged=functools.partial(diverged, run=run, directory=directory),
            most_skipped=most_skipped(run),
            skipped=Skipped(**facts.skipped) if facts else None,
        )
        sayer, keeper = saved_sayer(display, directory), functools.partial(keep_needed, data)
        writer = CheckpointWriter(directory / CHECKPOINTS, run.checkpoint, data.vocabulary.files(), sayer, keeper)
        stack.callback(writer.close)
        logger.write("start", first_step, {"parameters": num_params(specs), "peak_flops": speeds.peak, **machine})
        judge = Judge(run, heldout_step, heldout, patience, metrics_file, logger, display, stop.until_requested)

        # ---- Train, check the first loss, evaluate, save -------------------------------------------------------------
        if first_step and (first_step % run.eval.every == 0 or first_step >= run.steps):
            judge.evaluate(state, first_step, checkpoint)  # if it was interrupted
        stop.check()
        if judge.over:
            say_finished(display, run, directory, judge.patience)
            return True
        display.begin(first_step, run.steps)
        reader = StepReader(data.train, position, first_step, run.batch_size)
        batches = prefetch(reader, first_step, run.steps, run.loading.ahead, run.loading.workers)
        stack.enter_context(contextlib.closing(batches))
        stack.enter_context(jax.transfer_guard_host_to_device("disallow"))  # a copy that nobody asked for is an error
        step, eras = first_step, to_data(data.eras)
        for batch, position in recorder.waited_for(batches):
            step += 1
            recorder.before_step()
            state, metrics = train_step(state, jax.device_put(batch, device))
            recorder.add(step, count_tokens(batch), metrics)

            if step == 1:
                recorder.flush()
                say_first_loss(display, FirstLoss(recorder.last["cross_entropy"], run.model.vocab_size, least, most))

            heldout_loss = None
            if step % run.eval.every == 0 or step == run.steps:
                recorder.flush()
                heldout_loss = judge.evaluate(state, step)

            stopping = stop.requested or step == run.steps or judge.over
            if step % run.checkpoint.every == 0 or stopping:
                recorder.flush()
                if not all_finite(state.params):
                    raise diverged(step, "the weights after it are not finite", run, directory)
                facts = Facts(
                    step=step,
                    position=position,
                    run=run,
                    machine=machine,
                    loss=recorder.last["loss"] if math.isfinite(recorder.last["loss"]) else None,
                    heldout_loss=heldout_loss,
                    started_from=run.start,
                    eras=eras,
                    content=data.content,
                    streams=standings(data, position),
                    skipped=recorder.skipped.to_data(),
                    origin=origin.to_data(),
                    patience=judge.patience.to_data(),
                )
                restore_run(run, directory)
                writer.save(state, facts)

            if stopping:
                over = judge.over
                break

        # Leaving the block waits for the last save; a signal may come until then.
    if step is None or stop.requested:  # None: `Stopped` led here, before there was anything new to save
        say_stopped(display, step, latest(directory))
        return False
    if over:
        say_finished(display, run, directory, judge.patience)
    return over or step >= run.steps
