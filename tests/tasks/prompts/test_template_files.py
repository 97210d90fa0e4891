import pytest

from spanloom.tasks.prompts.template import PromptTemplate
from spanloom.tasks.prompts.template_files import PromptError, read_collection, read_templates

RELEASED = """
dataset: glue
subset: mrpc
templates:
  b0c1: !Template
    answer_choices: no ||| yes
    id: b0c1
    jinja: "{{ sentence1 }}\\n|||\\n{{ answer_choices[label] }}"
    metadata: !TemplateMetadata
      choices_in_prompt: false
      metrics:
      - Accuracy
      original_task: true
    name: equivalent
    reference: ''
  a0: !Template
    answer_choices: null
    id: a0
    jinja: a ||| b
    metadata: !TemplateMetadata
      choices_in_prompt: null
      metrics: []
      original_task: null
    name: Another
    reference: ''
"""
OWN_YAML = """
templates:
  - name: good or bad
    inputs: "{{ text }} Good?"
    targets: "{{ answer_choices[label] }}"
    answer_choices: [bad, good]
    original_task: true
"""
OWN_TOML = '''
dataset = "reviews"
[templates."good or bad"]
jinja = """{{ text }} Good? ||| {{ answer_choices[label] }}"""
answer_choices = "bad ||| good"
'''


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_of_promptsource(tmp_path):
    read = read_templates(write(tmp_path, "templates.yaml", RELEASED))
    assert read.name == ("glue", "mrpc")
    assert [template.name for template in read.templates] == ["Another", "equivalent"]
    assert read.templates[1] == PromptTemplate(
        "equivalent",
        "{{ sentence1 }}\n|||\n{{ answer_choices[label] }}",
        "no ||| yes",
        original_task=True,
        metrics=("Accuracy",),
        id="b0c1",
    )


@pytest.mark.parametrize(("name", "text"), [("reviews.yaml", OWN_YAML), ("x.toml", OWN_TOML)])
def test_files_of_ones_own(tmp_path, name, text):
    read = read_templates(write(tmp_path, name, text))
    assert read.name == ("reviews", None)
    (template,) = read.templates
    assert template.name == "good or bad"
    assert [part.strip() for part in template.jinja.split("|||")] == ["{{ text }} Good?", "{{ answer_choices[label] }}"]
    assert template.answer_choices == "bad ||| good"


@pytest.mark.parametrize("inside", ["", "templates", "promptsource/templates"])
def test_a_folder_is_promptsources_or_above_it(tmp_path, inside):
    write(tmp_path / inside, "glue/mrpc/templates.yaml", RELEASED)
    own = write(tmp_path / "own", "mine.yaml", OWN_YAML)
    collection = read_collection([str(tmp_path), str(own.parent)])
    assert set(collection) == {("glue", "mrpc"), ("mine", None)}


def test_files_of_one_data_set_are_joined(tmp_path):
    write(tmp_path, "reviews.yaml", OWN_YAML)
    other = OWN_TOML.replace('"good or bad"', '"another"')
    collection = read_collection([str(tmp_path), str(write(tmp_path / "more", "x.toml", other))])
    assert [template.name for template in collection["reviews", None].templates] == ["another", "good or bad"]
    with pytest.raises(PromptError, match="reviews has two templates named 'good or bad': rename one"):
        read_collection([str(tmp_path), str(write(tmp_path / "more", "x.toml", OWN_TOML))])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "templates.yaml: .*"),
        ("a: 1", "no `templates` in it"),
        ("templates: 3", "`templates` must be a list"),
        ("templates: [3]", "a template is 3, not a table"),
        ("templates: [{jinja: a}]", "a template has no name, but its fields are jinja"),
        (
            "templates: [{name: x, input: a, targets: b}]",
            "template 'x': no field is called 'input'; did you mean inputs",
        ),
        ("templates: [{name: x, inputs: a}]", "template 'x': give inputs and targets"),
        ("templates: [{name: x, jinja: a, inputs: a, targets: b}]", "template 'x': give inputs and targets"),
        ("templates: [{name: x, inputs: 1, targets: b}]", "template 'x': inputs is 1, not text"),
        (
            "templates: [{name: x, jinja: a, answer_choices: [no, yes]}]",
            "answer_choices is .False, True.: must be texts",
        ),
        (
            "templates: [{name: x, jinja: a, metrics: ROUGE}]",
            "'x': metrics is 'ROUGE': must be a list of texts, such as",
        ),
        ("templates: [{name: x, jinja: a, metrics: 5}]", "template 'x': metrics is 5: must be a list"),
        ("templates: [{name: x, jinja: a, metrics: false}]", "template 'x': metrics is False: must be a list"),
        ("templates: [{name: x, jinja: a, metrics: {a: b}}]", "template 'x': metrics is {'a': 'b'}: must be a list"),
        ("templates: [{name: x, jinja: a, languages: [de, no]}]", r"'x': languages is \['de', False\]: must be a list"),
        (
            "templates: [{name: x, jinja: a, metadata: [1, 2]}]",
            r"'x': metadata is \[1, 2\]: must be a table of original",
        ),
        ("templates: [{name: x, jinja: a, metadata: x}]", "template 'x': metadata is 'x': must be a table"),
        ("templates: [{name: x, jinja: a, metadata: ''}]", "template 'x': metadata is '': must be a table"),
        (
            "templates: [{name: x, jinja: a, metadata: {metrics: ROUGE}}]",
            "template 'x': metrics is 'ROUGE': must be a list",
        ),
        (
            "templates: [{name: x, jinja: a, original_task: 'false'}]",
            "'x': original_task is 'false': must be true or false",
        ),
        ("templates: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
        ("templates: [&a [*a]]", "a template is"),
    ],
)
def test_what_is_no_template_is_refused_with_its_place(tmp_path, text, said):
    with pytest.raises(PromptError, match=said):
        read_templates(write(tmp_path, "templates.yaml", text))


def test_places_without_templates_are_refused(tmp_path):
    with pytest.raises(PromptError, match="nowhere: no such file or folder"):
        read_collection([str(tmp_path / "nowhere")])
    with pytest.raises(PromptError, match=r"no templates\.yaml below it"):
        read_collection([str(tmp_path)])
