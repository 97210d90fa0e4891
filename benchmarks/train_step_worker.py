"""One contender of benchmarks/train_step.py or gpu.py in a process of its own, so that its peak memory is its own.

    train_step_worker.py CONTENDER DTYPE BATCH ENCODER_LENGTH DECODER_LENGTH [MODEL]

CONTENDER is transformers, or one of OURS: this package's training step with some settings of its model.
Computes on the GPU where the libraries find one. Reads commands from stdin, answers on stdout, one JSON object a line:
`step` runs one training step, `memory` says the peak so far, `peak` measures the machine's matmul speed, an empty line
ends it. The first answer says how long compiling took.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Step = Callable[[], float]

OURS: dict[str, dict[str, Any]] = {
    "scanned": {},
    "unrolled": {"scan_layers": False},
    "einsum": {"attention": "einsum"},
    "cudnn": {"attention": "cudnn"},
}


def make_batch(vocab_size: int, batch_size: int, encoder_length: int, decoder_length: int) -> dict[str, np.ndarray]:
    """Random tokens without padding, the same for every contender."""
    random = np.random.default_rng(0)
    highest = min(vocab_size, 32100)  # T5's ids; the rest of its embedding is padding
    targets = random.integers(2, highest, (batch_size, decoder_length), dtype=np.int32)
    return {
        "encoder_input_tokens": random.integers(2, highest, (batch_size, encoder_length), dtype=np.int32),
        "decoder_target_tokens": targets,
        "decoder_input_tokens": np.pad(targets[:, :-1], [(0, 0), (1, 0)]),
        "decoder_loss_weights": np.ones_like(targets),
    }


def rehearse_without_cudnn() -> None:
    """Has what would be cuDNN's computed by XLA: the same calls on a machine without a GPU."""
    import functools

    from spanloom.model import fused_attention, layers

    layers.fused_attention = functools.partial(fused_attention.fused_attention, implementation="xla")  # type: ignore[attr-defined]


def spanloom_contender(
    model: str, shape: tuple[int, int, int], settings: dict[str, Any], dtype: str
) -> tuple[Step, dict[str, Any]]:
    """The training step as `spanloom train` runs it: Adafactor, T5's schedule, donated state, all its metrics."""
    import jax

    from spanloom.model.params import declare, initialize
    from spanloom.model.sizes import named
    from spanloom.optim.build import build, learning_rate
    from spanloom.settings.optimizer import Adafactor, Rsqrt
    from spanloom.settings.run import Loss
    from spanloom.training.memory import return_freed_memory
    from spanloom.training.state import fresh_state
    from spanloom.training.step import make_train_step

    if jax.default_backend() == "cpu":
        rehearse_without_cudnn()
    config = named(model, dtype=dtype, **settings)
    specs = declare(config)
    optimizer = build(Adafactor(), Rsqrt(), specs)
    params = jax.jit(lambda key: initialize(specs, key))(jax.random.key(0))
    state = fresh_state(params, optimizer)
    del params
    batch = jax.device_put(make_batch(config.vocab_size, *shape))
    step = make_train_step(config, Loss(), optimizer, learning_rate(Adafactor(), Rsqrt()))
    started, cpu = time.perf_counter(), time.process_time()
    lowered = step.lower(state, batch)
    traced = time.perf_counter()
    compiled = lowered.compile()
    done = time.perf_counter()
    return_freed_memory()  # as spanloom train does
    memory = compiled.memory_analysis()
    about = {
        "trace_s": traced - started,
        "compile_s": done - traced,
        "compile_cpu_s": time.process_time() - cpu,
        "temporary_gib": memory.temp_size_in_bytes / 2**30 if memory else None,
    }

    def run() -> float:
        nonlocal state
        state, metrics = compiled(state, batch)
        return float(metrics["loss"])

    return run, about


def transformers_contender(name: str, shape: tuple[int, int, int], dtype: str) -> tuple[Step, dict[str, Any]]:
    """The same architecture as transformers' T5ForConditionalGeneration, torch's AdamW; bfloat16 by autocast.

    On a GPU through torch.compile, which is its fastest there.
    """
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    from spanloom.conversion.hf_config import to_config
    from spanloom.model.sizes import named

    torch.manual_seed(0)
    config = T5Config.from_dict(to_config(named(name), "T5Tokenizer", eos_id=1) | {"dropout_rate": 0.0})
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = T5ForConditionalGeneration(config).to(device)
    model.train()
    called = torch.compile(model) if device == "cuda" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = make_batch(config.vocab_size, *shape)
    inputs = torch.from_numpy(batch["encoder_input_tokens"]).long().to(device)
    targets = torch.from_numpy(batch["decoder_target_tokens"]).long().to(device)

    def run() -> float:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = called(input_ids=inputs, labels=targets).loss
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return run, {}


def memory_gib() -> float:
    """Largest memory so far, of the GPU where the contender computes there, resident memory of the process else."""
    if (torch := sys.modules.get("torch")) and torch.cuda.is_available():
        return float(torch.cuda.max_memory_allocated()) / 2**30
    if (jax := sys.modules.get("jax")) and (stats := jax.local_devices()[0].memory_stats()):
        return float(stats["peak_bytes_in_use"]) / 2**30
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 2**20
    raise RuntimeError("no VmHWM in /proc/self/status; this benchmark needs Linux")


def timed(step: Step) -> dict[str, float]:
    started, cpu = time.perf_counter(), time.process_time()
    loss = step()
    return {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu, "loss": loss}


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def matmul_peak(dtype: Any) -> dict[str, float]:
    from spanloom.training.machine import measured_peak

    return {"flops_per_s": measured_peak(dtype)}


def main() -> None:
    name, dtype, *numbers = sys.argv[1:]
    if name in OURS:
        from spanloom.training.memory import use_huge_pages

        use_huge_pages()  # as spanloom train does, first of all
    if name == "machine":
        say({})
    else:
        shape = (int(numbers[0]), int(numbers[1]), int(numbers[2]))
        model = numbers[3] if len(numbers) > 3 else "t5_1_1_small"
        if name == "transformers":
            step, about = transformers_contender(model, shape, dtype)
        else:
            step, about = spanloom_contender(model, shape, OURS[name], dtype)
        say(about)
    for line in sys.stdin:
        match line.strip():
            case "step":
                say(timed(step))
            case "memory":
                say({"peak_gib": memory_gib()})
            case "peak":
                say(matmul_peak(dtype))
            case _:
                break


if __name__ == "__main__":
    main()
