"""Writes down what promptsource makes of made-up rows, for tests/tasks/prompts/test_all_templates.py.

    python3.11 -m venv ps && ps/bin/pip install --no-deps --ignore-requires-python promptsource==0.2.3
    ps/bin/pip install pandas PyYAML jinja2 'setuptools<81' numpy msgpack
    PYTHONPATH=.:tests ps/bin/python scripts/promptsource_values.py SHARED/data/promptsource/v0.1.0/templates \\
        tests/tasks/prompts/promptsource_v0.1.0.txt

A line for each data set has a digest for each of its templates, by name. Draws take the middle item, here and in the
test; all else is promptsource's own. Where the two renderers differ, their examples are printed.
"""

import sys
from pathlib import Path
from typing import Any

import yaml
from jinja2 import pass_context
from prompt_rows import digest_of, made, middle
from promptsource import templates

from spanloom.tasks.prompts import rendering
from spanloom.tasks.prompts.rendering import Prompt


def main(folder: str, out: str) -> None:
    """Reads every templates.yaml below `folder`, and writes `out`."""
    templates.env.filters |= {"choice": middle, "random": pass_context(lambda context, items: middle(items))}
    rendering._Draws.choice = staticmethod(middle)  # type: ignore[assignment, method-assign]
    lines = []
    for path in Path(folder).rglob("templates.yaml"):
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.FullLoader)
        name = "/".join(filter(None, (content["dataset"], content.get("subset"))))
        several = sorted(content["templates"].values(), key=lambda template: template.name)
        lines.append(" ".join([name, *(_digest(name, template) for template in several)]))
    Path(out).write_text("".join(f"{line}\n" for line in sorted(lines)), encoding="utf-8")


def _digest(of: str, template: Any) -> str:
    prompt = Prompt(template.name, template.jinja, template.answer_choices)

    def render(row: dict[str, Any]) -> Any:
        return template.apply(row), template.get_answer_choices_list(row)

    theirs, ours = digest_of(prompt, render), digest_of(prompt, prompt.render)
    if theirs != ours:
        for there, here in zip(made(prompt, render), made(prompt, prompt.render), strict=True):
            if there != here:
                print(f"{of}, {template.name}\n  promptsource: {there}\n  spanloom: {here}")
    return theirs


if __name__ == "__main__":
    main(*sys.argv[1:])
