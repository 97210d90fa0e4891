"""What a training step costs a TPU, beside T5X: FLOPs, bytes and temporaries, compiled ahead of time on any machine.

    .venv/bin/python benchmarks/tpu.py [--cases base-v4 ...] [--remat none cheap] [--from-depths 2 4] [--output FILE]

Needs libtpu, TPU's compiler, and no TPU: pip install 'spanloom[tpu]'. T5X's figures are of its own training step (no
rematerialisation), lowered with jax 0.10.2 and compiled by libtpu 0.0.42, which is what to compare with:
pip install libtpu==0.0.42. Both: float32 masters, bfloat16 compute, Adafactor, data parallel, 512/114, no dropout,
layers unrolled. Per device; loops (ours are the loss's chunks) counted as often as they run. A small model compiles in
2 minutes of one core, base in 5, large in 15, and for a v4 in several times as many: --from-depths compiles it with so
few layers, twice, and adds as many FLOPs and bytes for every further layer as lie between the two. Exit status 1 if a
goal is missed.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from spanloom.model.sizes import named

LENGTHS = {"encoder": 512, "decoder": 114}
RECOMMENDED = "cheap"
THEIRS = "0.0.42"


@dataclass(frozen=True)
class Cost:
    """Of one device."""

    tflop: float
    gb: float
    """Bytes accessed, in 10**9."""
    gib: float
    """Temporaries, in 2**30 bytes."""


@dataclass(frozen=True)
class Case:
    """A model on a TPU topology."""

    model: str
    topology: str
    batch_size: int
    t5x: Cost | None = None
    flops: float = 1.0
    """Share of T5X's FLOPs that ours may be at most: its own less its one-hot embedding."""


CASES = {
    "tiny": Case("byt5_nano", "v5e:2x2", 8),
    "small-v5e": Case("t5_1_1_small", "v5e:2x2", 128, Cost(4.78, 70.4, 3.62), 0.75),
    "base-v5e": Case("t5_1_1_base", "v5e:2x2", 128, Cost(15.77, 147.0, 8.80), 0.89),
    "base-v4": Case("t5_1_1_base", "v4:2x2x1", 128, Cost(7.89, 83.5, 4.75), 0.89),
    "large-v4": Case("t5_1_1_large", "v4:2x2x1", 64, Cost(12.53, 158.3, 6.75), 0.97),
}
BYTES, TEMPORARIES, REMAT_TEMPORARIES, REMAT_FLOPS = 0.9, 1.0, 0.55, 1.1
"""Goals: shares of T5X's bytes and temporaries, without and with rematerialisation, and of our own FLOPs without."""

COLUMNS = ("case", "remat", "TFLOP", "T5X", "ratio", "GB", "T5X", "ratio", "GiB temp.", "T5X", "ratio", "compile s")
Row = dict[str, Any]


def measure(name: str, remat: str, layers: int | None = None) -> Row:
    """Compiles one case, of so many layers in either stack if not of its own: what it costs."""
    from spanloom.scale.libtpu import prepare_libtpu

    prepare_libtpu()
    import jax
    from jax.experimental import topologies

    from spanloom.scale.compiled import compile_and_look
    from spanloom.scale.mesh import make_layout
    from spanloom.settings.run import Run
    from spanloom.settings.task import Task, TextFiles
    from spanloom.training.abstract import lower_step

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_compilation_cache", False)
    case = CASES[name]
    model = named(case.model, dtype="bfloat16", scan_layers=False, remat=remat)
    if layers:
        model = replace(model, num_encoder_layers=layers, num_decoder_layers=layers)
    run = Run(name=name, task=Task("none", TextFiles(("none",))), model=model, batch_size=case.batch_size)
    devices = topologies.get_topology_desc(platform="tpu", topology_name=case.topology).devices
    seen = compile_and_look(lower_step(run, LENGTHS, make_layout(run.mesh, devices)))
    assert seen.memory is not None
    assert not seen.unknown_loops
    return {
        "case": name,
        "remat": remat,
        "devices": len(devices),
        "layers": model.num_encoder_layers,
        "tflop": seen.cost.flops / 1e12,
        "gb": seen.cost.bytes / 1e9,
        "gib": seen.memory.temporaries / 2**30,
        "compile_s": seen.seconds,
    }


def extrapolated(few: Row, more: Row, layers: int) -> Row:
    """What a case costs with so many layers, as two depths of it say: not in memory, for what takes most of it may be
    the layers in the one, and the optimizer's step in the other.
    """
    times = (layers - few["layers"]) / (more["layers"] - few["layers"])
    costs = {key: few[key] + times * (more[key] - few[key]) for key in ("tflop", "gb")}
    return {**more, **costs, "gib": None, "layers": layers, "from_depths": [few, more]}


def row_of(name: str, remat: str, depths: Sequence[int]) -> Row:
    """What a case costs: compiled as it is, or from two depths of it."""
    if not depths:
        return measure(name, remat)
    few, more = (measure(name, remat, depth) for depth in depths)
    return extrapolated(few, more, named(CASES[name].model).num_encoder_layers)


def goals(row: Row, kept: Row | None) -> Iterator[tuple[str, float, float]]:
    """What is asked of a row: name, value, and what it may be at most. `kept` is the row without rematerialisation."""
    case = CASES[row["case"]]
    if case.t5x is None:
        return
    if row["remat"] == "none":
        yield "FLOPs of T5X's", row["tflop"] / case.t5x.tflop, case.flops
        yield "bytes of T5X's", row["gb"] / case.t5x.gb, BYTES
    if row["gib"] is not None and row["remat"] in ("none", RECOMMENDED):
        most = TEMPORARIES if row["remat"] == "none" else REMAT_TEMPORARIES
        yield "temporaries of T5X's", row["gib"] / case.t5x.gib, most
    if row["remat"] == RECOMMENDED and kept:
        yield "FLOPs of our own without", row["tflop"] / kept["tflop"], REMAT_FLOPS


def markdown(rows: list[Row]) -> str:
    """The rows as a table beside T5X's figures."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    for row in rows:
        t5x = CASES[row["case"]].t5x
        cells = [row["case"], row["remat"]]
        for key, digits in (("tflop", 2), ("gb", 1), ("gib", 2)):
            theirs = None if t5x is None else getattr(t5x, key)
            ours = row[key]
            ratio = ["-", "-"] if theirs is None or ours is None else [f"{theirs:.{digits}f}", f"{ours / theirs:.2f}"]
            cells += ["-" if ours is None else f"{ours:.{digits}f}", *ratio]
        cells.append(f"{row['compile_s']:.0f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Compile and compare; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measured = [name for name, case in CASES.items() if case.t5x]
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=measured)
    parser.add_argument("--remat", nargs="+", default=["none", RECOMMENDED], help="policies of model.remat")
    parser.add_argument(
        "--from-depths", nargs=2, type=int, default=(), metavar="LAYERS", help="compile two such depths"
    )
    parser.add_argument("--output", type=Path, help="also write the rows as JSON, after each")
    args = parser.parse_args()
    try:
        libtpu = version("libtpu")
    except PackageNotFoundError:
        print("no TPU compiler here: pip install 'spanloom[tpu]' (no TPU is needed)", file=sys.stderr)
        return 2
    print(f"libtpu {libtpu}; T5X's figures are of libtpu {THEIRS}", flush=True)
    rows: list[Row] = []
    missed = 0
    for name in args.cases:
        for remat in args.remat:
            rows.append({**row_of(name, remat, args.from_depths), "libtpu": libtpu})
            kept = next((row for row in rows if row["case"] == name and row["remat"] == "none"), None)
            for what, value, most in goals(rows[-1], kept):
                missed += value > most
                print(f"{'MISSED' if value > most else 'ok    '} {name} {remat}: {value:.3f} {what} (<= {most})")
            if args.output:
                args.output.write_text(json.dumps(rows, indent=1) + "\n")
    print("\n" + markdown(rows))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
