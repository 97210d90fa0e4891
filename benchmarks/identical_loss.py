"""Proof that a refactor changes nothing: the same training steps at two revisions, compared bit for bit.

    .venv/bin/python benchmarks/identical_loss.py HEAD~1 [--steps 20]

Trains small models (scanned and unrolled, dropout, every optimizer) on fixed made-up batches with the code of the
working tree and with that of the revision named, and compares every loss and gradient norm. Exit status 1 if any
differ.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

TRAIN = """
import json, sys
import jax, numpy as np
from spanloom.model.params import declare, initialize
from spanloom.model.sizes import named
from spanloom.optim.build import build, learning_rate
from spanloom.settings.optimizer import AdamW, AdamWRMS, Adafactor, Constant
from spanloom.settings.run import Loss
from spanloom.training.state import fresh_state
from spanloom.training.step import make_train_step

def batch(rng):
    targets = rng.integers(3, 384, (4, 12)).astype(np.int32)
    shifted = np.pad(targets, [(0, 0), (1, 0)])[:, :-1]
    weights = np.ones_like(targets)
    inputs = rng.integers(3, 384, (4, 24)).astype(np.int32)
    names = ("encoder_input_tokens", "decoder_target_tokens", "decoder_input_tokens", "decoder_loss_weights")
    return dict(zip(names, (inputs, targets, shifted, weights)))

found = {}
for size, scan, dropout, optimizer in (
    ("byt5_nano", True, 0.0, Adafactor(learning_rate=0.01)),
    ("byt5_nano", False, 0.1, AdamWRMS()),
    ("byt5_tiny", True, 0.0, AdamW()),
):
    model = named(size, scan_layers=scan, dropout=dropout)
    schedule, rng = Constant(warmup_steps=2), np.random.default_rng(0)
    transformation = build(optimizer, schedule, declare(model))
    state = fresh_state(jax.jit(lambda key: initialize(declare(model), key))(jax.random.key(0)), transformation)
    step = make_train_step(model, Loss(), transformation, learning_rate(optimizer, schedule), 0)
    rows = []
    for _ in range(int(sys.argv[1])):
        state, metrics = step(state, batch(rng))
        rows.append([float(metrics["loss"]).hex(), float(metrics["grad_norm"]).hex()])
    found[f"{size}, {'scanned' if scan else 'unrolled'}, {type(optimizer).__name__}, dropout {dropout}"] = rows
print(json.dumps(found))
"""

Losses = dict[str, list[list[str]]]


def train(tree: Path, steps: int) -> Losses:
    """Losses and gradient norms, as hexadecimal floats, of the code in `tree`."""
    env = {**os.environ, "PYTHONPATH": str(tree), "JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, str(steps)], env=env, cwd=tree, stdout=subprocess.PIPE, text=True, check=True
    )
    losses: Losses = json.loads(done.stdout)
    return losses


def main() -> int:
    """Compare the working tree with a revision; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", help="git revision to compare with, such as HEAD~1")
    parser.add_argument("--steps", type=int, default=20, help="training steps of each model (default 20)")
    arguments = parser.parse_args()
    ours = train(ROOT, arguments.steps)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ("git", "-C", str(ROOT), "worktree")
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), arguments.revision], check=True)
        try:
            theirs = train(tree, arguments.steps)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
    return report(ours, theirs, arguments.revision)


def report(ours: Losses, theirs: Losses, revision: str) -> int:
    """Print what is equal and where the first difference is; 1 if there is any."""
    differing = 0
    for name, rows in ours.items():
        wrong = [step for step, (a, b) in enumerate(zip(rows, theirs[name], strict=True), 1) if a != b]
        if wrong:
            a, b = float.fromhex(rows[wrong[0] - 1][0]), float.fromhex(theirs[name][wrong[0] - 1][0])
            print(f"{name}: DIFFERS from step {wrong[0]} on: loss {a!r} here, {b!r} at {revision}")
        else:
            print(f"{name}: {len(rows)} losses and gradient norms equal to the last bit, last {rows[-1][0]}")
        differing += bool(wrong)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
