"""spanloom.json of a published export: what tells its model from others, and nothing of the machine it came from."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from spanloom.conversion.hf_tokenizer import to_json
from spanloom.conversion.hf_vocabulary import MARK_NAME
from spanloom.conversion.model_card import CARD_NAME, public_name
from spanloom.conversion.trained_model import Lineage


def published(folder: Path) -> bytes:
    """The mark of the export in `folder` as it is published: absolute paths by their last names.

    Beside them stand `home`, a hash of where the run is, and `card`, the card's git id, by which a later push sees
    whether the card was edited. The same folder gives the same bytes.
    """
    mark = json.loads((folder / MARK_NAME).read_text(encoding="utf-8"))
    identity = {"home": home_id(Lineage(origin=str(mark.get("origin", "")))), "card": blob_id(folder / CARD_NAME)}
    return to_json(_without_paths(mark) | identity)


def home_id(lineage: Lineage) -> str:
    """A hash of the directory that the model is of, which does not tell its name."""
    return hashlib.sha256(str(lineage.home).encode()).hexdigest()


def of_one_model(there: Mapping[str, Any], lineage: Lineage) -> bool:
    """Whether a published mark is of the same run as what is to be published, or of the very same checkpoint."""
    if lineage.checkpoint is not None and there.get("checkpoint") == lineage.checkpoint:
        return True
    return there.get("home") == home_id(lineage)


def blob_id(content: Path | bytes) -> str:
    """Git's id of a small file, in hexadecimal."""
    data = content if isinstance(content, bytes) else content.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_paths(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_paths(one) for one in value]
    return public_name(value) if isinstance(value, str) and len(PurePath(value).parts) > 2 else value
