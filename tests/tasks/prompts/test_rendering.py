import random

import pytest

from spanloom.tasks.prompts.rendering import Prompt, most_frequent
from spanloom.tasks.prompts.template_files import PromptError
from spanloom.tasks.templates import FieldError

ROW = {"text": "fine film", "label": 1}


def test_a_row_becomes_inputs_targets_and_choices():
    prompt = Prompt("p", "{{text}} Good? \n ||| \n{{ answer_choices [label] }}", "bad ||| good")
    assert prompt(ROW) == {
        "inputs": "fine film Good?",
        "targets": "good",
        "answer_choices": ["bad", "good"],
        "label": 1,
    }
    assert prompt.fixed_choices == ["bad", "good"]


def test_choices_of_each_row():
    prompt = Prompt("p", "Which? ||| {{answer_choices[n]}}", "{{ options | join('|||') }}")
    assert prompt.fixed_choices is None and prompt.columns == {"n", "options"}
    assert prompt({"options": ["a", " b ", "c"], "n": 2})["label"] == 2
    assert prompt({"options": ["b", "b"], "n": 1})["label"] == 0, "the first that is equal"
    assert prompt({"options": ["a", "a|||b"], "n": 1})["answer_choices"] == ["a", "a", "b"], "as promptsource has it"


def test_a_target_that_is_no_choice_has_the_label_minus_one():
    assert Prompt("p", "a ||| maybe", "no ||| yes")({})["label"] == -1


def test_an_open_answer_has_no_choices():
    assert Prompt("p", "{{text}} ||| {{label}}")(ROW) == {"inputs": "fine film", "targets": "1"}


def test_values_are_cut_at_a_word_with_dots():
    long = "word " * 600
    inputs = Prompt("p", "{{text}} ||| y")({"text": long})["inputs"]
    assert inputs == "word " * 408 + "word..." and len(inputs) == 2047
    assert Prompt("p", "{{text}} ||| y", truncate=0)({"text": long})["inputs"] == long.strip()
    within = "w" * 2053  # up to five characters more stay, as Jinja has it
    assert Prompt("p", "{{text}} ||| y")({"text": within})["inputs"] == within
    assert len(Prompt("p", "{{text}} ||| y")({"text": within + "w"})["inputs"]) == 2048
    looped = "{% for x in several %}{{x}}{% endfor %} ||| y"
    assert len(Prompt("p", looped)({"several": ["v" * 3000] * 2})["inputs"]) == 2 * 2048, "each value by itself"


def test_bars_of_the_row_part_nothing():
    row = {"text": "a ||| b", "label": "c|||d"}
    assert Prompt("p", "{{text}} ||| {{label}}")(row) == {"inputs": "a ||| b", "targets": "c|||d"}
    long = "x" * 2045 + "|||" + "y" * 100
    assert Prompt("p", "{{text}} ||| t")({"text": long})["inputs"] == "x" * 2045 + "..."
    counted = "x" * 1000 + " ||| " + "y" * 1030  # bars count as the 32 characters that stand for them there
    assert Prompt("p", "{{text}} ||| t")({"text": counted})["inputs"] == "x" * 1000 + " |||..."


@pytest.mark.parametrize(
    "text", ["one part", "a ||| b ||| c", "||| b", "a |||", "{% if label == 0 %}a ||| b{% endif %}"]
)
def test_rows_without_inputs_and_targets_are_left_out(text):
    assert Prompt("p", text, absent="empty")(ROW) is False


def test_what_stands_for_an_empty_target():
    assert Prompt("p", "a |||", empty_target="<NO LABEL>")({}) == {"inputs": "a", "targets": "<NO LABEL>"}
    assert Prompt("p", "||| b", empty_target="<NO LABEL>")({}) is False


def test_hyphens_in_columns_become_underscores():
    assert Prompt("p", "{{label_coarse}} ||| {{text}}")({"label-coarse": 3, "text": "t"})["inputs"] == "3"


def test_draws_follow_from_the_row_and_the_prompt_alone():
    text = "{{ range(1000) | choice }} {{ ['a', 'b'] | random }} {{ range(1000) | choice }} ||| y"
    prompt, other = Prompt("p", text), Prompt("q", text)
    rows = [{"n": number} for number in range(50)]
    first = [prompt(row)["inputs"] for row in rows]
    random.seed(1)
    assert first == [prompt(row)["inputs"] for row in rows] == [Prompt("p", text)(row)["inputs"] for row in rows]
    assert len(set(first)) == 50 and first != [other(row)["inputs"] for row in rows]
    assert len({inputs.split()[0] == inputs.split()[2] for inputs in first}) == 1, "each draw is another"


def test_draws_are_fair():
    prompt = Prompt("p", "{{ ['a', 'b', 'c'] | choice }} ||| y")
    drawn = [prompt({"n": number})["inputs"] for number in range(3000)]
    assert all(850 < drawn.count(letter) < 1150 for letter in "abc")


def test_a_choice_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="no items"):
        Prompt("p", "{{ several | choice }} ||| y")({"several": []})


def test_promptsources_filters_and_globals():
    assert most_frequent(["b", "a", "b", "c", "a"]) == ["b", "a"] and most_frequent([]) is None
    row = {"several": ["x", "y", "x"], "others": [1, 2, 3]}
    assert Prompt("p", "{{ several | most_frequent | first }} ||| y")(row)["inputs"] == "x"
    assert Prompt("p", "{{ several[0] | highlight }} ||| y")(row)["inputs"] == "x"
    zipped = "{% for a, b in zip(several, others) %}{{a}}{{b}}{% endfor %} ||| y"
    assert Prompt("p", zipped)(row)["inputs"] == "x1y2x3"


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__ }} ||| y",
        "{{ text.format.__globals__ }} ||| y",
        "{{ '{0.__class__}'.format(text) }} ||| y",
    ],
)
def test_the_sandbox_lets_nothing_out(text):
    from jinja2.exceptions import SecurityError, UndefinedError

    try:
        made = Prompt("p", text)(ROW)
    except (SecurityError, UndefinedError):
        return
    assert made is False or "class" not in made["inputs"]


def test_a_column_that_is_not_there_is_named_with_the_nearest():
    with pytest.raises(FieldError, match=r"no column 'texts', which the template names; .*did you mean text"):
        Prompt("p", "{{texts}} ||| y")(ROW)
    assert Prompt("p", "a{{texts}} ||| y", absent="empty")(ROW)["inputs"] == "a"


def test_a_row_may_not_have_answer_choices_already():
    with pytest.raises(FieldError, match="the row has a column 'answer_choices'"):
        Prompt("p", "a ||| b")({"answer_choices": ["x"]})


def test_a_template_that_is_not_well_formed_is_refused_with_its_line():
    with pytest.raises(PromptError, match="prompt 'mine', line 2: TemplateSyntaxError"):
        Prompt("mine", "a\n{% if %} ||| y")
