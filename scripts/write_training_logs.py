"""Write the training logs of pretrained models for the web page, which shows them where there is no run of the user's.

    python scripts/write_training_logs.py

Each is made from the model's report, docs/results/NAME/report.json, and says so. It has the form of the API's
/api/runs/NAME, with fewer rows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scorefield.files import write_json
from scorefield.training.history import LogTable

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "scorefield" / "web" / "page" / "logs"
NAMES = ("mnist-small", "mnist")
ROWS = 100


def log_of(name: str) -> dict[str, Any]:
    """A pretrained model's training as the web page shows it."""
    report = json.loads((ROOT / "docs" / "results" / name / "report.json").read_text(encoding="utf-8"))
    model, training = report["model"], report["training"]
    return {
        "name": f"{name} (pretrained)",
        "source": f"docs/results/{name}/report.json",
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
