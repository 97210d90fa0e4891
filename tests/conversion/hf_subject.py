"""Run by tests in a process of its own, with whichever transformers is installed: what it makes of exported folders.

Usage: hf_subject.py WORK, where WORK/cases.json lists folders and WORK/CASE.npz holds each one's batch. Writes
WORK/CASE-result.npz (logits, and the ids of texts) and WORK/report.json (tokens, warnings about keys).
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer


def logits(folder: str, batch: dict[str, np.ndarray], resave: str | None) -> tuple[np.ndarray, dict[str, list[str]]]:
    model, info = AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    if resave:
        model.save_pretrained(resave)
        AutoTokenizer.from_pretrained(folder).save_pretrained(resave)
    model.eval()
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
    assert output.logits.dtype == torch.float32
    return output.logits.numpy(), {key: sorted(map(str, value)) for key, value in info.items() if value}


def tokens(folder: str, texts: list[str]) -> dict[str, object]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = [tokenizer(text).input_ids for text in texts]
    return {
        "class": type(tokenizer).__name__,
        "length": len(tokenizer),
        "ids": ids,
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
                values, found["loading"] = logits(case["folder"], dict(batch), case.get("resave"))
            np.savez(work / f"{name}-result.npz", logits=values)
        if case.get("texts"):
            found |= tokens(case["folder"], case["texts"])
        report[name] = found
    (work / "report.json").write_text(json.dumps(report), encoding="utf-8")


main(Path(sys.argv[1]))
