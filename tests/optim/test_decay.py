import jax.numpy as jnp
import numpy as np
import pytest
from optimizer_cases import SPECS, made, stacked

from spanloom.model.params import declare, flatten
from spanloom.model.sizes import named
from spanloom.optim.build import build
from spanloom.optim.decay import decay_mask
from spanloom.settings.optimizer import Adafactor, AdamW, AdamWRMS, Constant, Lion, Muon, ScheduleFree

MODEL = declare(named("byt5_nano"))


def decayed(*words: str, specs=MODEL) -> set[str]:
    return {name for name, decays in flatten(decay_mask(words, specs)).items() if decays}


def test_matrices_are_those_of_one_layer():
    names = set(flatten(MODEL))
    spared = names - decayed("matrices")
    assert spared == {name for name in names if name.endswith("/scale")} and len(spared) > 5
    assert decayed("matrices", specs=stacked(3)) == {"kernel", "table", "bias"} == decayed("matrices", specs=SPECS)


def test_names_patterns_and_exceptions_in_their_order():
    assert decayed("all") == set(flatten(MODEL)) and decayed() == set()
    assert decayed("encoder/layers/mlp/wo/kernel") == {"encoder/layers/mlp/wo/kernel"}
    assert decayed("*/mlp/wo/kernel") == {f"{half}/layers/mlp/wo/kernel" for half in ("encoder", "decoder")}
    kept = decayed("matrices", "!*rel_embedding", "!token_embedder/*")
    assert decayed("matrices") - kept == {
        "encoder/relpos_bias/rel_embedding",
        "decoder/relpos_bias/rel_embedding",
        "token_embedder/embedding",
    }
    assert decayed("!decoder/*", "decoder/layers/mlp/wo/kernel", specs=MODEL) == {"decoder/layers/mlp/wo/kernel"}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("encoder/layers/mlp/wo/kernal", "did you mean encoder/layers/mlp/wo/kernel"),
        ("!token_embeder/embedding", "'!token_embeder/embedding' matches no parameter; did you mean token_embedder"),
        ("matrixes", "did you mean matrices"),
        ("encoder/layers_0/mlp/wo/kernel", "names are those of stacked layers"),
        ("", "'' matches no parameter"),
    ],
)
def test_a_name_that_matches_nothing_is_refused_with_the_nearest(word, said):
    with pytest.raises(ValueError, match=r"optimizer\.decayed") as refused:
        build(AdamW(decayed=("matrices", word)), Constant(), MODEL)
    assert said in str(refused.value)


@pytest.mark.parametrize("kind", [Adafactor, AdamW, AdamWRMS, Lion, Muon, ScheduleFree])
def test_every_optimizer_decays_what_it_is_told_to(kind):
    """Without gradients nothing but decay moves a weight."""
    settings = kind(learning_rate=0.1, weight_decay=0.5, decayed=("kernel", "scale"))
    params = made(0)
    zeros = {name: jnp.zeros_like(leaf) for name, leaf in params.items()}
    optimizer = build(settings, Constant(), SPECS)
    updates, _ = optimizer.update(zeros, optimizer.init(params), params)
    part = 0.5 if kind is Adafactor else 0.05  # T5X's decay is not multiplied by the learning rate
    for name, leaf in params.items():
        expected = -part * leaf if name in ("kernel", "scale") else 0 * leaf
        np.testing.assert_allclose(updates[name], expected, rtol=1e-5, atol=1e-12, err_msg=name)


def test_what_decays_by_default():
    assert {kind().decayed for kind in (AdamW, AdamWRMS, Lion, Muon, ScheduleFree)} == {("matrices",)}
    assert Adafactor().decayed == ("all",)  # as T5X
