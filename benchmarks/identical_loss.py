"""Does this tree compute the very same losses as another revision? The proof that a refactor changes nothing.

    .venv/bin/python benchmarks/identical_loss.py [REVISION] [--steps 20] [--cases CASE ...]

Trains a small fixed model on fixed synthetic data, scanned and unrolled, packed and with dropout, in this tree and in
a worktree of REVISION (default HEAD, that is: without what is uncommitted), and compares every loss and gradient norm
bit for bit. Exit status 0 if all are identical, 1 if not. Both run on this machine with the same packages: others of
XLA, another CPU or another number of cores may round differently.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Runs inside either tree, so it uses nothing but the interfaces that stay.
TRAIN = """
import dataclasses, json, sys
import jax, numpy as np
from spanloom.model.params import declare, initialize
from spanloom.optim.build import build, learning_rate
from spanloom.settings.model import Model
from spanloom.settings.optimizer import Adafactor, Rsqrt
from spanloom.settings.run import Loss
from spanloom.training.state import fresh_state
from spanloom.training.step import make_train_step

STEPS, CHOSEN = int(sys.argv[1]), sys.argv[2:]
BASE = Model(vocab_size=384, d_model=64, d_ff=160, num_heads=4, d_kv=16, num_encoder_layers=2, num_decoder_layers=2)
CASES = {
    "scanned": (BASE, False),
    "unrolled": (dataclasses.replace(BASE, scan_layers=False), False),
    "packed": (BASE, True),
    "dropout": (dataclasses.replace(BASE, dropout=0.1), False),
    "t5_1_0": (dataclasses.replace(BASE, tie_embeddings=True, activations=("relu",)), False),
    "umt5": (dataclasses.replace(BASE, per_layer_position_bias=True), True),
    "bfloat16": (dataclasses.replace(BASE, dtype="bfloat16"), False),
    "remat": (dataclasses.replace(BASE, scan_layers=False, remat="cheap", dropout=0.1), True),
}

def batch(step, packed):
    random = np.random.default_rng([7, step])
    inputs, targets = (random.integers(3, 259, (4, n), dtype=np.int32) for n in (48, 20))
    inputs[1, 40:], targets[2, 15:] = 0, 0
    fields = {
        "encoder_input_tokens": inputs,
        "decoder_target_tokens": targets,
        "decoder_input_tokens": np.pad(targets[:, :-1], [(0, 0), (1, 0)]),
        "decoder_loss_weights": (targets > 0).astype(np.int32),
    }
    if packed:
        fields["encoder_segment_ids"] = ((np.arange(48) // 24 + 1) * (inputs > 0)).astype(np.int32)
        fields["decoder_segment_ids"] = ((np.arange(20) // 10 + 1) * (targets > 0)).astype(np.int32)
    return fields

result = {}
for name, (model, packed) in ((name, CASES[name]) for name in CHOSEN or CASES):
    specs = declare(model)
    optimizer = build(Adafactor(), Rsqrt(warmup_steps=100), specs)
    state = fresh_state(jax.jit(lambda key: initialize(specs, key))(jax.random.key(0)), optimizer)
    step = make_train_step(model, Loss(), optimizer, learning_rate(Adafactor(), Rsqrt(warmup_steps=100)), seed=0)
    rows = []
    for number in range(STEPS):
        state, metrics = step(state, batch(number, packed))
        rows.append([float(metrics["loss"]).hex(), float(metrics["grad_norm"]).hex()])
    result[name] = rows
print(json.dumps(result))
"""

Losses = dict[str, list[list[str]]]


def train(tree: Path, steps: int, cases: list[str]) -> Losses:
    """Loss and gradient norm of every step of the cases (all, if none is named), as hexadecimal floats."""
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(tree), "JAX_ENABLE_COMPILATION_CACHE": "false"}
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, str(steps), *cases], cwd=tree, env=env, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise SystemExit(f"training in {tree} failed; its error is above")
    losses: Losses = json.loads(done.stdout)
    return losses


def differences(ours: Losses, theirs: Losses) -> list[str]:
    """One line for each case that differs: the first step, and both values."""
    lines = []
    for case in ours:
        for step, (mine, other) in enumerate(zip(ours[case], theirs.get(case, []), strict=True)):
            if mine != other:
                pairs = [
                    f"{name} {float.fromhex(a)!r} here, {float.fromhex(b)!r} there"
                    for name, a, b in zip(("loss", "gradient norm"), mine, other, strict=True)
                    if a != b
                ]
                lines.append(f"{case}: differs from step {step} on: {'; '.join(pairs)}")
                break
    return lines


def git(*argv: str) -> str:
    return subprocess.run(["git", *argv], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def compare_with(revision: str, steps: int, cases: list[str]) -> list[str]:
    """Train in a worktree of `revision` and here; returns what differs."""
    with tempfile.TemporaryDirectory(prefix="identical_loss_") as folder:
        tree = Path(folder) / "tree"
        git("worktree", "add", "--detach", str(tree), revision)
        try:
            theirs = train(tree, steps, cases)
        finally:
            git("worktree", "remove", "--force", str(tree))
    return differences(train(ROOT, steps, cases), theirs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", nargs="?", default="HEAD")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--cases", nargs="+", default=[], help="of the models below CASES; all unless named")
    args = parser.parse_args()
    commit = git("rev-parse", "--short", args.revision)
    found = compare_with(args.revision, args.steps, args.cases)
    print("\n".join(found) or f"identical to {commit}: every loss and gradient norm of {args.steps} steps, bit for bit")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
