"""The most that one request may ask for, and how long results are kept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The server's limits. GET /api/models shows them."""

    n: int = 64  # samples in one job
    completions: int = 16  # of one image
    steps: int = 200  # whole-number settings of a sampler; or the model's own, if that is more
    points: int = 2000  # in the playground
    modes: int = 8  # of the playground's mixture
    levels: int = 50  # noise levels in the playground
    updates: int = 5000  # steps in the playground, over all noise levels
    field: int = 64  # grid points of the score field along each side
    upload_bytes: int = 10_000_000  # of a form with all its files and fields
    json_bytes: int = 100_000  # of a JSON request
    pixels: int = 25_000_000  # of an image, as its header says, before it is decoded
    side: int = 20_000  # width or height of an image
    queue: int = 8  # jobs that wait
    client_queue: int = 4  # jobs of one client that wait
    work_seconds: float = 1800.0  # the estimated time of one job; it is stopped if it takes more than twice as long
    client_seconds: float = 3600.0  # the estimated time of all jobs of one client, waiting and running
    frames: int = 60  # that are kept of each job
    jobs: int = 32  # finished jobs that are kept
    job_bytes: int = 500_000_000  # of the frames of all finished jobs together
    job_seconds: float = 600.0  # how long a finished job is kept
    idle_seconds: float = 60.0  # how often an idle worker looks for jobs to delete
    unheard_seconds: float = 300.0  # after which a job that nobody listens to and nobody asks about is cancelled
    grace_seconds: float = 3.0  # from the moment when a job's last listener disconnects until the job is cancelled
