"""Published T5-family sizes by name, and small ones of our own. Imports nothing heavy.

Numbers: Raffel et al. 2020 (T5), the T5 1.1 release notes, Xue et al. 2021 (mT5), Xue et al. 2022 (ByT5), Chung et
al. 2023 (umT5), Tay et al. 2023 (UL2).
"""

from dataclasses import fields, replace
from typing import Any

from spanloom.settings.model import HOW_COMPUTED, Model
from spanloom.settings.nearest import did_you_mean


def _model(name: str, vocab_size: int, row: tuple[int, int, int, int, int, int], **rest: Any) -> Model:
    d_model, num_heads, num_encoder_layers, num_decoder_layers, d_kv, d_ff = row
    return Model(
        vocab_size=vocab_size,
        d_model=d_model,
        d_ff=d_ff,
        num_heads=num_heads,
        d_kv=d_kv,
        num_encoder_layers=num_encoder_layers,
        num_decoder_layers=num_decoder_layers,
        name=name,
        **rest,
    )


# Columns: d_model, heads, encoder layers, decoder layers, width of a head, d_ff.
_TINY = (8, 4, 2, 2, 3, 16)
_T5_1_0 = {
    "tiny": _TINY,
    "small": (512, 8, 6, 6, 64, 2048),
    "base": (768, 12, 12, 12, 64, 3072),
    "large": (1024, 16, 24, 24, 64, 4096),
    "3b": (1024, 32, 24, 24, 128, 16384),
    "xl": (1024, 32, 24, 24, 128, 16384),
    "11b": (1024, 128, 24, 24, 128, 65536),
    "xxl": (1024, 128, 24, 24, 128, 65536),
}
_T5_1_1 = {
    "tiny": _TINY,
    "small": (512, 6, 8, 8, 64, 1024),
    "base": (768, 12, 12, 12, 64, 2048),
    "large": (1024, 16, 24, 24, 64, 2816),
    "xl": (2048, 32, 24, 24, 64, 5120),
    "xxl": (4096, 64, 24, 24, 64, 10240),
}
_BYT5 = {
    "tiny": _TINY,
    "small": (1472, 6, 12, 4, 64, 3584),
    "base": (1536, 12, 18, 6, 64, 3968),
    "large": (1536, 16, 36, 12, 64, 3840),
    "xl": (2560, 32, 36, 12, 64, 6720),
    "xxl": (4672, 64, 36, 12, 64, 12352),
    # Ours: byte-level models that learn something on a laptop's CPU in minutes (1.8 and 7.8 million parameters).
    # Few wide heads step faster on CPU.
    "nano": (128, 2, 4, 2, 64, 512),
    "micro": (256, 4, 6, 3, 64, 640),
}


def _all_sizes() -> dict[str, Model]:
    families: tuple[tuple[str, int, dict[str, tuple[int, int, int, int, int, int]], dict[str, Any]], ...] = (
        ("t5", 32128, _T5_1_0, {"activations": ("relu",), "tie_embeddings": True}),
        ("t5_1_1", 32128, _T5_1_1, {}),
        ("mt5", 250112, _T5_1_1, {}),
        ("byt5", 384, _BYT5, {}),
        ("umt5", 256384, _T5_1_1, {"per_layer_position_bias": True}),
        ("ul2", 32128, {"20b": (4096, 16, 32, 32, 256, 16384)}, {"activations": ("silu", "linear")}),
    )
    return {
        f"{family}_{size}": _model(f"{family}_{size}", vocab_size, row, **rest)
        for family, vocab_size, sizes, rest in families
        for size, row in sizes.items()
    }


SIZES: dict[str, Model] = _all_sizes()
"""Every size by name: t5_* (1.0), t5_1_1_*, mt5_*, byt5_*, umt5_*, ul2_20b; t5_xl is t5_3b, t5_xxl is t5_11b."""


def named(name: str, **overrides: Any) -> Model:
    """The size `name` (`-` and `.` count as `_`), with fields of `Model` overridden.

    Raises ValueError, with the nearest names, if there is no such size or no such field.
    """
    key = name.lower().replace("-", "_").replace(".", "_")
    if key not in SIZES:
        hint = did_you_mean(key, SIZES) or f"; there are {sizes_in_short()}"
        raise ValueError(f"no model size is called {name!r}{hint}")
    known = [field.name for field in fields(Model)]
    for field in overrides:
        if field not in known:
            hint = did_you_mean(field, known) or f"; there are {', '.join(known)}"
            raise ValueError(f"a model has no setting {field!r}{hint}")
    return replace(SIZES[key], **overrides)


def published_name(model: Model) -> str:
    """The name of a published size with the same architecture; the model's own name where it has one."""
    if model.name != "custom":
        return model.name

    def architecture(one: Model) -> Model:
        computed = {field: getattr(SIZES["t5_small"], field) for field in HOW_COMPUTED}
        return replace(one, name="", **computed)

    wanted = architecture(model)
    return next((name for name, known in SIZES.items() if architecture(known) == wanted), "custom")


def sizes_in_short() -> str:
    """All names in one line, family by family: byt5_{tiny,small,...}, ..."""
    found: dict[str, list[str]] = {}
    for name in SIZES:
        family, _, size = name.rpartition("_")
        found.setdefault(family, []).append(size)
    return ", ".join(f"{family}_{{{','.join(sizes)}}}" for family, sizes in found.items())
