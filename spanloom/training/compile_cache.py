"""JAX's persistent compilation cache, so that resuming does not compile again; guarded against torn and rotten entries.

JAX writes an entry in place and never replaces one, so a run killed in the middle of a write would leave an entry that
every later run fails to read. Each whole entry therefore gets a seal, a file with its CRC-32; what has none, or
another, is deleted when a run begins.
"""

import atexit
import functools
import hashlib
import os
import zlib
from pathlib import Path
from typing import Any

import jax

from spanloom.training.machine import processor

MIN_COMPILE_SECONDS = 0.3  # smaller programs are not worth a file
MAX_BYTES = 512 * 1024**2
SEAL = ".crc32"


def cache_directory() -> Path:
    """SPANLOOM_CACHE, or spanloom/ under XDG_CACHE_HOME or ~/.cache."""
    if named := os.environ.get("SPANLOOM_CACHE"):
        return Path(named)
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # no home directory at all
        base = Path("/nonexistent")
    return base / "spanloom"


def enable_compile_cache() -> Path | None:
    """Keep compiled programs in the cache directory; returns it, or None where nothing can be written.

    A choice the user made with JAX's own JAX_COMPILATION_CACHE_DIR or JAX_ENABLE_COMPILATION_CACHE is left alone.
    Programs are kept apart by processor: one home directory may serve machines with different instruction sets, and
    JAX's key does not tell them apart.
    """
    if not _option("jax_enable_compilation_cache"):
        return None
    directory = cache_directory() / "compiled" / hashlib.sha256(processor().encode()).hexdigest()[:12]
    if _option("jax_compilation_cache_dir") not in (None, str(directory)):
        return None
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK):
            return None
        remove_unsealed(directory)
    except OSError:
        return None
    _seal_at_exit(directory)  # what is compiled after training: fills, baselines, an export
    jax.config.update("jax_compilation_cache_dir", str(directory))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_COMPILE_SECONDS)
    return directory


@functools.cache
def _seal_at_exit(directory: Path) -> None:
    atexit.register(seal_entries, directory)


def seal_entries(directory: Path) -> None:
    """Seal the entries that this process has finished writing. Call it between compilations."""
    try:
        for entry in _entries(directory):
            seal = entry.with_name(entry.name + SEAL)
            if not seal.exists():
                part = seal.with_name(f"{seal.name}.{os.getpid()}")
                part.write_text(str(zlib.crc32(entry.read_bytes())))
                part.replace(seal)
    except OSError:
        return  # no room or no longer there: an unsealed entry only costs a compilation


def remove_unsealed(directory: Path) -> None:
    """Delete entries that are not what was sealed, and the oldest ones beyond 512 MiB.

    An entry that another process is writing just now loses its name by this, and costs a compilation later.
    """
    room = MAX_BYTES
    for entry in sorted(_entries(directory), key=lambda path: path.stat().st_mtime, reverse=True):
        seal = entry.with_name(entry.name + SEAL)
        content = entry.read_bytes()
        room -= len(content)
        if room < 0 or not seal.exists() or seal.read_text() != str(zlib.crc32(content)):
            entry.unlink(missing_ok=True)
            seal.unlink(missing_ok=True)


def _entries(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if path.name.endswith("-cache")]


def _option(name: str) -> Any:
    return getattr(jax.config, name)
