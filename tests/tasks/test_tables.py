import pytest

from spanloom.settings.task import PairFiles, TextFiles
from spanloom.tasks.read_report import BadInputError, ReadReport
from spanloom.tasks.sources import read_examples

pytestmark = pytest.mark.short


def texts(path, name, data, report=None, **settings):
    path = path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    source = TextFiles(files=(str(path),), heldout_share=0.0, **settings)
    return [example["text"] for example in read_examples(source, "train", report or ReadReport())]


def pairs(path, name, data, report=None, **settings):
    path = path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    source = PairFiles(files=(str(path),), heldout_share=0.0, **settings)
    examples = read_examples(source, "train", report or ReadReport())
    return [(example["inputs"], example["targets"]) for example in examples]


def test_csv_as_spreadsheets_write_it(tmp_path):
    data = '\ufeffid,text\r\n1,"a, ""b""\r\nsecond line"\r\n2,\0\r\n\r\n3,ö\r\n'
    report = ReadReport()
    assert texts(tmp_path, "a.csv", data, report) == ['a, "b"\nsecond line', "\0", "ö"]
    assert report.skipped == {"empty": 1}


def test_a_cell_longer_than_the_csv_modules_limit(tmp_path):
    long = "x" * 3_000_000
    assert texts(tmp_path, "a.csv", f"text\n{long}\n") == [long]


@pytest.mark.parametrize(
    ("bad", "message", "reason", "count"),
    [
        ("2", r"a\.csv:3: 1 column where the header has 2: \('2'\)", "ragged row", 1),
        ("2,b,c", r"a\.csv:3: 3 columns where the header has 2", "ragged row", 1),
        ('2,"b" c', r"a\.csv:3: broken CSV \(',' expected after '\"'\)", "broken CSV row", 1),
        ('2,"b', r"a\.csv:3-4: a quote opens and never closes.*--format tsv", "broken CSV row", 2),
    ],
)
def test_bad_rows_of_csv(tmp_path, bad, message, reason, count):
    data = f"id,text\n1,a\n{bad}\n3,c\n"
    with pytest.raises(BadInputError, match=message):
        texts(tmp_path, "a.csv", data)
    report = ReadReport()
    assert texts(tmp_path, "a.csv", data, report, errors="skip") == (["a", "c"] if count == 1 else ["a"])
    assert report.skipped == {reason: count}


def test_undecodable_rows_of_csv(tmp_path):
    data = b'id,text\n1,a\n2,"b\nb \xff\nb"\n3,c\n'
    with pytest.raises(BadInputError, match=r"a\.csv:4: invalid utf-8 at byte 19 of the file: ff"):
        texts(tmp_path, "a.csv", data)
    assert texts(tmp_path, "a.csv", data, errors="replace") == ["a", "b\nb \ufffd\nb", "c"]
    report = ReadReport()
    assert texts(tmp_path, "a.csv", data, report, errors="skip") == ["a", "c"], "the whole row goes"
    assert report.skipped == {"undecodable": 1} and "a.csv:3" in report.messages[0]


def test_quotes_in_tsv_are_text(tmp_path):
    data = 'id\ttext\n1\t"unbalanced\n2\tfive" disk\n3\t"both"\n'
    assert texts(tmp_path, "a.tsv", data) == ['"unbalanced', 'five" disk', '"both"']


def test_ragged_rows_of_tsv(tmp_path):
    data = "a\tb\nc\nd\te\n"
    settings = {"inputs": "0", "targets": "1"}
    with pytest.raises(BadInputError, match=r"a\.tsv:2: 1 column where the first row has 2: \('c'\)"):
        pairs(tmp_path, "a.tsv", data, **settings)
    assert pairs(tmp_path, "a.tsv", data, errors="skip", **settings) == [("a", "b"), ("d", "e")]


def test_headers_by_name_number_and_template(tmp_path):
    data = "src\ttgt\nhaus\thouse\n"
    assert pairs(tmp_path, "a.tsv", data, inputs="src", targets="tgt") == [("haus", "house")]
    assert pairs(tmp_path, "a.tsv", data, inputs="de: {src}", targets="tgt") == [("de: haus", "house")]
    assert pairs(tmp_path, "a.tsv", data, inputs="0", targets="1", header="yes") == [("haus", "house")]
    report = ReadReport()
    got = pairs(tmp_path, "a.tsv", data, report, inputs="{1}!", targets="0")
    assert got == [("tgt!", "src"), ("house!", "haus")]
    assert "no header row; the first row of data is ('src', 'tgt')" in report.describe()


def test_a_table_without_header_proposes_numbers(tmp_path):
    with pytest.raises(BadInputError) as failure:
        pairs(tmp_path, "a.tsv", "abandonner\ta b ɑ̃\nabby\ta b i\n")
    message = str(failure.value)
    assert "no column 'inputs'; the first row is ('abandonner', 'a b ɑ̃')" in message
    assert "--inputs 0 --targets 1" in message


@pytest.mark.parametrize(
    ("name", "data", "settings", "message"),
    [
        (
            "a.tsv",
            "input\ttarget\na\tb\n",
            {},
            "no column 'inputs'; the columns are 'input', 'target'; did you mean 'input'",
        ),
        ("a.tsv", "a\tb\n", {"inputs": "a", "targets": "c"}, "no column 'c'; the first row is"),
        ("a.tsv", "a\tb\n", {"inputs": "a", "targets": "b", "header": "no"}, "no column"),
        ("a.tsv", "a\tb\n", {"inputs": "0", "targets": "2"}, "no column 2: the table has 2, numbered from 0"),
        ("a.tsv", "a\ta\n", {"inputs": "a", "targets": "a"}, "2 columns are named 'a'.*Use column numbers"),
        ("a.csv", "inputs\ttargets\na\tb\n", {}, r"parted by '\\t': --format tsv"),
        ("a.csv", "inputs;targets\na;b\n", {}, "parted by ';'"),
        ("a.txt", "a\tb\n", {}, "text has no columns. Say --format tsv"),
    ],
)
def test_columns_that_do_not_exist(tmp_path, name, data, settings, message):
    with pytest.raises(BadInputError, match=message):
        pairs(tmp_path, name, data, **settings)


def test_number_named_columns_go_by_name_under_a_header(tmp_path):
    assert pairs(tmp_path, "a.tsv", "1\t0\nx\ty\n", inputs="0", targets="1") == [("y", "x")]


def test_blank_cells_are_counted(tmp_path):
    report = ReadReport()
    data = "inputs\ttargets\na\t\n\tb\nc\td\n\n"
    assert pairs(tmp_path, "a.tsv", data, report) == [("c", "d")]
    assert report.skipped == {"empty inputs": 1, "empty targets": 1, "empty": 1}


def test_a_table_of_text_without_header(tmp_path):
    with pytest.raises(BadInputError, match="--field 0"):
        texts(tmp_path, "a.csv", "one\ntwo\n")
    assert texts(tmp_path, "a.csv", "one\ntwo\n", field="0") == ["one", "two"]


def test_header_alone_is_no_data(tmp_path):
    with pytest.raises(BadInputError, match=r"no document to train on in 1 file: it holds no rows\. Check the files"):
        texts(tmp_path, "a.csv", "text\n")


def test_data_in_the_place_of_a_header_is_neither_proposed_nor_shown_at_length(tmp_path):
    document = "A whole document in one cell. " * 100
    with pytest.raises(BadInputError, match="--field 0") as failure:
        texts(tmp_path, "a.csv", f"{document},2\n{document},3\n")
    said = str(failure.value).replace(str(tmp_path), "")
    assert len(said) < 300 and "such as" not in said
    with pytest.raises(BadInputError, match=r"all by number, from 0 \(the table has 2\)") as failure:
        pairs(tmp_path, "a.tsv", "phone\tf o\nabby\ta b i\n", inputs="0", targets="phon")
    assert "did you mean" not in str(failure.value)


@pytest.mark.parametrize(("name", "blank"), [("a.csv", ","), ("a.csv", "\n , \n"), ("a.tsv", "\t"), ("a.tsv", "\n \t")])
def test_a_blank_header_row_makes_no_header_of_the_data(tmp_path, name, blank):
    mark = "," if name.endswith("csv") else "\t"
    data = f"{blank}\ntext{mark}b\nc{mark}d\n"
    with pytest.raises(BadInputError, match=r"a\.[ct]sv:[12]: the cells of the header row are all blank. Name the"):
        texts(tmp_path, name, data)
    assert texts(tmp_path, name, data, field="0") == ["text", "c"], "by number a blank row is a blank row"
    assert texts(tmp_path, name, f"\ntext{mark}b\nc{mark}d\n") == ["c"]
