import pytest
import task_functions as own

from spanloom.settings.objectives import Supervised
from spanloom.settings.row_sources import RowFiles
from spanloom.settings.task import PairFiles, Task
from spanloom.tasks.read_report import ReadReport
from spanloom.tasks.rows import ROW, unpack_row
from spanloom.tasks.sources import read_parts
from spanloom.tasks.task_rows import read_task

pytestmark = pytest.mark.short


def read(task):
    reports = {"train": ReadReport(), "heldout": ReadReport()}
    found = {"train": [], "heldout": []}
    for split, documents in read_task(task, reports):
        found[split] += map(unpack_row, documents[ROW])
    return found, reports


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("inputs\ttargets\tmore\n" + "".join(f"in {i // 2}\tout {i}\t{i}\n" for i in range(200)))
    return str(path)


def test_a_sources_documents_are_rows_in_the_parts_they_were_in(file):
    source = PairFiles((file,), heldout_share=0.2)
    found, reports = read(Task("t", source, objective=Supervised(), preprocessors=(own.prefixed,)))
    for split, documents in read_parts(source, {"train": ReadReport(), "heldout": ReadReport()}):
        for inputs, targets in zip(documents["inputs"], documents["targets"], strict=True):
            assert {"inputs": inputs.decode(), "targets": targets.decode()} in found[split]
    assert sum(map(len, found.values())) == 200 and len(found["heldout"]) > 10
    assert not {row["inputs"] for row in found["train"]} & {row["inputs"] for row in found["heldout"]}
    assert reports["train"].noun == "pair"


def test_rows_of_files_have_every_column(file):
    found, reports = read(Task("t", RowFiles((file,), heldout_share=0.2), objective=Supervised()))
    assert {*found["train"][0]} == {"inputs", "targets", "more"}
    assert sum(map(len, found.values())) == 200
    assert reports["train"].documents == len(found["train"]) and reports["train"].noun == "row"
    assert reports["train"].nul_characters == 0
    assert reports["train"].describe().startswith(f"{len(found['train'])} rows, ")


def test_documents_without_preprocessors_stay_text(file):
    task = Task("t", PairFiles((file,)), objective=Supervised())
    assert all({*documents} == {"inputs", "targets"} for _, documents in read_task(task, {"train": ReadReport()}))


def test_repeated_rows_are_in_neither_part_twice(file):
    found, reports = read(
        Task("t", RowFiles((file,), heldout_share=0.2), objective=Supervised(), deduplicate=("inputs",))
    )
    inputs = [row["inputs"] for rows in found.values() for row in rows]
    assert len(inputs) == len(set(inputs)) == 100
    assert reports["train"].skipped == {"repeated": 100}
