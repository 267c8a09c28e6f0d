"""The ways to compute vᵀ∇s v."""

from __future__ import annotations

from scorefield.derivatives import either_mode, forward_mode, reverse_mode

MODES = [forward_mode, reverse_mode, either_mode]
