"""The architecture of a T5X checkpoint, from the names and shapes of its weights.

All sizes show in the shapes: heads in the position tables, layers in the names or on axis 1, and a head's width, where
heads are joined, by dividing. What weights cannot show, activations above all, is in `t5x_unseen`.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.t5x_names import is_scanned
from spanloom.conversion.t5x_places import Layout, places
from spanloom.settings.model import Model

Shapes = Mapping[str, tuple[int, ...]]
_LAYER = re.compile(r"(encoder|decoder)/layers_(\d+)/")
_MOST_LAYERS = 1000
_EMBEDDING = "token_embedder/embedding"
_HEAD = "decoder/logits_dense/kernel"


def architecture(shapes: Shapes, path: Path) -> tuple[Model, Layout]:
    """The model that these weights are of, and T5X's layout of it.

    Every name and shape is accounted for. Raises ConversionError, naming the parameter, where one is missing, left
    over or of a shape that does not go with the others, and for models that are no encoder-decoders.
    """
    look = _Shapes(shapes, path)
    if not any(name.startswith("encoder/") for name in shapes):
        kind = "a decoder alone" if any(name.startswith("decoder/") for name in shapes) else "no T5"
        raise ConversionError(path, f"holds {kind}; encoder-decoders of the T5 family are read")
    scanned = is_scanned(shapes)
    layers = {stack: look.scanned_layers(stack) if scanned else look.layers(stack) for stack in ("encoder", "decoder")}
    first = "encoder/encoder/" if scanned else "encoder/layers_0/"
    per_layer = any(name.endswith("relpos_bias/rel_embedding") and name.count("/") > 2 for name in shapes)
    table = look.shape(
        f"{first if per_layer else 'encoder/'}relpos_bias/rel_embedding", 3 if per_layer and scanned else 2
    )
    query_name = f"{first}attention/query/kernel"
    query = look.shape(query_name, *((3, 4) if scanned else (2, 3)))
    apart = len(query) == (4 if scanned else 3)
    d_kv = query[-1] if apart else look.divided(query_name, query[-1], table[0])
    gated = f"{first}mlp/wi_0/kernel" in shapes
    vocab_size, d_model = look.shape(_EMBEDDING, 2)
    model = Model(
        vocab_size=vocab_size,
        d_model=d_model,
        d_ff=look.shape(f"{first}mlp/{'wi_0' if gated else 'wi'}/kernel", 3 if scanned else 2)[-1],
        num_heads=table[0],
        d_kv=d_kv,
        num_encoder_layers=layers["encoder"],
        num_decoder_layers=layers["decoder"],
        activations=("gelu", "linear") if gated else ("relu",),
        tie_embeddings=_HEAD not in shapes,
        per_layer_position_bias=per_layer,
        relative_position_buckets=table[-1],
    )
    layout = Layout(scanned, apart)
    _account_for_all(model, layout, shapes, path)
    return model, layout


class _Shapes:
    """Shapes by name, with errors that name the file and the parameter."""

    def __init__(self, shapes: Shapes, path: Path) -> None:
        self._shapes = shapes
        self._path = path

    def shape(self, name: str, *dimensions: int) -> tuple[int, ...]:
        shape = self._shapes.get(name)
        if shape is None:
            near = ", ".join(sorted(self._shapes)[:3])
            raise ConversionError(self._path, f"lacks {name}, which every T5 has (it holds {near}, ...)")
        if len(shape) not in dimensions or 0 in shape:
            wanted = " or ".join(map(str, dimensions))
            raise ConversionError(self._path, f"{name} has shape {shape}; one of {wanted} axes is wanted")
        return shape

    def divided(self, name: str, width: int, heads: int) -> int:
        if width % heads:
            raise ConversionError(self._path, f"{name} is {width} wide, which {heads} heads do not divide")
        return width // heads

    def scanned_layers(self, stack: str) -> int:
        return self.shape(f"{stack}/{stack}/pre_mlp_layer_norm/scale", 2)[1]

    def layers(self, stack: str) -> int:
        found = {int(match[2]) for name in self._shapes if (match := _LAYER.match(name)) and match[1] == stack}
        if not found or len(found) > _MOST_LAYERS:
            raise ConversionError(self._path, f"holds {len(found)} layers of the {stack} ({stack}/layers_0/...)")
        if max(found) != len(found) - 1:
            lost = next(number for number in range(max(found)) if number not in found)
            raise ConversionError(self._path, f"lacks {stack}/layers_{lost}, though it holds later layers")
        return len(found)


def _account_for_all(model: Model, layout: Layout, shapes: Shapes, path: Path) -> None:
    if max(model.num_encoder_layers, model.num_decoder_layers) > _MOST_LAYERS:
        raise ConversionError(path, f"has {model.num_encoder_layers} + {model.num_decoder_layers} layers")
    try:
        wanted = {place.name: place.shape for place in places(model, layout)}
    except ValueError as error:
        raise ConversionError(path, f"holds no model that is known here: {error}") from error
    for name, shape in wanted.items():
        if name not in shapes:
            raise ConversionError(path, f"lacks {name}, which goes with the rest of its weights")
        if shapes[name] != shape:
            raise ConversionError(
                path, f"{name} has shape {shapes[name]}, but the rest of the weights call for {shape}"
            )
    if extra := sorted(shapes.keys() - wanted.keys()):
        more = f" and {len(extra) - 1} more" if len(extra) > 1 else ""
        raise ConversionError(path, f"holds {extra[0]}{more}, which no T5 of T5X has")
