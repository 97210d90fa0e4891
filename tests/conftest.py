"""Settings shared by all tests: CPU only, no network, quiet logs."""

import os
import signal
from importlib.metadata import version
from pathlib import Path

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

LONG = (
    "cli/test_changed_data.py",
    "cli/test_closing.py",
    "cli/test_end_to_end.py",
    "cli/test_eval.py",
    "cli/test_line_job.py",
    "cli/test_objectives.py",
    "cli/test_preprocessors.py",
    "evaluation/test_loaded_mesh.py",
    "launch/test_local.py",
    "launch/test_on_host.py",
    "launch/test_real_training.py",
    "launch/test_slurm.py",
    "launch/test_ssh.py",
    "launch/test_tpu.py",
    "model/test_own_case.py",
    "model/test_t5.py",
    "optim/test_train_trajectory.py",
    "pipeline/spool/test_spool.py",
    "pipeline/test_build_workers.py",
    "pipeline/test_shared_build.py",
    "recipes/test_real_runs.py",
    "recipes/test_six_languages.py",
    "recipes/test_twins.py",
    "scale/test_mesh.py",
    "test_benchmarks.py",
    "test_docs.py",
    "test_from_t5x.py",
    "test_readme.py",
    "training/test_filling.py",
    "training/test_kept_weights.py",
    "training/test_mixture.py",
    "training/test_origin.py",
    "training/test_plan.py",
    "training/test_processes.py",
    "training/test_resume.py",
    "training/test_stages.py",
    "training/test_streams.py",
    "training/test_trackers.py",
)
"""Files that compile, train and kill for half a minute and more: `make test`, which is to take ten, leaves them out."""


def pytest_configure(config: pytest.Config) -> None:
    """Tests compile much and compute little, and most of a compilation is MLIR's and LLVM's work: left out where
    nothing is compared with the numbers of other programs, to whose last digits it matters. XLA reads this at its first
    use.
    """
    if "not golden" in config.option.markexpr:
        flags = ["--xla_backend_optimization_level=0"]
        if version("jaxlib").startswith("0.10."):  # a flag that later ones do not know ends the process
            flags.append("--xla_cpu_use_fusion_emitters=false")
        os.environ.setdefault("XLA_FLAGS", " ".join(flags))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's background jobs have it; children inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.relative_to(here).as_posix() in LONG:
            item.add_marker(pytest.mark.long)
    # First what takes minutes, so that no worker is left with it alone at the end.
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
