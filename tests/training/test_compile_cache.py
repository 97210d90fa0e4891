import json
import os
import subprocess
import sys

import pytest
from crew_process import RECIPE
from tiny_training import write_text

from spanloom.training.compile_cache import SEAL, cache_directory, remove_unsealed, seal_entries

PROGRAM = """
import json, logging, sys, warnings
warnings.simplefilter("error")
import jax, jax.numpy as jnp, numpy as np
from spanloom.training.compile_cache import enable_compile_cache
from spanloom.training import compile_cache
compile_cache.MIN_COMPILE_SECONDS = 0.0
directory = enable_compile_cache()
hits = []
jax.monitoring.register_event_listener(lambda name, **more: name.endswith("cache_hits") and hits.append(name))

def loss(w, x):
    for _ in range(6):
        x = jnp.tanh(x @ w) + jax.nn.softmax(x @ w.T, axis=-1)
    return jnp.mean(jnp.log(jnp.sum(jnp.exp(x), axis=-1)))

step = jax.jit(jax.value_and_grad(loss))
w = jnp.asarray(np.random.default_rng(0).standard_normal((96, 96)), jnp.float32)
x = jnp.asarray(np.random.default_rng(1).standard_normal((33, 96)), jnp.float32)
value, gradient = step(w, x)
bits = np.asarray(value).tobytes().hex() + np.asarray(gradient).tobytes().hex()
print(json.dumps({"bits": bits, "hits": len(hits), "directory": str(directory)}))
"""


TRAIN = """
import json, sys
import jax
from spanloom.cli.main import main
hits = []
jax.monitoring.register_event_listener(lambda name, **more: name.endswith("cache_hits") and hits.append(name))
code = main(sys.argv[1:])
print(json.dumps({"code": code, "hits": len(hits)}))
"""


def run(home, *words, program=PROGRAM, **environment):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XDG_", "SPANLOOM_"))}
    result = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        timeout=300,
        env={**clean, "HOME": str(home), "JAX_PLATFORMS": "cpu", **environment},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    return home, run(home)


def entries(home):
    return [p for p in (home / ".cache").rglob("*-cache") if "step" in p.name or "loss" in p.name]


def test_a_cached_program_gives_the_same_bits(compiled):
    """Its entry was sealed as the process ended: what training does not seal, as a command compiles it afterwards."""
    home, first = compiled
    again = run(home)
    assert first["hits"] == 0
    assert again["hits"] > 0
    assert again["bits"] == first["bits"]


@pytest.mark.parametrize("how", ["cut", "flipped", "unsealed"])
def test_a_torn_or_rotten_entry_is_replaced_without_a_word(compiled, how):
    home, first = compiled
    for path in entries(home):
        content = path.read_bytes()
        if how == "cut":
            path.write_bytes(content[: len(content) // 2])
        elif how == "flipped":
            path.write_bytes(content[:-20] + bytes([content[-20] ^ 1]) + content[-19:])
        else:
            path.with_name(path.name + SEAL).unlink()
    assert entries(home)
    assert run(home)["bits"] == first["bits"]
    whole = run(home)
    assert whole["bits"] == first["bits"]
    assert whole["hits"] > 0


def test_a_home_that_cannot_be_written_is_fine(tmp_path):
    (tmp_path / "file").write_text("")
    assert run(tmp_path / "file")["directory"] == "None"


def test_the_users_own_choice_is_left_alone(tmp_path):
    assert run(tmp_path, JAX_ENABLE_COMPILATION_CACHE="false")["directory"] == "None"
    assert run(tmp_path, JAX_COMPILATION_CACHE_DIR=str(tmp_path / "mine"))["directory"] == "None"


@pytest.mark.long
def test_a_plain_run_fills_it_and_the_next_one_takes_the_step_from_there(tmp_path):
    """No flag asks for it; the second run, of other directories, compiles nothing that the first one kept."""
    (tmp_path / "recipe.py").write_text(RECIPE)
    text = write_text(tmp_path / "text.txt")

    def trained(out):
        words = ["train", str(tmp_path / "recipe.py"), "--text", str(text), "--out", str(tmp_path / out)]
        words += ["--steps", "2", "--after.export", "false", "--after.fills", "0", "--after.baselines", "false"]
        # Without the flags of other tests' compiler, which is too fast for an entry to be worth its file.
        more = {"SPANLOOM_CACHE": str(tmp_path / "cache"), "XLA_FLAGS": ""}
        told = run(tmp_path, *words, program=TRAIN, **more)
        assert told["code"] == 0
        return told["hits"], {path.name for path in (tmp_path / "cache").rglob("jit_train_step*-cache*")}

    hits, filled = trained("first")
    (entry,) = (name for name in filled if not name.endswith(SEAL))
    assert hits == 0 and filled == {entry, f"{entry}{SEAL}"}
    hits, again = trained("second")
    assert hits > 0 and again == filled


@pytest.mark.short
def test_where_it_is(monkeypatch, tmp_path):
    for name in ("SPANLOOM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "spanloom"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "spanloom"
    monkeypatch.setenv("SPANLOOM_CACHE", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own"


@pytest.mark.short
def test_the_oldest_make_room(monkeypatch, tmp_path):
    monkeypatch.setattr("spanloom.training.compile_cache.MAX_BYTES", 250)
    for age, name in enumerate("abcd"):
        (tmp_path / f"{name}-cache").write_bytes(b"x" * 100)
        os.utime(tmp_path / f"{name}-cache", (1000 - age, 1000 - age))
    seal_entries(tmp_path)
    remove_unsealed(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a-cache", "a-cache.crc32", "b-cache", "b-cache.crc32"]
