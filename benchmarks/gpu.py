"""What one GPU computes, and how fast: numerics first, then tokens a second, MFU and memory beside transformers.

    benchmarks/gpu.sh [--dry-run] [--output benchmarks/results]

Writes gpu-CARD.json and gpu-CARD.md there. Exits with 1 if a numerical check fails. Ours: layers scanned, with
attention by einsum and by cuDNN, and unrolled (with what attention auto takes). The peer is transformers'
T5ForConditionalGeneration through torch.compile with torch's AdamW, bfloat16 by autocast on float32 master weights, as
ours. Without a GPU (--dry-run) XLA computes what cuDNN would, by the same calls.
"""

import argparse
import functools
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from train_step import Worker
from train_step_worker import rehearse_without_cudnn

from spanloom.model.flops import train_flops
from spanloom.model.loss import loss_and_metrics
from spanloom.model.params import T5, declare, flatten, initialize
from spanloom.model.sizes import named
from spanloom.model.t5 import forward
from spanloom.settings.model import Model
from spanloom.settings.run import Loss
from spanloom.training.machine import measured_peak

CONTENDERS = ("einsum", "cudnn", "unrolled", "transformers")
SIZES = (("t5_1_1_base", (64, 512, 114)), ("t5_1_1_large", (32, 512, 114)))
DRY_SIZES = (("byt5_nano", (2, 32, 8)),)
WARM_UP, ROUNDS = 3, 10
Batch = dict[str, np.ndarray]
Row = dict[str, Any]


def main() -> int:
    """Run the checks and the measurements; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="on CPU, with tiny models")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"), help="folder of the results")
    args = parser.parse_args()
    platform = "cpu" if args.dry_run else "cuda"
    jax.config.update("jax_platforms", platform if args.dry_run else "cuda,cpu")
    card = jax.devices(platform)[0].device_kind
    print(f"{card}; jax {jax.__version__}, Python {sys.version.split()[0]}", flush=True)
    if args.dry_run:
        rehearse_without_cudnn()
    size = "byt5_nano" if args.dry_run else "t5_1_1_small"
    checks = [check(named(size)) for check in CHECKS]
    for row in checks:
        print(f"{'ok    ' if row['passed'] else 'FAILED'} {row['check']}: {row['value']:.2e} (<= {row['limit']:.0e})")
    peak = measured_peak("bfloat16")
    print(f"matmul peak, bfloat16: {peak / 1e12:.1f} TFLOP/s", flush=True)
    rows = []
    for model, shape in DRY_SIZES if args.dry_run else SIZES:
        for name in CONTENDERS:
            rows.append(measure(name, model, shape, platform, peak, rounds=2 if args.dry_run else ROUNDS))
            print(line(rows[-1]), flush=True)
    write(args.output, card, {"card": card, "jax": jax.__version__, "checks": checks, "peak": peak, "speed": rows})
    return 0 if all(row["passed"] for row in checks) else 1


def batch_of(config: Model, rows: int = 4, inputs: int = 96, targets: int = 24) -> Batch:
    """Random tokens, (rows, inputs) and (rows, targets), without padding."""
    random = np.random.default_rng(0)
    wanted = random.integers(2, config.vocab_size, (rows, targets), dtype=np.int32)
    return {
        "encoder_input_tokens": random.integers(2, config.vocab_size, (rows, inputs), dtype=np.int32),
        "decoder_target_tokens": wanted,
        "decoder_input_tokens": np.pad(wanted[:, :-1], [(0, 0), (1, 0)]),
    }


def made(config: Model) -> T5:
    tree: T5 = jax.jit(lambda key: initialize(declare(config), key))(jax.random.key(0))
    return tree


def result(check: str, value: float, limit: float) -> Row:
    return {"check": check, "value": float(value), "limit": limit, "passed": bool(value <= limit)}


def largest(a: Any, b: Any) -> float:
    return float(np.max(np.abs(np.asarray(a, np.float32) - np.asarray(b, np.float32))))


def device_equals_cpu(config: Model) -> Row:
    """Logits in full float32 on the device and on the host."""
    params, data = made(config), batch_of(config)
    with jax.default_matmul_precision("highest"):
        there = forward(params, config, data)
        cpu = jax.devices("cpu")[0]
        with jax.default_device(cpu):
            here = forward(jax.device_put(params, cpu), config, data)
    return result("float32 logits, device and host, largest difference", largest(there, here), 2e-4)


def in_one_row(apart: Batch) -> Batch:
    """The examples of a batch packed into one row."""
    rows, inputs = apart["encoder_input_tokens"].shape
    targets = apart["decoder_target_tokens"].shape[1]
    packed = {name: array.reshape(1, -1) for name, array in apart.items()}
    numbers = np.arange(1, rows + 1, dtype=np.int32)[None]
    packed["encoder_segment_ids"] = np.repeat(numbers, inputs, axis=1)
    packed["decoder_segment_ids"] = np.repeat(numbers, targets, axis=1)
    return packed


def packed_equals_apart(config: Model) -> Row:
    """Four examples in one row, with segments, and the same examples apart."""
    params, apart = made(config), batch_of(config)
    packed = in_one_row(apart)
    rows, targets = apart["decoder_target_tokens"].shape
    with jax.default_matmul_precision("highest"):
        logits = forward(params, config, packed).reshape(rows, targets, -1)
        return result(
            "packed and apart, largest difference of logits", largest(logits, forward(params, config, apart)), 2e-4
        )


def bfloat16_is_near(config: Model) -> Row:
    """The loss in bfloat16 and in float32, relative difference; infinite if a gradient is not finite."""
    params, data = made(config), batch_of(config)
    step = jax.jit(jax.value_and_grad(loss_and_metrics, has_aux=True), static_argnums=(1, 2))
    (exact, _), _ = step(params, replace(config, dtype="float32"), Loss(), data)
    (near, _), gradient = step(params, replace(config, dtype="bfloat16"), Loss(), data)
    finite = all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(gradient))
    value = abs(float(near - exact)) / abs(float(exact)) if finite else float("inf")
    return result("bfloat16 and float32 loss, relative difference, gradients finite", value, 1e-2)


def fused_equals_einsum(config: Model, *, packed: bool) -> Row:
    """Gradients of the position tables, cuDNN's against einsum's in bfloat16: the larger relative distance."""
    params, data = made(config), batch_of(config)
    data["encoder_input_tokens"][0, -7:] = 0
    data["decoder_target_tokens"][1, -3:] = 0
    data = in_one_row(data) if packed else data
    step = jax.jit(jax.grad(loss_and_metrics, has_aux=True), static_argnums=(1, 2))

    def tables(attention: Any) -> list[np.ndarray]:
        gradient: T5 = step(params, replace(config, dtype="bfloat16", attention=attention), Loss(), data)[0]
        return [leaf for name, leaf in jax.device_get(flatten(gradient)).items() if name.endswith("rel_embedding")]

    pairs = zip(tables("cudnn"), tables("einsum"), strict=True)
    # Not max: a gradient that is not finite must fail.
    value = float(np.max([np.linalg.norm(mine - other) / np.linalg.norm(other) for mine, other in pairs]))
    rows = "packed" if packed else "padded"
    return result(f"gradient of position tables, {rows} rows, cuDNN and einsum in bfloat16, relative", value, 5e-2)


CHECKS: tuple[Callable[[Model], Row], ...] = (
    device_equals_cpu,
    packed_equals_apart,
    bfloat16_is_near,
    functools.partial(fused_equals_einsum, packed=False),
    functools.partial(fused_equals_einsum, packed=True),
)


def measure(name: str, model: str, shape: tuple[int, int, int], platform: str, peak: float, *, rounds: int) -> Row:
    """One contender: median seconds of a step after a warm-up, in bfloat16."""
    worker = Worker(name, "bfloat16", shape, model=model, platform=platform)
    seconds = [worker.ask("step")["seconds"] for _ in range(WARM_UP + rounds)][WARM_UP:]
    memory = worker.ask("memory")["peak_gib"]
    worker.close()
    median = statistics.median(seconds)
    batch_size, inputs, targets = shape
    return {
        "model": model,
        "shape": f"{batch_size} x {inputs}/{targets}",
        "contender": name,
        "seconds": median,
        "tokens_per_s": batch_size * (inputs + targets) / median,
        "mfu": train_flops(named(model), *shape) / median / peak,
        "peak_gib": memory,
        "compile_s": worker.about.get("trace_s", 0.0) + worker.about.get("compile_s", 0.0),
    }


COLUMNS = ("model", "shape", "contender", "tokens/s", "ms a step", "MFU", "peak GiB", "compile s")
HEADER = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|"


def line(row: Row) -> str:
    return (
        f"| {row['model']} | {row['shape']} | {row['contender']} | {row['tokens_per_s']:,.0f} | "
        f"{1000 * row['seconds']:.1f} | {row['mfu']:.0%} | {row['peak_gib']:.2f} | {row['compile_s']:.1f} |"
    )


def write(folder: Path, card: str, results: Row) -> None:
    """The results as JSON and as a table, under the card's name."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"gpu-{'-'.join(card.lower().split())}"
    stem.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")
    checks = "\n".join(
        f"- {row['check']}: {row['value']:.2e} (at most {row['limit']:.0e})" for row in results["checks"]
    )
    table = "\n".join([HEADER, *map(line, results["speed"])])
    about = (
        f"bfloat16, jax {results['jax']}; MFU against the measured matmul peak, {results['peak'] / 1e12:.1f} TFLOP/s."
    )
    stem.with_suffix(".md").write_text(f"# {card}\n\n{about}\n\n{checks}\n\n{table}\n")


if __name__ == "__main__":
    sys.exit(main())
