"""The share of one of several jobs that build the same stores together."""

import re
import zlib
from dataclasses import dataclass


@dataclass(frozen=True)
class BuildShare:
    """Job `index` of `of`, counted from 0. Each makes every `of`-th shard of each store."""

    index: int
    of: int

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"

    def owner(self, store: str, number: int) -> int:
        """The job that makes a shard. `store`: a name of its own, so that not all first shards are one job's."""
        return (number + zlib.crc32(store.encode())) % self.of

    def owns(self, store: str, number: int) -> bool:
        """Whether this job makes that shard."""
        return self.owner(store, number) == self.index


def share_of(text: str) -> BuildShare:
    """'3/8' as a share. Raises ValueError for what is none, and says what would be one."""
    match = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", text)
    if not match:
        raise ValueError("must be two numbers, job/jobs: the jobs of an array of 8 are 0/8, 1/8, ... 7/8")
    index, of = map(int, match.groups())
    if not of:
        raise ValueError("there must be 1 job or more")
    if index >= of:
        jobs = f"0/{of}" if of == 1 else f"0/{of} to {of - 1}/{of}"
        raise ValueError(
            f"jobs are counted from 0, so those of an array of {of} are {jobs} (SLURM: --array=0-{of - 1}; of an array "
            f"that begins with 1: --shard $((SLURM_ARRAY_TASK_ID - 1))/{of})"
        )
    return BuildShare(index, of)
