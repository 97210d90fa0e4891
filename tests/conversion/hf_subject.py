"""Run by tests in a process of its own, with whichever transformers is installed: what it makes of exported folders.

Usage: hf_subject.py WORK, where WORK/cases.json lists folders and WORK/CASE.npz holds each one's batch. Writes
WORK/CASE-result.npz (logits, and what generate writes greedily) and WORK/report.json (tokens, warnings about keys,
what a model card's example prints).
"""

import contextlib
import io
import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer


def answers(
    folder: str, batch: dict[str, np.ndarray], resave: str | None, write: bool
) -> tuple[dict[str, np.ndarray], dict[str, list[str]]]:
    """Logits in float32 (bfloat16 weights are widened), and, if asked, as many tokens as the targets are long."""
    model, info = AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    if resave:
        model.save_pretrained(resave)
        AutoTokenizer.from_pretrained(folder).save_pretrained(resave)
    model.float().eval()
    inputs, targets, shifted = (
        torch.tensor(batch[name].astype(np.int64))
        for name in ("encoder_input_tokens", "decoder_target_tokens", "decoder_input_tokens")
    )
    with torch.no_grad():
        output = model(
            input_ids=inputs,
            attention_mask=(inputs > 0).long(),
            decoder_input_ids=shifted,
            decoder_attention_mask=(targets > 0).long(),
        )
        found = {"logits": output.logits.numpy()}
        if write:
            count = targets.shape[1]
            rows = model.generate(inputs, attention_mask=(inputs > 0).long(), max_new_tokens=count, do_sample=False)
            found["written"] = np.pad(rows.numpy(), ((0, 0), (0, count)))[:, : count + 1]
    return found, {key: sorted(map(str, value)) for key, value in info.items() if value}


def example(folder: str) -> str:
    """What the first program of the folder's model card prints, run in the folder that holds this one."""
    card = (Path(folder) / "README.md").read_text(encoding="utf-8")
    said = io.StringIO()
    with contextlib.chdir(Path(folder).parent), contextlib.redirect_stdout(said):
        exec(card.split("```python\n")[1].split("```")[0], {})
    return said.getvalue()


def tokens(folder: str, texts: list[str]) -> dict[str, object]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = [tokenizer(text).input_ids for text in texts]
    return {
        "class": type(tokenizer).__name__,
        "length": len(tokenizer),
        "ids": ids,
        "inputs": sorted(tokenizer("a b")),
        "decoded": [tokenizer.decode(row, skip_special_tokens=True) for row in ids],
        "sentinel": tokenizer.convert_tokens_to_ids("<extra_id_0>"),
        "special": [tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id],
    }


def main(work: Path) -> None:
    report = {"transformers": transformers.__version__}
    for name, case in json.loads((work / "cases.json").read_text(encoding="utf-8")).items():
        found: dict[str, object] = {}
        if case.get("batch"):
            with np.load(work / f"{name}.npz") as batch:
                values, found["loading"] = answers(
                    case["folder"], dict(batch), case.get("resave"), case.get("write", False)
                )
            np.savez(work / f"{name}-result.npz", **values)
        if case.get("texts"):
            found |= tokens(case["folder"], case["texts"])
        if case.get("example"):
            found["example"] = example(case["folder"])
        report[name] = found
    (work / "report.json").write_text(json.dumps(report), encoding="utf-8")


main(Path(sys.argv[1]))
