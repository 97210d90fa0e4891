"""A run whose examples share rows."""

import dataclasses

import jax
import numpy as np
import pytest
from tiny_training import MODEL, events, losses, tiny_run, train, write_text

from spanloom.model.loss import loss_and_metrics
from spanloom.model.params import declare, initialize
from spanloom.pipeline.data import open_data
from spanloom.settings.compare import ChangedSettingsError, changes, refuse
from spanloom.settings.mixture import Mixture, Weighted
from spanloom.settings.objectives import Supervised
from spanloom.settings.packing import Packed, Unpacked
from spanloom.settings.run import Checkpoints, Evaluation, Loading, Loss
from spanloom.settings.task import PairFiles, Task
from spanloom.training.checkpoint_paths import latest
from spanloom.training.facts import read_facts


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """The steps are compiled once for this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPANLOOM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
    jax.config.update("jax_compilation_cache_dir", None)


@pytest.fixture
def packed(tmp_path):
    """A run of eight steps on text and pairs in rows of 48 and 24 tokens."""
    run = tiny_run(write_text(tmp_path / "text.txt", lines=400), 8)
    (tmp_path / "pairs.tsv").write_text("inputs\ttargets\n" + "".join(f"{i}\t{i + 1}\n" for i in range(200)))
    pairs = PairFiles((str(tmp_path / "pairs.tsv"),), heldout_share=0.1)
    return dataclasses.replace(
        run,
        task=Mixture("all", (Weighted(run.task, 1.0), Weighted(Task("count", pairs, objective=Supervised()), 3.0))),
        packing=Packed(48, 24),
        model=dataclasses.replace(MODEL, dropout=0.0),
        checkpoint=Checkpoints(every=4),
        eval=Evaluation(every=4, max_batches=2),
    )


def test_resuming_gives_the_same_losses_with_any_number_of_workers(packed, tmp_path):
    said = train(packed, tmp_path / "straight")
    train(dataclasses.replace(packed, steps=4), tmp_path / "stopped")
    assert {*read_facts(latest(tmp_path / "stopped")).position} == {"window", "row"}
    resumed = train(dataclasses.replace(packed, loading=Loading(workers=2)), tmp_path / "stopped")
    assert losses(tmp_path / "stopped") == losses(tmp_path / "straight")
    assert "packed into rows of 48 + 24 tokens" in said
    assert "resuming after step 4, window 0, row 16" in resumed


def test_how_long_the_loop_waited_for_data_is_written_down(packed, tmp_path):
    train(packed, tmp_path)
    waits = [event["data_wait"] for event in events(tmp_path) if event["kind"] == "train"]
    assert waits and all(0 <= wait <= 1 for wait in waits)


def test_a_packed_batch_costs_what_its_examples_cost_alone(packed, tmp_path):
    data = open_data(packed, tmp_path / "run")
    batch, _ = data.train.take(data.train.start, 4)
    params = jax.jit(lambda key: initialize(declare(packed.model), key))(jax.random.key(0))
    loss = Loss(normalizer="sum")
    _, together = loss_and_metrics(params, packed.model, loss, batch)
    one_each = unpacked(batch)
    _, apart = loss_and_metrics(params, packed.model, loss, one_each)
    assert float(together["num_sequences"]) == len(one_each["encoder_input_tokens"]) > 8
    for name in together:
        np.testing.assert_allclose(together[name], apart[name], rtol=2e-6, err_msg=name)


def unpacked(batch):
    """Each segment of a packed batch in a row of its own."""
    rows = {name: [] for name in batch if "segment" not in name and "positions" not in name}
    for row in range(len(batch["encoder_input_tokens"])):
        for segment in range(1, batch["encoder_segment_ids"][row].max() + 1):
            for name, kept in rows.items():
                own = batch[f"{name.partition('_')[0]}_segment_ids"][row] == segment
                part = batch[name][row][own]
                kept.append(np.pad(part, (0, len(own) - len(part))))
    return {name: np.stack(kept) for name, kept in rows.items()}


@pytest.mark.parametrize("packing", [Unpacked(), Packed(64, 24), Packed(48, 24, max_segments=3)])
def test_a_run_goes_on_with_its_own_rows_only(packed, packing):
    found = changes(packed, dataclasses.replace(packed, packing=packing))
    with pytest.raises(ChangedSettingsError, match=r"place in the data(.|\n)*--start THIS_RUN --out NEW_DIR"):
        refuse(found, ["packing"])
