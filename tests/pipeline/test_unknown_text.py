import pytest
from golden_data import shared_dir
from pipeline_data import pair_task, text_task, tiny_run

from spanloom.pipeline.data import open_data
from spanloom.pipeline.unknown_text import missing_characters
from spanloom.settings.vocabulary import Bytes, SentencePiece
from spanloom.vocabularies.build import build

ENGLISH = "the ship said a quite long tale of the sea and of those who sailed it"


@pytest.fixture
def t5():
    return SentencePiece(str(shared_dir("data", "tokenizers", "t5", "spiece.model")))


def warnings_of(task, directory) -> list[str]:
    said = []
    open_data(tiny_run(task, vocab_size=32128), directory, warn=said.append)
    return said


def test_the_commonest_characters_come_first(t5):
    texts = ["å å ö ö ö, the sea", "水 水 水 å å ö ö ä č", ENGLISH]  # T5's vocabulary has ö and ä, as German does
    assert missing_characters(build(t5), texts) == [*"å水č"]
    assert missing_characters(build(Bytes()), texts) == []


@pytest.mark.parametrize(("every", "warned"), [(25, False), (5, True)])
def test_half_a_percent_of_unknown_text_is_said(tmp_path, write_texts, t5, every, warned):
    texts = [ENGLISH + (" båt" if number % every == 0 else "") + f" {number}" for number in range(200)]
    said = warnings_of(text_task(write_texts(texts), vocabulary=t5), tmp_path)
    expected = (
        "0.9% of the tokens of task 'text' are unknown to its vocabulary (the commonest: å) and cannot be learned"
    )
    assert [text.rsplit(":", 1)[0] for text in said] == [expected] * warned


def test_each_side_of_pairs_is_judged_by_its_own_text(tmp_path, write_pairs, t5):
    pairs = [(ENGLISH + f" {number}", f"水 {number}") for number in range(50)]
    (said,) = warnings_of(pair_task(write_pairs(pairs), vocabulary=t5), tmp_path)
    assert "of the tokens of the targets of task 'pairs'" in said and "(the commonest: 水)" in said
