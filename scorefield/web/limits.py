"""What one request may ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The most of everything."""

    n: int = 64
    """Samples of a job."""
    completions: int = 16
    """Completions of an image."""
    steps: int = 200
    """T, or the model's own where that is more."""
    points: int = 2000
    """Of the playground."""
    modes: int = 8
    """Of its mixture."""
    levels: int = 50
    """Of its noise."""
    updates: int = 5000
    """Its steps, over all levels."""
    field: int = 64
    """Places at which the score field is asked for, along each side."""
    upload_bytes: int = 10_000_000
    """All that comes with one request, files and fields."""
    json_bytes: int = 100_000
    """The same for a request of JSON."""
    pixels: int = 25_000_000
    """Of an image, known from its header, before it is decoded."""
    side: int = 20_000
    """Its width or height."""
    queue: int = 8
    """Jobs that wait."""
    frames: int = 60
    """Kept of each job."""
    jobs: int = 32
    """Finished ones that are kept."""
    job_bytes: int = 500_000_000
    """Their frames, together."""
    job_seconds: float = 600.0
    """How long they are kept."""
    idle_seconds: float = 60.0
    """How often a worker without work looks for jobs to forget."""
    grace_seconds: float = 3.0
    """From the moment that the last listener left until the job is cancelled."""
