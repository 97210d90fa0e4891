"""Run by tests in a process of its own: what transformers writes and scores with exported folders.

Usage: hf_generate.py WORK, where WORK/cases.json lists, for each case, the folder, the ids of inputs (of one length),
of targets, and arguments of `generate` by name. Writes WORK/answers.json.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForSeq2SeqLM


def answer(case: dict) -> dict:
    model = AutoModelForSeq2SeqLM.from_pretrained(case["folder"]).eval()
    inputs, found = torch.tensor(case["inputs"]), {}
    attended = (inputs > 0).long()
    for name, arguments in case["ways"].items():
        written = model.generate(
            inputs,
            attention_mask=attended,
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
            **arguments,
        )
        scores = written.sequences_scores.tolist() if "num_beams" in arguments else None
        found[name] = {"tokens": written.sequences[:, 1:].tolist(), "scores": scores}
    losses = []
    with torch.no_grad():
        for row, target in enumerate(case["targets"]):
            labels = torch.tensor([target])
            output = model(input_ids=inputs[row : row + 1], attention_mask=attended[row : row + 1], labels=labels)
            losses.append(float(output.loss))
    return {"ways": found, "losses": losses}


work = Path(sys.argv[1])
cases = json.loads((work / "cases.json").read_text(encoding="utf-8"))
answers = {name: answer(case) for name, case in cases.items()}
(work / "answers.json").write_text(json.dumps(answers), encoding="utf-8")
