"""What is sent to hosts: the repository as it stands, and the same bytes for the same files."""

import hashlib
import io
import json
import os
import subprocess
import tarfile

import pytest

from spanloom.launch import bundle as bundles
from spanloom.launch.bundle import BundleError, make_bundle

HOSTILE = 'it\'s $(touch x); "a"\nb'


def git(folder, *words):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "protocol.file.allow=always")
    return subprocess.run(
        ["git", "-C", str(folder), *identity, *words], check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def repository(tmp_path):
    top = tmp_path / "repository"
    (top / "runs").mkdir(parents=True)
    git(top, "init", "-q")
    (top / "recipe.py").write_text("first")
    (top / "gone.py").write_text("gone")
    (top / "run.sh").write_text("#!/bin/sh")
    (top / "run.sh").chmod(0o755)
    (top / ".gitignore").write_text("data.txt\n")
    git(top, "add", ".")
    git(top, "commit", "-qm", "one")
    return top


def made(top, recipe="recipe.py", here=None):
    return make_bundle(recipe, top / recipe, here or top)


def contents(bundle):
    with tarfile.open(fileobj=io.BytesIO(bundle.data)) as archive:
        return {member.name: member for member in archive}


def text(bundle, name):
    with tarfile.open(fileobj=io.BytesIO(bundle.data)) as archive:
        return archive.extractfile(name).read().decode()


def test_the_working_tree_is_sent_with_what_is_not_committed(repository):
    (repository / "recipe.py").write_text("second")
    (repository / "new.py").write_text("new")
    (repository / "data.txt").write_text("ignored")
    (repository / "gone.py").unlink()
    bundle = made(repository)
    names = contents(bundle)
    assert text(bundle, "code/recipe.py") == "second" and text(bundle, "code/new.py") == "new"
    assert "code/data.txt" not in names and "code/gone.py" not in names
    assert "package/spanloom/cli/main.py" in names and not [name for name in names if "__pycache__" in name]
    assert bundle.commit == git(repository, "rev-parse", "HEAD").strip()
    assert sorted(bundle.changed) == ["gone.py", "new.py", "recipe.py"]
    assert f"commit {bundle.commit[:12]}, 3 files changed or new since" in bundle.described()
    assert names["code/run.sh"].mode == 0o755


def test_equal_files_make_equal_bundles_and_any_change_another_one(repository):
    first = made(repository)
    os.utime(repository / "recipe.py", (1, 1))
    assert made(repository).hash == first.hash
    (repository / "recipe.py").write_text("other")
    assert made(repository).hash != first.hash


def test_the_hash_of_every_file_is_in_it(repository):
    (repository / "link.py").symlink_to("recipe.py")
    bundle = made(repository)
    listed = json.loads(text(bundle, "bundle.json"))["files"]
    assert listed["code/recipe.py"] == hashlib.sha256(b"first").hexdigest()
    assert listed["code/link.py"] == hashlib.sha256(b"recipe.py").hexdigest()
    assert listed.keys() == {name for name, member in contents(bundle).items() if not member.isdir()} - {"bundle.json"}


def test_where_the_command_was_given_is_kept(repository):
    assert made(repository, here=repository / "runs").directory == "code/runs"
    assert made(repository).directory == "code"
    assert "code/runs" in contents(made(repository, here=repository / "runs"))  # though git knows no empty folders


def test_hostile_and_undecodable_names_arrive(repository):
    (repository / HOSTILE).mkdir()
    (repository / HOSTILE / "recipe.py").write_text("x")
    with open(os.fsencode(repository) + b"/\xff.txt", "w"):
        pass
    bundle = made(repository, f"{HOSTILE}/recipe.py")
    assert bundle.recipe == f"code/{HOSTILE}/recipe.py"
    assert {f"code/{HOSTILE}/recipe.py", "code/\udcff.txt"} <= contents(bundle).keys()


def test_a_recipe_that_git_ignores_is_sent_nevertheless(repository):
    (repository / ".gitignore").write_text("own.py\n")
    (repository / "own.py").write_text("own")
    assert text(made(repository, "own.py"), "code/own.py") == "own"


def test_submodules_are_sent(repository, tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "a.py").write_text("a")
    git(inner, "add", ".")
    git(inner, "commit", "-qm", "one")
    git(repository, "submodule", "add", "-q", str(inner), "inner")
    assert text(made(repository), "code/inner/a.py") == "a"


def test_outside_of_git_the_recipe_alone_is_sent(tmp_path):
    (tmp_path / "recipe.py").write_text("x")
    (tmp_path / "secret.txt").write_text("x")
    bundle = made(tmp_path)
    assert [name for name in contents(bundle) if name.startswith("code/")] == ["code/recipe.py"]
    assert bundle.commit is None and "no git repository" in bundle.described()


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside"])
def test_a_link_out_of_the_repository_is_refused(repository, target):
    (repository / "link").symlink_to(target)
    with pytest.raises(BundleError, match=r"link to .*, outside of the repository.*gitignore"):
        made(repository)


def test_data_in_the_repository_is_refused_by_name(repository, monkeypatch):
    monkeypatch.setattr(bundles, "LARGEST", 8 * 2**20)
    (repository / "corpus.txt").write_bytes(b"x" * 9 * 2**20)
    with pytest.raises(BundleError, match=r"corpus.txt \(9 MiB\).*gitignore"):
        made(repository)


def test_without_git_the_recipe_alone_is_sent(repository, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert made(repository).commit is None
