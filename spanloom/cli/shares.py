"""The --shard of commands whose work several jobs share."""

from spanloom.cli.errors import UsageError
from spanloom.pipeline.share import BuildShare, share_of


def share_named(text: str) -> BuildShare:
    """The job that --shard I/N names. Raises UsageError."""
    try:
        return share_of(text)
    except ValueError as error:
        raise UsageError(f"--shard {text}: {error}") from None
