"""T5X's first example: its values, and that C4's files are read as they are."""

import gzip
import json

import pytest
from golden_data import shared_dir

from spanloom.cli.main import main
from spanloom.model.flops import train_flops
from spanloom.recipes.t5_1_1_small_c4 import recipe
from spanloom.settings.serialize import from_json, to_json


@pytest.mark.short
def test_the_values_are_t5xs():
    run = recipe(("c4.json.gz",)).resolve()
    assert from_json(to_json(run)) == run
    objective = run.task.objective
    assert (objective.inputs_length, objective.noise_density, objective.mean_span_length) == (512, 0.15, 3.0)
    assert (run.batch_size, run.steps, run.model.dtype, run.model.dropout) == (256, 10_000, "bfloat16", 0.0)
    assert (run.eval.every, run.eval.max_batches, run.checkpoint.every) == (1000, 20, 1000)
    assert (run.optimizer.learning_rate, run.schedule.warmup_steps, run.loss.z_loss) == (1.0, 10_000, 1e-4)
    assert train_flops(run.model, 256, 512, 114) == pytest.approx(2.7e13, rel=0.04)


def test_files_of_c4s_shape_are_shown(tmp_path, capsys):
    for name, count in (("c4-train.00000-of-00001", 40), ("c4-validation.00000-of-00001", 4)):
        rows = [
            {"text": f"page {n} " * 30, "timestamp": "2019", "url": f"https://example.org/{n}"} for n in range(count)
        ]
        content = "".join(json.dumps(row) + "\n" for row in rows).encode()
        (tmp_path / f"{name}.json.gz").write_bytes(gzip.compress(content))
    vocabulary = shared_dir("data", "tokenizers", "t5") / "spiece.model"
    text = ["--text", f"{tmp_path}/c4-train.*.json.gz", "--heldout", f"{tmp_path}/c4-validation.*.json.gz"]
    words = [*text, "--vocabulary", str(vocabulary), "--out", str(tmp_path / "run"), "-n", "1"]
    assert main(["show", "t5_1_1_small_c4", *words]) == 0
    assert "<extra_id_0>" in (said := capsys.readouterr().out) and "page" in said
