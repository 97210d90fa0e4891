"""Plans: what they say of a run is what the run has, and what is suggested is compiled and fits."""

import json
from dataclasses import replace

import pytest
from libtpu_here import needs_libtpu
from tiny_training import MODEL, tiny_run, train, write_text

from spanloom.model.flops import train_flops
from spanloom.model.params import declare, num_params
from spanloom.scale import compiled as compiled_module
from spanloom.scale.mesh import MeshError
from spanloom.scale.topologies import topology
from spanloom.settings.mesh import Mesh
from spanloom.settings.objectives import Supervised
from spanloom.settings.optimizer import Adafactor, AdamW
from spanloom.settings.packing import Packed
from spanloom.settings.task import PairFiles
from spanloom.settings.vocabulary import SentencePiece
from spanloom.settings.weights import Weights
from spanloom.training import fits
from spanloom.training.abstract import abstract_state, device_bytes, whole_bytes
from spanloom.training.needs import abstract_layout, formula_needs, likely_changes
from spanloom.training.plan import make_plan
from spanloom.training.plan_data import PlanData, UnknownLengthError, plan_data, without_files

LENGTHS = {"encoder": 64, "decoder": 32}
DATA = PlanData(LENGTHS, unknown="no stores")
WIDE = replace(MODEL, d_model=128, d_ff=256, num_heads=4, d_kv=32, num_encoder_layers=3, num_decoder_layers=3)


@pytest.fixture
def run(tmp_path):
    return tiny_run(tmp_path / "absent.txt", 10, model=WIDE, batch_size=8).resolve()


@pytest.fixture
def small_machine(monkeypatch):
    """A CPU of known speed, with as little memory as is asked for."""
    monkeypatch.setattr("spanloom.training.machine.measured_peak", lambda dtype: 1e11)

    def give(memory: float) -> None:
        monkeypatch.setattr(fits, "available_memory", lambda device: int(memory))

    give(1e12)
    return give


def test_this_machine(run, small_machine):
    found = make_plan(run, DATA, None)
    assert sum(found.parameters.values()) == num_params(declare(run.model))
    assert found.bytes["weights"] == 4 * num_params(declare(run.model)) == found.bytes["gradients"]
    assert found.bytes["optimizer"] >= 2 * found.bytes["weights"]  # AdamW's moments
    assert found.formula_flops == train_flops(run.model, 8, 64, 32)
    assert found.compiled.cost.flops == pytest.approx(found.formula_flops, rel=0.15)
    assert found.needs.fits and found.change is None and found.needs.total > 3 * found.bytes["weights"]
    assert found.step_seconds == pytest.approx(found.compiled.cost.flops / 1e11)
    assert found.hours == pytest.approx(10 * found.step_seconds / 3600)
    told = json.loads(json.dumps(found.as_json()))
    assert told["tokens"] == 10 * 8 * 96 and told["epochs"] is None and told["fits"] is True


def test_what_does_not_fit_has_the_smallest_change_that_was_compiled_and_fits(run, small_machine):
    run = replace(run, model=MODEL, batch_size=64)
    whole = make_plan(run, DATA, None)
    small_machine(whole.needs.total * 0.8)
    told = []
    found = make_plan(run, DATA, None, say=told.append)
    assert told[0] == f"compiling for {found.on.name}"
    assert told[-1].endswith(f"does it fit with {' '.join(found.change.flags)}?")
    assert found.needs.fits is False and found.needs.total == whole.needs.total
    assert found.change.flags and found.change_needs.fits
    assert found.change_needs.total < 0.8 * whole.needs.total
    small_machine(whole.bytes["weights"])
    assert make_plan(run, DATA, None).change is None


def test_gpus_go_by_formula(run):
    found = make_plan(run, DATA, topology("h100x8"))
    assert found.compiled is None and "nothing here compiles for h100x8" in found.why
    assert found.needs.fits and found.mfu < 1, "so few rows take longer to read and write the weights"
    many = make_plan(replace(run, batch_size=1 << 16), DATA, topology("h100x8"), search=False)
    assert many.mfu == pytest.approx(1.0)
    assert found.mesh == {"replica": 1, "data": 8, "fsdp": 1, "tensor": 1}


def test_by_formula_weights_and_the_optimizer_s_state_are_read_and_written_once(run):
    """Small models on fast devices are bound by it: counting arithmetic alone, a step took no time."""
    one, eight = (make_plan(replace(run, optimizer=AdamW()), DATA, topology(f"h100x{count}")) for count in (1, 8))
    moved = 2 * 3 * 4 * sum(one.parameters.values())  # the weights and both moments, float32
    assert one.bounds["memory"] == pytest.approx(moved / one.on.bandwidth, rel=0.01)
    assert one.step_seconds == one.bounds["memory"] > one.bounds["arithmetic"] and one.mfu < 1
    eighth = (1 + 2 / 8) / 3  # every device has all of the weights, and an eighth of the moments
    assert eight.bounds["memory"] == pytest.approx(eighth * one.bounds["memory"], rel=0.02)
    divided = make_plan(replace(run, optimizer=AdamW(), mesh=Mesh(fsdp=8)), DATA, topology("h100x8"))
    assert divided.bounds["memory"] < one.bounds["memory"] / 4


def test_without_the_compiler_a_formula_and_what_to_install(run, monkeypatch):
    def absent(**options):
        raise RuntimeError("JAX TPU support not installed; cannot generate TPU topology.")

    monkeypatch.setattr("jax.experimental.topologies.get_topology_desc", absent)
    found = make_plan(run, DATA, topology("v5e-4"))
    assert found.compiled is None and found.needs.fits
    assert "nothing here compiles for v5e-4 (JAX TPU" in found.why and "pip install 'spanloom[tpu]'" in found.why


def test_a_batch_or_a_mesh_that_devices_cannot_share(run):
    with pytest.raises(MeshError, match="batch_size is 6"):
        make_plan(replace(run, batch_size=6), DATA, topology("h100x4"))
    with pytest.raises(MeshError, match="does not fit 8 devices"):
        make_plan(replace(run, mesh=Mesh(fsdp=3)), DATA, topology("h100x8"))


def test_bytes_of_a_device_follow_the_mesh(run):
    whole = abstract_state(run, abstract_layout(run, 8))
    divided = replace(run, mesh=Mesh(fsdp=4, tensor=2))
    part = abstract_state(divided, abstract_layout(divided, 8))
    assert device_bytes(whole.params) == whole_bytes(whole.params) == whole_bytes(part.params)
    assert device_bytes(part.params) == pytest.approx(device_bytes(whole.params) / 8, rel=0.02)
    for state in (whole.opt_state, part.opt_state):  # moments are divided along data as well
        assert device_bytes(state) == pytest.approx(whole_bytes(whole.opt_state) / 8, rel=0.02)


def test_bfloat16_weights_and_their_average_count(run):
    halved = replace(run, weights=Weights(dtype="bfloat16", ema_decay=0.999), optimizer=Adafactor())
    needs = formula_needs(halved, LENGTHS, 1)
    numbers = num_params(declare(run.model))
    assert needs.parts["weights"] == 2 * numbers and needs.parts["optimizer"] > 4 * numbers
    assert needs.parts["gradients"] == 4 * numbers


def test_changes_are_predicted_from_what_the_run_is_known_to_take(run):
    needed = 3 * formula_needs(run, LENGTHS, 1).total
    first = next(likely_changes(run, LENGTHS, 1, needed, 0.9 * needed))
    assert first.flags
    assert list(likely_changes(run, LENGTHS, 1, needed, 0.001 * needed)) == []
    assert next(likely_changes(run, LENGTHS, 8, None, 1e12)).flags


@needs_libtpu
def test_a_tpu_is_compiled_for_and_loops_count_as_often_as_they_run(run):
    # Wide enough for products to outweigh what is fused otherwise in a loop: 3 % of all FLOPs of the narrower model.
    run = replace(run, model=replace(WIDE, d_model=256, d_ff=1024, d_kv=64))
    scanned = make_plan(run, DATA, topology("v5e-4"))
    unrolled = make_plan(replace(run, model=replace(run.model, scan_layers=False)), DATA, topology("v5e-4"))
    assert scanned.why == unrolled.why == ""
    assert scanned.compiled.unknown_loops == 0 and scanned.needs.fits
    assert scanned.compiled.cost.flops == pytest.approx(unrolled.compiled.cost.flops, rel=0.02)
    assert scanned.compiled.cost.bytes == pytest.approx(unrolled.compiled.cost.bytes, rel=0.35)
    assert scanned.compiled.cost.flops * 4 == pytest.approx(scanned.formula_flops, rel=0.15)
    half_a_ring = 3 / 4 * 4 * num_params(declare(run.model))
    for program in (scanned, unrolled):
        # Each device gets a part of the gradients, and all of the updates.
        for kind in ("reduce-scatter", "all-gather"):
            assert program.compiled.exchanged[kind] == pytest.approx(half_a_ring, rel=0.1)
        assert program.compiled.exchanged["all-reduce"] < 0.1 * half_a_ring


@needs_libtpu
def test_no_device_keeps_the_gradients_of_all_weights(run):
    """A step on few tokens: four bytes a weight would be all that it takes."""
    model = replace(WIDE, d_model=512, d_ff=2048, d_kv=64, num_heads=8, dtype="bfloat16", remat="cheap")
    run = replace(run, model=model, batch_size=8)
    found = make_plan(run, DATA, topology("v5e-4"), search=False)
    assert found.why == ""
    assert found.compiled.memory.temporaries < 0.75 * 4 * num_params(declare(run.model))


@needs_libtpu
def test_a_step_that_no_tpu_holds(run):
    run = replace(run, batch_size=2**21)
    found = make_plan(run, DATA, topology("v5e-4"), search=False)
    assert found.needs.fits is False and found.compiled is None and "gave up: RESOURCE_EXHAUSTED" in found.why
    assert found.needs.available == pytest.approx(15.75 * 2**30, rel=0.01)


def test_sizes_in_the_compilers_words():
    used = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 34.50G of 15.75G hbm. Exceeded hbm"
    assert compiled_module._sizes_in(used) == (34.5 * 2**30, 15.75 * 2**30)
    temporaries = "the total memory required for HLO temporaries (512.00M) exceeds available HBM (15.48G)."
    assert compiled_module._sizes_in(temporaries) == (512 * 2**20, 15.48 * 2**30)
    assert compiled_module._sizes_in("RESOURCE_EXHAUSTED: no") == (None, None)


def test_rows_and_epochs_are_those_of_the_data(tmp_path):
    run = tiny_run(write_text(tmp_path / "text.txt"), 2).resolve()
    before = plan_data(run, tmp_path / "out")
    assert before.epochs == {} and "not built yet" in before.unknown and not (tmp_path / "out").exists()
    train(run, tmp_path / "out")
    after = plan_data(run, tmp_path / "out")
    assert after.lengths == before.lengths and after.unknown == ""
    from spanloom.pipeline.data import open_data

    examples = open_data(run, tmp_path / "out").train.num_draws
    assert examples is None or after.epochs
    assert 0 < after.epochs["lines"] < 1


def test_lengths_without_any_file(tmp_path):
    run = tiny_run(tmp_path / "absent.txt", 2)
    task = replace(run.task, source=replace(run.task.source, files=()), vocabulary=SentencePiece("absent.model"))
    known = plan_data(without_files(replace(run, task=task)).resolve(), tmp_path)
    assert known.lengths == plan_data(run.resolve(), tmp_path).lengths


def test_lengths_that_only_the_data_know_must_be_said(tmp_path):
    run = tiny_run(tmp_path / "absent.txt", 2)
    pairs = replace(run.task, source=PairFiles((str(tmp_path / "p.tsv"),)), objective=Supervised())
    with pytest.raises(UnknownLengthError, match=r"inputs of task 'lines' .* --task\.objective\.inputs-length"):
        plan_data(replace(run, task=pairs).resolve(), tmp_path)
    given = replace(run, task=pairs, packing=Packed(96, 24)).resolve()
    assert plan_data(given, tmp_path).lengths == {"encoder": 96, "decoder": 24}
