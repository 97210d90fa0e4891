"""Checkpoints: self-contained directories, whole or absent. All of Orbax that Spanloom uses is in this file.

    OUT/checkpoints/1000/
      checkpoint.json     step, data position, run as data, held-out loss, versions and devices, names of all arrays
      arrays/params/      the weights, under T5X's names; restored alone where the optimizer is not needed
      arrays/optimizer/   the optimizer's state
      arrays/averaged/    averaged weights, which are the model, only if the optimizer keeps any
      vocabulary/         the files of the vocabulary (none for bytes)
      manifest.json       size and CRC-32 of every other file
      heldout.json        only if the held-out loss of its step was measured later; not in the manifest

A checkpoint is written under the name 1000.partial, flushed to disk, listed in its manifest and renamed: a kill at any
instant leaves the old checkpoints and perhaps a directory whose name no reader looks at. Restoring reads the arrays
and a few integers, so it costs the same at step ten million as at step ten.
"""

import contextlib
import json
import logging
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from spanloom.model.params import declare, flatten, path_name, unflatten
from spanloom.pipeline.durable import sync_directory
from spanloom.scale.mesh import Layout
from spanloom.scale.processes import ALONE, Crew
from spanloom.settings.run import Checkpoints, Run
from spanloom.settings.run_layout import ARRAYS, FACTS, PARTIAL, VOCABULARY, steps_in
from spanloom.training.checkpoint_paths import CheckpointError, damaged, delete, heldout_loss
from spanloom.training.facts import Facts, array_entry, read_facts_and_arrays, to_data
from spanloom.training.integrity import DamagedError, seal, verify
from spanloom.training.retention import kept
from spanloom.training.state import TrainState, averaged_weights

PARAMS, OPTIMIZER, AVERAGED = "params", "optimizer", "averaged"
"""Items of a checkpoint's arrays."""


@dataclass(frozen=True)
class Restored:
    """A checkpoint in memory."""

    path: Path
    """Its directory."""
    facts: Facts
    """Step, position, run and so on."""
    params: Any
    """The weights, in the type they are kept in: a tree as `spanloom.model.params.declare(run.model)` has it."""
    opt_state: Any
    """The optimizer's state, or None if only weights were asked for."""

    @property
    def run(self) -> Run:
        """The run, resolved."""
        return self.facts.run

    @property
    def step(self) -> int:
        """Updates done."""
        return self.facts.step

    @property
    def position(self) -> dict[str, int]:
        """Where in the data the run stands."""
        return self.facts.position


# ---- Reading ---------------------------------------------------------------------------------------------------------


def restore(path: Path, opt_state_like: Any = None, layout: Layout | None = None, *, check: bool = True) -> Restored:
    """Read the checkpoint directory `path` (see `open_checkpoint` for finding one).

    Only the weights are read unless `opt_state_like`, a tree with the shapes and types of the optimizer's state (made
    by `jax.eval_shape`), is given; then those that training goes on with, otherwise those that the model has (averaged
    ones, where the optimizer keeps any). They are divided as `layout` has it, whatever devices wrote them; unset: all
    on one. `check`: read every file first, to see that it is what was written. Raises CheckpointError naming the
    damaged or missing file and the intact checkpoint before it, or the arrays of the optimizer that do not fit.
    """
    facts, arrays = read_facts_and_arrays(path)
    try:
        if check:
            verify(path)
        specs = declare(facts.run.model)
        model = AVERAGED if opt_state_like is None and AVERAGED in arrays else PARAMS
        places = flatten(layout.params(specs)) if layout else {}
        params = unflatten(facts.run.model, _restore_arrays(path, model, arrays[model], places))
        opt_state = None
        if opt_state_like is not None:
            check_same_arrays(path, arrays[OPTIMIZER], opt_state_like)
            places = flatten(layout.optimizer_state(specs, opt_state_like)) if layout else {}
            flat = _restore_arrays(path, OPTIMIZER, arrays[OPTIMIZER], places)
            names = [path_name(p) for p, _ in jax.tree_util.tree_flatten_with_path(opt_state_like)[0]]
            opt_state = jax.tree.unflatten(jax.tree.structure(opt_state_like), [flat[name] for name in names])
    except DamagedError as error:
        raise damaged(path, str(error)) from None
    return Restored(path, facts, params, opt_state)


def check_same_arrays(path: Path, saved: Mapping[str, Any], wanted: Any) -> None:
    """Raise CheckpointError unless the saved optimizer arrays are those the optimizer of these settings needs."""
    needed = {name: array_entry(leaf) for name, leaf in flatten(wanted).items()}
    wrong = [name for name in needed if saved.get(name) != needed[name]] + [n for n in saved if n not in needed]
    if wrong:
        name = wrong[0]
        raise CheckpointError(
            f"the optimizer state in {path} is not that of these settings: {name} is {saved.get(name, 'absent')} "
            f"there, {needed.get(name, 'absent')} here ({len(wrong)} differ). Take the optimizer's settings back, or "
            f"start from its weights alone, with a fresh optimizer: --start {path} --out NEW_DIR"
        )


def _restore_arrays(
    path: Path, item: str, entries: Mapping[str, Any], places: Mapping[str, jax.sharding.Sharding]
) -> dict[str, jax.Array]:
    one = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    wanted = {
        name: ocp.ArrayRestoreArgs(sharding=places.get(name, one), dtype=jnp.dtype(entry["dtype"]))
        for name, entry in entries.items()
    }
    try:
        with warnings.catch_warnings(), ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
            warnings.simplefilter("ignore")  # Orbax warns of its own defaults
            nested = reader.restore(
                (path / ARRAYS / item).absolute(), ocp.args.PyTreeRestore(restore_args=_nest(wanted))
            )
    except (OSError, ValueError, KeyError) as error:
        raise DamagedError(f"{path / ARRAYS / item} cannot be read: {error}") from error
    return flatten(nested)


# ---- Writing ---------------------------------------------------------------------------------------------------------


class CheckpointWriter:
    """Writes checkpoints in the background and deletes those no longer to be kept, always the new one first.

    At most one save is under way: `save` waits for the one before it.
    """

    def __init__(
        self,
        directory: Path,
        settings: Checkpoints,
        vocabulary_files: Mapping[str, bytes],
        on_saved: Callable[[int, int, float], None] = lambda step, size, seconds: None,
        on_kept: Callable[[list[Path]], None] = lambda checkpoints: None,
        crew: Crew = ALONE,
    ) -> None:
        """Writes below `directory` (a run's checkpoints/), in which nothing else may write; `clean_up` comes before.

        Of several processes each writes its part of the arrays, and the first one, of `crew`, all else.
        `on_saved(step, bytes, seconds)` and then `on_kept(checkpoints)`, with those that are left, are called from a
        thread.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._settings = settings
        self._vocabulary_files = dict(vocabulary_files)
        self._on_saved = on_saved
        self._on_kept = on_kept
        self._crew = crew
        self._quiet = contextlib.ExitStack()
        self._quiet.enter_context(_quiet_orbax())
        self._orbax = ocp.AsyncCheckpointer(ocp.CompositeCheckpointHandler())
        self._commit: threading.Thread | None = None
        self._error: BaseException | None = None

    def save(self, state: TrainState, facts: Facts) -> None:
        """Save `state`; returns as soon as the arrays are copied, so that the next step may overwrite them.

        Raises CheckpointError if this save or the one before it failed; earlier checkpoints are then intact.
        """
        self.wait()
        started = time.perf_counter()
        partial = self._directory / f"{facts.step}{PARTIAL}"
        arrays = {PARAMS: flatten(state.params), OPTIMIZER: flatten(state.opt_state)}
        if (averaged := averaged_weights(state)) is not None:
            arrays[AVERAGED] = flatten(averaged)
        try:
            if self._crew.is_first:
                self._write_facts(partial, to_data(facts, arrays))
            self._crew.barrier(f"checkpoint {facts.step} begins")
            self._orbax.save(
                (partial / ARRAYS).absolute(),  # Orbax takes no relative path
                args=ocp.args.Composite(**{item: ocp.args.PyTreeSave(_nest(flat)) for item, flat in arrays.items()}),
            )
        except Exception as error:
            raise self._failed(partial, error) from error
        self._commit = threading.Thread(target=self._finish, args=(partial, facts.step, started), name="checkpoint")
        self._commit.start()

    def _write_facts(self, partial: Path, whole: Mapping[str, Any]) -> None:
        partial.mkdir(parents=True)  # somebody may have removed the run directory
        (partial / FACTS).write_text(json.dumps(whole, indent=1))
        for name, content in self._vocabulary_files.items():
            (partial / VOCABULARY).mkdir(exist_ok=True)
            (partial / VOCABULARY / name).write_bytes(content)

    def wait(self) -> None:
        """Until the save under way is whole. Raises CheckpointError if it failed."""
        if self._commit is not None:
            self._commit.join()
            self._commit = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def close(self) -> None:
        """Wait, then free Orbax's threads and let it speak again."""
        try:
            self.wait()
        finally:
            self._orbax.close()
            self._quiet.close()

    def _finish(self, partial: Path, step: int, started: float) -> None:
        try:
            self._orbax.wait_until_finished()
            self._crew.barrier(f"checkpoint {step} written")
            if not self._crew.is_first:
                return
            (partial / FACTS).stat()  # Orbax makes its folder anew where all was removed under it
            size = seal(partial)
            partial.rename(self._directory / str(step))
            sync_directory(self._directory)
        except BaseException as error:
            self._error = self._failed(partial, error)
            self._error.__cause__ = error
            return
        try:
            self._on_saved(step, size, time.perf_counter() - started)
            self._delete_old()
        except BaseException as error:
            self._error = CheckpointError(
                f"checkpoint {self._directory / str(step)} is whole, but what follows a save failed: saying so, or "
                f"deleting older ones that are no longer to be kept ({_root_cause(error)}). Mend that; the same "
                "command then goes on from there."
            )
            self._error.__cause__ = error

    def _delete_old(self) -> None:
        heldout = {step: heldout_loss(self._directory / str(step)) for step in steps_in(self._directory)}
        left = kept(heldout, self._settings)
        for step in heldout.keys() - left:
            delete(self._directory / str(step))
        self._on_kept([self._directory / str(step) for step in sorted(left)])

    def _failed(self, partial: Path, error: BaseException) -> CheckpointError:
        shutil.rmtree(partial, ignore_errors=True)
        there = next(path for path in (self._directory, *self._directory.absolute().parents) if path.exists())
        free = shutil.disk_usage(there).free / 2**20
        intact = steps_in(self._directory)
        return CheckpointError(
            f"could not save checkpoint {partial.with_suffix('')} ({_root_cause(error)}; {free:,.0f} MiB free there). "
            + (f"The checkpoint of step {intact[-1]} is intact. " if intact else "No checkpoint was written before. ")
            + "If the disk is full, free some room or keep fewer (--checkpoint.keep, --checkpoint.keep-every); "
            "the same command then goes on."
        )


@contextlib.contextmanager
def _quiet_orbax() -> Iterator[None]:
    """Orbax logs the traceback of every thread that an error passes; the error itself is raised by the writer anyway.

    Arrays that finish after the first error find the loop closed that waited for them, and print that as well.
    """
    logger, hook = logging.getLogger("absl"), sys.unraisablehook
    level = logger.level

    def unraisable(args: "sys.UnraisableHookArgs") -> None:
        if not (args.exc_type is RuntimeError and str(args.exc_value) == "Event loop is closed"):
            hook(args)

    logger.setLevel(logging.CRITICAL)
    sys.unraisablehook = unraisable
    try:
        yield
    finally:
        logger.setLevel(level)
        sys.unraisablehook = hook


def _nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """{'a/b': x} to {'a': {'b': x}}: Orbax keeps each level of the tree as a level of its own."""
    nested: dict[str, Any] = {}
    for name, leaf in flat.items():
        *parents, last = name.split("/")
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = leaf
    return nested


def _root_cause(error: BaseException) -> str:
    text = str(error.__cause__ or error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
