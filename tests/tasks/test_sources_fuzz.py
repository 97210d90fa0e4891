"""Damaged files of every kind: they give examples or a BadInputError, never another exception, and never in silence."""

import bz2
import gzip
import io
import json
import lzma
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from spanloom.settings.task import PairFiles, TextFiles
from spanloom.tasks import compression
from spanloom.tasks.read_report import BadInputError, Intake, ReadReport
from spanloom.tasks.sources import read_examples
from spanloom.tasks.text_lines import TextFile

ROWS = [(f"inputs {n} ö", f"targets, {n}" * (n % 3)) for n in range(300)]


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"inputs": [row[0] for row in ROWS], "targets": [row[1] for row in ROWS]}), sink)
    return sink.getvalue()


WHOLE = {
    "a.txt": "\n".join(row[0] for row in ROWS).encode(),
    "a.jsonl": "\n".join(json.dumps({"inputs": i, "targets": t}) for i, t in ROWS).encode(),
    "a.csv": ("inputs,targets\n" + "\n".join(f'{i},"{t}"' for i, t in ROWS)).encode(),
    "a.tsv": ("inputs\ttargets\n" + "\n".join(f"{i}\t{t}" for i, t in ROWS)).encode(),
    "a.parquet": parquet(),
}
PACK = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
PACK[".zst"] = lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data)


def damage(data: bytes, rng: random.Random) -> bytes:
    harmed = bytearray(data)
    kind = rng.randrange(4)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(harmed))
        if kind == 0:
            harmed[place] = rng.randrange(256)
        elif kind == 1:
            harmed[place:place] = rng.randbytes(rng.randint(1, 9))
        elif kind == 2:
            del harmed[place : place + rng.randint(1, 50)]
        else:
            harmed[place] = rng.choice(b'\n\r\t",\\\0{}\xff\xc3')
    return bytes(harmed)


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("ending", PACK)
def test_damaged_files(tmp_path, name, ending):
    if name == "a.parquet" and ending:
        pytest.skip("parquet has its own compression")
    rng = random.Random(f"{name}{ending}")
    path = tmp_path / (name + ending)
    if name == "a.txt":
        sources = [TextFiles((str(path),), errors=mode) for mode in ("strict", "replace", "skip")]
    else:
        sources = [PairFiles((str(path),), errors=mode) for mode in ("strict", "replace", "skip")]
    for _ in range(60):
        path.write_bytes(damage(PACK[ending](WHOLE[name]), rng))
        for source in sources:
            report = ReadReport()
            count, error = outcome(source, report)
            if error:
                assert path.name in error
                # skipping goes on; it ends only where nothing was left at all
                assert source.errors != "skip" or "no document to train on" in error
            else:
                assert count == report.documents
                assert report.describe()


def outcome(source, report):
    try:
        return len(list(read_examples(source, "train", report))), ""
    except BadInputError as error:
        return 0, str(error)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "cp1252"])
@pytest.mark.parametrize("errors", ["replace", "skip"])
def test_damaged_text_is_the_same_whatever_the_block_sizes(tmp_path, encoding, errors):
    rng = random.Random(encoding)
    text = "".join(rng.choice("ab \r\n\n" + ("" if encoding == "cp1252" else "Ł\U0001f600")) for _ in range(8000))
    path = tmp_path / "a.txt"
    for _ in range(5):
        path.write_bytes(damage(text.encode(encoding), rng))
        results = []
        for size in (1, 5, 100, compression.BLOCK):
            intake = Intake(ReadReport(), errors, encoding)
            file = TextFile(str(path), intake, size)
            texts = [text for block in file.line_blocks() for batch in file.decode_block(block) for _, text in batch]
            results.append((texts, intake.report))
            file = TextFile(str(path), Intake(ReadReport(), errors, encoding), size)
            encoded = [text for block in file.line_blocks() for batch in file.utf8_texts(block) for text in batch]
            assert encoded == [text.encode() for text in texts]
        assert all(result == results[0] for result in results)
