"""Training, from top to bottom: one linear function. Start reading here."""

import contextlib
import functools
import math
from collections.abc import Collection
from pathlib import Path

import jax

from spanloom.evaluation.heldout import make_heldout_step
from spanloom.model.params import declare, num_params
from spanloom.optim.build import build as build_optimizer
from spanloom.pipeline.eras import to_data
from spanloom.pipeline.prefetch import StepReader, prefetch
from spanloom.pipeline.spool.needed import standings
from spanloom.scale.agreement import Agreement
from spanloom.scale.mesh import check_batch, make_layout, placement_of
from spanloom.scale.processes import ALONE, Crew
from spanloom.settings.run import Run
from spanloom.settings.run_layout import CHECKPOINTS
from spanloom.training.checkpoint_paths import latest
from spanloom.training.checkpoints import CheckpointWriter
from spanloom.training.compile_cache import enable_compile_cache, seal_entries
from spanloom.training.decided import say_decided
from spanloom.training.divergence import all_finite, diverged
from spanloom.training.facts import Facts, read_facts
from spanloom.training.first_loss import FirstLoss
from spanloom.training.first_state import first_state
from spanloom.training.fits import available_memory, check_fits, check_heldout, explaining_memory
from spanloom.training.judge import Judge
from spanloom.training.lock import claimed
from spanloom.training.loggers import METRICS_FILE, Loggers, MetricsFile
from spanloom.training.lost import refuse_lost
from spanloom.training.machine import describe_machine, differences
from spanloom.training.memory import return_freed_memory
from spanloom.training.origin import FROM_THE_BEGINNING, origin_after, origin_in, rate_of_count, rate_of_step
from spanloom.training.patience import patience_of, say_finished
from spanloom.training.progress import Display, SilentDisplay, make_display
from spanloom.training.reading import read_data
from spanloom.training.recorder import Recorder, speeds_of
from spanloom.training.run_file import restore_run, write_run
from spanloom.training.same_data import changed_parts
from spanloom.training.say import saved_sayer, say_first_loss, say_resume, say_stopped
from spanloom.training.signals import stop_signals
from spanloom.training.skipped import Skipped, most_skipped
from spanloom.training.start import beginning, find_start
from spanloom.training.step import make_train_step
from spanloom.training.streams import ahead_of, keep_needed
from spanloom.training.trackers import check_trackers, open_loggers


def train(
    run: Run,
    directory: Path,
    *,
    display: Display | None = None,
    accepted: Collection[str] = (),
    workers: int = 1,
    crew: Crew = ALONE,
) -> bool:
    """Train `run` in `directory`, going on from its last checkpoint if it has one.

    Returns True once the last step is done, False if Ctrl-C or SIGTERM ended it earlier, with everything saved. The
    settings are taken as they are: refusing to go on with other ones than before is `spanloom.cli`'s part. Other data
    under the same settings are refused here, unless `accepted` (dotted fields) has "task.source" or "task.vocabulary".
    Up to `workers` processes build missing stores (see `spanloom.pipeline.build_workers`). Of several processes that
    train together, `crew`, the first one writes and speaks.

    Raises DivergedError on a NaN, CheckpointError on a damaged or unwritable checkpoint, ChangedDataError,
    DirectoryInUseError if another process trains there, MeshError for a mesh that does not fit the devices, and what
    reading the data raises.
    """
    run, directory = run.resolve(), Path(directory)
    step: int | None = None
    with contextlib.ExitStack() as stack:
        # ---- Set up --------------------------------------------------------------------------------------------------
        display = (display or make_display()) if crew.is_first else SilentDisplay()
        stack.callback(display.close)
        stack.enter_context(claimed(directory, crew))
        stop = stack.enter_context(stop_signals())
        if crew.roll:
            stack.enter_context(stop.deferred())  # one cannot leave alone: they agree on a step
        cache = enable_compile_cache() if crew.is_first else None
        machine, device = describe_machine(), jax.local_devices()[0]
        layout = make_layout(run.mesh)
        check_batch(layout, run.at_a_time, "microbatch_size" if run.microbatch_size else "batch_size")

        # ---- What can be refused without reading data or weights is refused now --------------------------------------
        check_trackers(run, crew)
        checkpoint = latest(directory)
        if checkpoint is None:
            refuse_lost(directory)
        facts = read_facts(checkpoint) if checkpoint else None
        found = find_start(run) if run.start and not checkpoint else None
        origin = origin_in(facts) if facts else origin_after(run, found.reached) if found else FROM_THE_BEGINNING
        specs = declare(run.model)
        optimizer = build_optimizer(run.optimizer, rate_of_count(run, origin), specs, run.weights, run.seed)

        # ---- Read the data -------------------------------------------------------------------------------------------
        with crew.first_before_others("the data"):
            data, heldout = read_data(run, directory, checkpoint, facts, display, accepted, workers)
        say_decided(display, run, data, layout, num_params(specs), directory, origin)

        # ---- Restore what there is, or draw weights: see `first_state` for the order of precedence -------------------
        # From here on a signal waits: an exception that breaks into JAX's tracing can crash Python as it ends.
        if not crew.roll:
            stack.enter_context(stop.deferred())
        if checkpoint and facts:
            other = changed_parts(checkpoint, facts, run, data, accepted)
            say_resume(display, facts, run, other, differences(facts.machine, machine))
        begun = first_state(run, optimizer, layout, checkpoint, found, data.train.start, display, check=crew.is_first)
        state, first_step, position = begun.state, begun.step, begun.position
        stop.check_alone(crew)
        with crew.first_before_others("the files"):
            if crew.is_first:
                write_run(run, directory)  # not before: settings that fail with their data bind nobody
            metrics_file = MetricsFile(directory / METRICS_FILE, first_step, writes=crew.is_first)
        stack.callback(metrics_file.close)
        over = (patience := patience_of(facts)).ended(run.stopping)
        if (over or first_step >= run.steps) and all(metrics_file.has("eval", task, first_step) for task in heldout):
            say_finished(display, run, directory, patience)
            return True

        if crew.is_first:
            stack.enter_context(ahead_of(data, checkpoint, display.say))

        # ---- Compile the step ----------------------------------------------------------------------------------------
        display.say("compiling the training step")
        # One program for one shape of batch: another shape would be an error here, never a silent second compilation.
        reader = StepReader(data.train, position, first_step, run.batch_size, layout.shares)
        example = layout.put_batch(reader(first_step)[0], run.batch_size)
        jitted = functools.partial(
            make_train_step,
            run.model,
            run.loss,
            optimizer,
            rate_of_step(run, origin),
            run.seed,
            run.microbatches,
            skip_nonfinite=run.stopping.nonfinite == "skip",
            place=placement_of(layout),
            shardings=(begun.places, layout.replicated),
        )
        stack.enter_context(explaining_memory(run, data.lengths, layout.mesh.size))
        train_step = jitted().lower(state, example).compile()
        measuring_step = jitted(parameters=True).lower(state, example).compile() if run.log.parameters else train_step
        for program in {train_step, measuring_step}:
            check_fits(program, run, available_memory(device), data.lengths, layout.mesh.size)
        heldout_step = make_heldout_step(run.model, data.vocabulary, placement_of(layout), layout.replicated)
        check_heldout(heldout_step, state, run, heldout.values(), available_memory(device))
        return_freed_memory()
        if cache:
            seal_entries(cache)
            stack.callback(seal_entries, cache)
        stop.check_alone(crew)

        # ---- Open what the run writes --------------------------------------------------------------------------------
        speeds = speeds_of(run, data.lengths, crew.processes)
        told = {"parameters": num_params(specs), "peak_flops": speeds.peak, **machine}
        beside = open_loggers(run, directory, first_step, told, display) if crew.is_first else ()
        logger = Loggers(metrics_file, *beside)
        stack.callback(logger.close)
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
        writer = CheckpointWriter(directory / CHECKPOINTS, run.checkpoint, data.vocabulary.files(), sayer, keeper, crew)
        stack.callback(writer.close)
        logger.write("start", first_step, told)
        until = stop.until_requested if not crew.roll else iter
        judge = Judge(run, heldout_step, heldout, patience, metrics_file, logger, display, until, layout, data, crew)
        crew.barrier("ready")  # CPUs wait half a minute for one another when they first compute together, and no more

        # ---- Train, check the first loss, evaluate, save -------------------------------------------------------------
        if first_step and (first_step % run.eval.every == 0 or first_step >= run.steps):
            judge.evaluate(state, first_step, checkpoint)  # if it was interrupted
        stop.check_alone(crew)
        if judge.over:
            say_finished(display, run, directory, judge.patience)
            return True
        display.begin(first_step, run.steps)
        batches = prefetch(reader, first_step, run.steps, run.loading.ahead, run.loading.workers)
        stack.enter_context(contextlib.closing(batches))
        stack.enter_context(jax.transfer_guard_host_to_device("disallow"))  # a copy that nobody asked for is an error
        step, eras, agreement, stopped = first_step, to_data(data.eras), Agreement(layout), False
        for batch, position in recorder.waited_for(batches):
            step += 1
            recorder.before_step()
            program = measuring_step if run.log.parameters and step % run.log.parameters == 0 else train_step
            state, metrics = program(state, layout.put_batch(batch, run.batch_size))
            recorder.add(step, metrics)

            if step == 1:
                recorder.flush()
                say_first_loss(display, FirstLoss(recorder.last["cross_entropy"], run.model.vocab_size, *begun.loss))

            heldout_loss = None
            if step % run.eval.every == 0 or step == run.steps:
                recorder.flush()
                with recorder.during("eval"):
                    recorder.heldout_loss = heldout_loss = judge.evaluate(state, step)

            stopped = agreement.asked(stop.requested)
            stopping = stopped or step == run.steps or judge.over
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
                    **beginning(facts, found),
                    eras=eras,
                    content=data.content,
                    streams=standings(data, position),
                    skipped=recorder.skipped.to_data(),
                    origin=origin.to_data(),
                    patience=judge.patience.to_data(),
                )
                if crew.is_first:
                    restore_run(run, directory)
                with recorder.during("checkpoint"):
                    writer.save(state, facts)

            if stopping:
                over = judge.over
                break

        writer.wait()  # a signal may come until the last save is done
        stopped = agreement.asked_at_last(stop.requested)
    # `Stopped` led here before anything new was saved (None), or a stop was asked for. Several processes go by what
    # they agreed on: one that left alone, asked after that, would be waited for by the others' next run.
    if step is None or (stopped if crew.roll else stop.requested) or (step < run.steps and not over):
        say_stopped(display, step, latest(directory))
        return False
    if over:
        say_finished(display, run, directory, judge.patience)
    return over or step >= run.steps
