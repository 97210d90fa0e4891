"""A bucket for run directories: training needs a folder, so that it is mounted, by commands for its owner to run."""

import re
import shlex


def bucket_of(address: str) -> tuple[str, str]:
    """The bucket of gs://BUCKET/PATH, and the path. Raises ValueError for what is no such address."""
    found = re.fullmatch(r"gs://([a-z0-9][a-z0-9._-]{1,220}[a-z0-9])/+([^\s].*?)/*", address)
    if not found:
        raise ValueError(f"{address} is no gs://BUCKET/PATH")
    return found[1], found[2]


def mount_point(bucket: str) -> str:
    """Where hosts are to have it."""
    return f"/mnt/{bucket}"


def creation(bucket: str = "BUCKET", region: str = "REGION") -> str:
    """The command that makes a bucket; one near the TPU costs no transfer."""
    return shlex.join(["gcloud", "storage", "buckets", "create", f"gs://{bucket}", "--location", region])


def mounting(bucket: str) -> str:
    """The shell line that mounts it on a host, once gcsfuse is installed there."""
    place = shlex.quote(mount_point(bucket))
    return f"sudo mkdir -p {place} && sudo chown $USER {place} && gcsfuse --implicit-dirs {shlex.quote(bucket)} {place}"


def region_of(zone: str) -> str:
    """us-central2 of us-central2-b."""
    return zone.rpartition("-")[0] or "REGION"
