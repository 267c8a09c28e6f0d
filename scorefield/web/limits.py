"""The most that one request may ask for, and how long results are kept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The server's limits. GET /api/models shows them."""

    n: int = 64
    """Samples in one job."""
    completions: int = 16
    """Completions of one image."""
    steps: int = 200
    """Whole-number settings of a sampler, such as its steps per noise level; or the model's own, if that is more."""
    points: int = 2000
    """Points in the playground."""
    modes: int = 8
    """Modes of the playground's mixture."""
    levels: int = 50
    """Noise levels in the playground."""
    updates: int = 5000
    """Steps in the playground, over all noise levels."""
    field: int = 64
    """Grid points of the score field along each side."""
    upload_bytes: int = 10_000_000
    """Size of a form with all its files and fields."""
    json_bytes: int = 100_000
    """Size of a JSON request."""
    pixels: int = 25_000_000
    """Pixels of an image, as its header says, before it is decoded."""
    side: int = 20_000
    """Width or height of an image."""
    queue: int = 8
    """Jobs that wait."""
    frames: int = 60
    """Frames that are kept of each job."""
    jobs: int = 32
    """Finished jobs that are kept."""
    job_bytes: int = 500_000_000
    """Size of the frames of all finished jobs together."""
    job_seconds: float = 600.0
    """How long a finished job is kept."""
    idle_seconds: float = 60.0
    """How often an idle worker looks for jobs to delete."""
    grace_seconds: float = 3.0
    """Time between the moment when a job's last listener disconnects and the moment when the job is cancelled."""
