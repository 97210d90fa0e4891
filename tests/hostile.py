"""Every file of a checkpoint made hostile in turn: lost, cut, flipped, another kind of thing, absurd values in JSON."""

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 3, 2**31, 2**63, 2**70, 1.5, 1e308, float("nan"), "", "x", "../../../etc/passwd", "/etc/passwd",
    "a\x00b", "\ud800", [], [1], [[]], {}, {"a": 1}, "x" * 100_000, [0] * 10_000,
)  # fmt: skip


def variants(content: bytes, draw: random.Random, count: int) -> Iterator[tuple[str, bytes]]:
    """So many damaged forms of a file, each with what was done."""
    size = len(content)
    cuts = [
        ("empty", b""),
        *((f"cut at {at}", content[:at]) for at in sorted({1, 8, size // 2, size - 1}) if at < size),
    ]
    yield from draw.sample(cuts, min(len(cuts), max(1, count // 3)))
    for _ in range(max(1, count // 3)):
        flipped = bytearray(content or b"x")
        at = draw.randrange(len(flipped))
        flipped[at] ^= 1 << draw.randrange(8)
        yield f"flipped at {at}", bytes(flipped)
    try:
        tree = json.loads(content)
    except ValueError:
        for value in draw.sample((b"\x00", b"\xff", b"\x7f\xff\xff\xff", b"\xff" * 8), 2):
            at = draw.randrange(max(1, size))
            yield f"{value.hex()} at {at}", content[:at] + value + content[at + len(value) :]
        return
    yield "deep", b"[" * 100_000
    yield "another kind", json.dumps(draw.choice(_VALUES)).encode()
    places = list(_places(tree, ()))
    for _ in range(count):
        place, value = draw.choice(places), draw.choice(_VALUES)
        yield f"{'/'.join(map(str, place))} = {str(value)[:30]!r}", json.dumps(_put(tree, place, value)).encode()


def _places(tree: Any, above: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    yield above
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree[:50]) if isinstance(tree, list) else ()
    for key, value in entries:
        yield from _places(value, (*above, key))


def _put(tree: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[place[0]] = _put(copy[place[0]], place[1:], value)
    return copy


def damaged_copies(
    folder: Path, work: Path, *, seed: int, count: int, most_files: int = 1000
) -> Iterator[tuple[str, Path]]:
    """The folder with one of its files hostile, `count` times or so for each; the same place every time."""
    draw = random.Random(seed)
    place = work / "damaged"
    shutil.copytree(folder, place)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for file in draw.sample(files, min(most_files, len(files))):
        name = file.relative_to(folder)
        content = file.read_bytes()
        for how, other in variants(content, draw, count):
            (place / name).write_bytes(other)
            yield f"{name}: {how}", place
        (place / name).unlink()
        yield f"{name}: lost", place
        (place / name).mkdir()
        yield f"{name}: a folder", place
        (place / name).rmdir()
        (place / name).symlink_to("nowhere")
        yield f"{name}: a link to nowhere", place
        (place / name).unlink()
        (place / name).symlink_to("/dev/zero" if draw.random() < 0.5 else name.name)
        yield f"{name}: a link to a device or to itself", place
        (place / name).unlink()
        (place / name).write_bytes(content)
