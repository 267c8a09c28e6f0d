"""Write the training logs of pretrained models for the web page, which shows them where there is no run of the user's.

    python scripts/write_training_logs.py

Each has the form of the API's /api/runs/NAME, with fewer rows, and names its source. That is the model's report,
docs/results/NAME/report.json, except of unet-mnist, of whose training only the held-out losses were kept.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scorefield.files import write_json
from scorefield.models.model import load
from scorefield.training.history import LogTable

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "scorefield" / "web" / "page" / "logs"
NAMES = ("unet-mnist", "mnist-small", "mnist")
HELD_OUT_ALONE = {"unet-mnist": "docs/measurements/unet_mnist_training.json"}
ROWS = 100


def log_of(name: str) -> dict[str, Any]:
    """A pretrained model's training as the web page shows it."""
    if name in HELD_OUT_ALONE:
        return _held_out_alone(name)
    source = f"docs/results/{name}/report.json"
    report = _read(source)
    model, training = report["model"], report["training"]
    return {
        "name": f"{name} (pretrained)",
        "source": source,
        "step": model["step"],
        "steps": model["step"],  # the recipe's number was cut short by a limit of time
        "state": "done",
        "shape": model["shape"],
        "seconds": training["seconds"],
        "images_per_second": training["images_per_second"],
        "recipe": model["recipe"],
        "log": _thinned(training["log"]),
        "held_out": _thinned(training["held_out"]),
        "samples": [],
    }


def _held_out_alone(name: str) -> dict[str, Any]:
    source = HELD_OUT_ALONE[name]
    model, losses = _read(f"docs/results/{name}/model.json"), _read(source)["held_out"]
    return {
        "name": f"{name} (pretrained)",
        "source": source,
        "step": model["step"],
        "steps": model["step"],
        "state": "done",
        "shape": list(load(ROOT / "scorefield" / "weights" / f"{name}.safetensors").shape),
        "seconds": model["seconds"],
        "images_per_second": None,
        "recipe": model["recipe"],
        "log": {"columns": [], "rows": []},
        "held_out": {
            "columns": ["step", "held_out", "ema_held_out"],
            "rows": [[each["step"], each["raw"], each["average"]] for each in losses],
        },
        "samples": [],
    }


def _read(path: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((ROOT / path).read_text(encoding="utf-8"))
    return content


def _thinned(log: dict[str, Any]) -> dict[str, Any]:
    table = LogTable(columns=tuple(log["columns"]), rows=tuple(map(tuple, log["rows"]))).thinned(ROWS)
    return {"columns": table.columns, "rows": table.rows}


def main() -> None:
    LOGS.mkdir(exist_ok=True)
    for name in NAMES:
        write_json(LOGS / f"{name}.json", log_of(name))
        print(LOGS / f"{name}.json")


if __name__ == "__main__":
    main()
