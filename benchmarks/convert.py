"""How long a conversion takes, against a copy of the same file by safetensors itself, and how much memory.

    .venv/bin/python benchmarks/convert.py [--width 2048] [--layers 6] [--rounds 3] [--dtype float32] [--json FILE]

A Hugging Face folder of random weights is made (by default 0.9 billion of them, 3.6 GB), and then, in turn and as often
as --rounds says, copied by safetensors (load_file, save_file, and a flush to disk, which conversions do, too) and
converted to each format: written, every weight read back and compared, and log-probabilities of source and result
computed layer by layer. Every one runs in a process of its own, whose peak memory is told with the time. The median of
the rounds counts; imports and Python's start do not. CPU seconds, of all threads, are told beside.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

WAYS = ("safetensors", "hf", "spanloom", "t5x")

_WORKER = """
import json, os, sys, time
from pathlib import Path

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024

from spanloom.training.memory import use_huge_pages

way, source, out, dtype = sys.argv[1:]
if way != "safetensors":
    use_huge_pages()  # as spanloom convert does, first of all
spent = {}
if way == "safetensors":
    from safetensors.numpy import load_file, save_file
    before, begun, processor = peak(), time.perf_counter(), time.process_time()
    Path(out).mkdir()
    save_file(load_file(f"{source}/model.safetensors"), f"{out}/model.safetensors", metadata={"format": "pt"})
    spent["unflushed"] = time.perf_counter() - begun
    with open(f"{out}/model.safetensors", "rb") as file:
        os.fsync(file.fileno())
else:
    import contextlib
    from spanloom.conversion.convert import HUGGING_FACE, convert
    from spanloom.conversion.t5x_write import T5X
    from spanloom.training.converted import SPANLOOM
    from spanloom.training.read_model import open_model
    import jax
    jax.devices()

    @contextlib.contextmanager
    def watch(what, total):
        begun = time.process_time()
        yield lambda count: None
        spent[what] = time.process_time() - begun

    before, begun, processor = peak(), time.perf_counter(), time.process_time()
    form = {"hf": HUGGING_FACE, "spanloom": SPANLOOM, "t5x": T5X}[way]
    convert(open_model(Path(source)), out, form, dtype=dtype, watch=watch)
spent["seconds"], spent["cpu_seconds"] = time.perf_counter() - begun, time.process_time() - processor
print(json.dumps({**spent, "peak_mib": peak() - before}))
"""


def make(folder: Path, width: int, layers: int, dtype: str) -> int:
    """A Hugging Face folder of random weights; how many there are."""
    from spanloom.conversion import hf_config, hf_names
    from spanloom.conversion.safetensors_write import Tensor, write_file
    from spanloom.conversion.weights import cast
    from spanloom.settings.model import Model

    model = Model(384, width, 4 * width, 16, width // 16, num_encoder_layers=layers, num_decoder_layers=layers)
    folder.mkdir()
    draw = np.random.default_rng(0)

    def tensor(name: str, shape: tuple[int, ...]) -> Tensor:
        scale = 1.0 if len(shape) == 1 else shape[-1] ** -0.5
        return Tensor(name, dtype, shape, lambda: cast(scale * draw.standard_normal(shape, np.float32), dtype))

    tensors = [tensor(one.name, one.shape) for one in hf_names.tensors(model)]
    write_file(folder / "model.safetensors", tensors, {"format": "pt"}, lambda count: None)
    (folder / "config.json").write_text(json.dumps(hf_config.to_config(model, "ByT5Tokenizer", 1)))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "ByT5Tokenizer", "extra_ids": 125}))
    return sum(int(np.prod(one.shape)) for one in tensors)


def measured(way: str, source: Path, work: Path, dtype: str) -> dict[str, float]:
    """One conversion, or copy, in a process of its own."""
    out = work / "out"
    shutil.rmtree(out, ignore_errors=True)
    root = str(Path(__file__).resolve().parent.parent)
    environment = {**os.environ, "PYTHONPATH": root, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", _WORKER, way, str(source), str(out), dtype]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    if ended.returncode:
        raise SystemExit(ended.stderr)
    shutil.rmtree(out)
    result: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=6, help="of each stack")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of source and result")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--work", type=Path, help="folder for the files, removed at the end; unset: a temporary one")
    parser.add_argument("--json", type=Path, help="file for the figures")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.work) as made:
        work = Path(made)
        params = make(work / "source", chosen.width, chosen.layers, chosen.dtype)
        size = (work / "source" / "model.safetensors").stat().st_size
        rounds = [
            {way: measured(way, work / "source", work, chosen.dtype) for way in chosen.ways}
            for _ in range(chosen.rounds)
        ]
    print(f"{params:,} parameters, {chosen.dtype}, {size / 2**20:,.0f} MiB; median of {chosen.rounds}")
    print("| | seconds | x | CPU seconds | x | to write | to compare | peak MiB |\n|---|---|---|---|---|---|---|---|")
    figures = []
    for way in chosen.ways:
        middle = {key: statistics.median(one[way][key] for one in rounds) for key in rounds[0][way]}
        base = chosen.ways[0]
        ratios = {
            f"{key}_ratio": statistics.median(one[way][key] / one[base][key] for one in rounds)
            for key in ("seconds", "cpu_seconds")
        }
        figures.append({"way": way, **middle, **ratios})
        wall, cpu = (f"{middle[key]:.1f} | {ratios[f'{key}_ratio']:.2f}" for key in ("seconds", "cpu_seconds"))
        written, compared = (f"{middle.get(f'numbers {what}', 0):.1f}" for what in ("written", "compared"))
        print(f"| {way} | {wall} | {cpu} | {written} | {compared} | {middle['peak_mib']:,.0f} |")
    if chosen.json:
        whole = {"parameters": params, "dtype": chosen.dtype, "bytes": size, "rounds": chosen.rounds, "ways": figures}
        chosen.json.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main()
