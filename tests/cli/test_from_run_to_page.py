"""The whole way from the command line: train, report, results."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from small_evaluation import dots
from small_evaluation import small as small

from scorefield.cli import main
from scorefield.evaluation.records import read_report


def test_from_a_run_to_the_page(small: object, tmp_path: Path) -> None:
    np.save(tmp_path / "dots.npy", dots(40, 0, (12, 12)))
    options = "--image-size None --width 2 --levels 2 --held-out 6 --steps 3 --batch-size 4 --previews 0"
    options += " --log-every 1 --evaluate-every 1 --sample-steps 3"
    main(["train", "tiny", "--data", str(tmp_path / "dots.npy"), "--out", str(tmp_path / "run"), *options.split()])
    results = tmp_path / "docs" / "results"
    main(["report", str(tmp_path / "run"), "--out", str(results / "dots"), "-n", "30"])
    main(["results", str(results), "--out", str(tmp_path / "docs" / "results.md")])
    text, report = (tmp_path / "docs" / "results.md").read_text(), read_report(results / "dots" / "report.json")
    assert report.numbers is not None
    assert f"{report.numbers.denoised.fid:.2f}" in text
    assert f"{report.numbers.plain.inception_score:.2f} ± " in text
    pictures = re.findall(r'src="(.*?)"', text)
    assert pictures
    assert all((tmp_path / "docs" / picture).is_file() for picture in pictures)
    assert (results / "dots" / "losses.png").is_file()  # the curves of the run's own logs
