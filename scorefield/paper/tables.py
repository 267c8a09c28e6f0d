"""The tables of the results page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scorefield.evaluation.digits import share_error
from scorefield.paper.fig1 import amount, words_of
from scorefield.paper.paper import HOLES, ROBUST, TABLE_1, DataSet, Exhibit
from scorefield.progress import duration

Reports = dict[str, dict[str, Any]]
"""By the name of the folder that they lie in."""
KINDS = {"plain": "", "denoised": ", denoised"}
"""Samples without and with the last denoising step."""
HOLES_COLUMNS = (
    "In numbers: of how many images; how much is hidden; the distance of completions to the known pixels, in units of "
    "the last level's σ (1 by construction, unless the algorithm is wrong); in the hole, the distance between two "
    "completions of an image, beside that between two images (these three are root mean squares, of values from 0 to "
    "1); and how steep completions are across the hole's border and inside it, in units of images with as much noise, "
    "so that a seam would have the former much above the latter."
)
"""What the columns of numbers about completions are."""
WORDS = {"averaged": "means of two digits", "composed": "digits put together of two"}


def table(head: list[str], rows: list[list[str]]) -> str:
    """Markdown. Rows with nothing in them but their name are left out."""
    lines = [head, ["---"] * len(head), *(row for row in rows if any(cell != "–" for cell in row[1:]))]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def numbers(data_set: DataSet, mine: Reports, titles: dict[str, str]) -> str:
    """FID and the rest: the paper's, then each model's; in the last column real images where they were measured."""
    measured = {name: report for name, report in mine.items() if "numbers" in report}
    if not measured:
        return ""
    digits = next((report["digits"]["test"] for report in mine.values() if "test" in report.get("digits", {})), None)
    against = sorted({_against(report["numbers"]) for report in measured.values()})
    real = next((report["real"] for report in mine.values() if "real" in report), None) if len(against) == 1 else None
    head = ["", "the paper", *(titles[name] for name in measured), *(["real test images"] if digits or real else [])]
    rows = []
    for kind, words in KINDS.items():
        plain = kind == "plain"
        for title, paper, show in _metrics(data_set, kind):
            cells = [show(report["numbers"][kind]) for report in measured.values()]
            rows.append([f"{title}{words}", paper, *cells, show(real) if real and plain else "–"])
        for title, show_digits in VERDICTS.items() if digits else ():
            cells = [show_digits(report.get("digits", {}).get(kind)) for report in measured.values()]
            rows.append([f"{title}{words}", "–", *cells, show_digits(digits if plain else None)])
    losses = [_loss(report["numbers"]) for report in measured.values()]
    rows.append(["objective, Eq. 6, held-out images", "–", *losses, "–"])
    rows = [row[: len(head)] for row in rows]  # without the last column where nothing real was measured
    note = (
        f"{data_set.remark} Compared with {'; '.join(against)}. Denoised: after one more step, "
        "x + σ² s(x, σ), which takes off the last level's noise; hardly seen, that noise weighs on FID and KID. "
        "Precision is the share of samples that lie among real images in Inception's features: even static may."
    ).strip()
    note += " Test images are compared likewise; as many samples of a perfect model would come close." if real else ""
    note += _judge(digits) if digits else ""
    note += _why_no_score(measured) if data_set.inception else ""
    return f"{note}\n\n{table(head, rows)}" + (f"\n{_table_1(measured, titles, real)}" if data_set.inception else "")


def _why_no_score(measured: Reports) -> str:
    """What kept the Inception score from being measured, in the words of the report."""
    why = {note for report in measured.values() for note in report["numbers"].get("preprocessing", [])}
    return "".join(f" There is {note}." for note in sorted(why) if note.startswith("no Inception score"))


def _judge(real: dict[str, Any]) -> str:
    """What the classifier of digits is worth: the kinds of images that are none and that it lets pass most."""
    rejected = {**real.get("rejected", {}), **real.get("rejected_unseen", {})}
    shares = sorted((share, kind) for kind, share in rejected.items())
    if len(shares) < 3:
        return ""
    weak = ", ".join(f"{share:.0%} of {WORDS.get(kind, kind)}" for share, kind in shares[:2])
    return (
        f" Accepted: called a digit with a confidence over 0.9, by a classifier of {real['accuracy']:.2%} accuracy "
        f"that has a class for what is none; of {len(shares)} kinds of these it rejects {weak} and {shares[2][0]:.1%} "
        "or more of each other kind. Distance to uniform: ½ Σ |share of a digit − 1/10|."
    )


def _metrics(data_set: DataSet, kind: str) -> list[tuple[str, str, Callable[[dict[str, Any]], str]]]:
    """(name, the paper's value, how ours is shown). The paper takes no last denoising step."""
    paper_fid, paper_score = (data_set.fid, data_set.inception) if kind == "plain" else (None, None)
    return [
        ("FID", paper_fid or "–", _fid),
        ("Inception score", paper_score or "–", _inception_score),
        ("KID", "–", lambda found: _kept(found, "kid", ".5f", "kid_standard_error")),
        ("precision", "–", lambda found: _kept(found, "precision", ".3f")),
        ("recall", "–", lambda found: _kept(found, "recall", ".3f")),
    ]


def _number(value: float | None, form: str) -> str:
    """A dash for null, which stands for what is not finite too."""
    return "–" if value is None else format(value, form)


def _kept(found: dict[str, Any], name: str, form: str, error: str = "") -> str:
    """With of how many samples and of how many real images."""
    if found.get(name) is None:
        return "–"
    spread = f" ± {_number(found[error], form)}" if error else ""
    return f"{found[name]:{form}}{spread} (n = {found['kept_n'][0]:,} and {found['kept_n'][1]:,})"


def _fid(found: dict[str, Any]) -> str:
    few = ", too few" if any("too few" in note for note in found.get("notes", [])) else ""
    return "–" if found["fid"] is None else f"{found['fid']:.2f} (n = {found['n']:,}{few})"


def _inception_score(found: dict[str, Any]) -> str:
    if found.get("inception_score") is None:
        return "–"
    deviation = _number(found["inception_score_deviation"], ".2f")
    return f"{found['inception_score']:.2f} ± {deviation} (n = {found['n']:,})"


def _accepted(verdict: dict[str, Any] | None) -> str:
    """A share with its standard error."""
    if verdict is None:
        return "–"
    p, n = verdict["accepted"], verdict["n"]
    return f"{p:.2%} ± {share_error(p, n):.2%} (n = {n:,})"


def _histogram(verdict: dict[str, Any] | None) -> str:
    if verdict is None or verdict["distance_to_uniform"] is None:
        return "–"
    chance = f" (by chance {verdict['distance_by_chance']:.3f})" if "distance_by_chance" in verdict else ""
    return f"{verdict['distance_to_uniform']:.3f}{chance}"


VERDICTS = {"accepted as digits": _accepted, "distance of the digits' histogram to uniform": _histogram}
"""What the judge of digits says, and how it is shown."""


def _loss(found: dict[str, Any]) -> str:
    if found.get("loss") is None:
        return "–"
    alone = ", of its one level" if len(found["loss_per_level"]) == 1 else ""  # not to be compared with a mean of many
    return f"{found['loss']:.2f} (n = {found['loss_n']:,}{alone})"


def _against(found: dict[str, Any]) -> str:
    reference = found["reference"]
    count = "an unknown number of images" if reference["n"] is None else f"{reference['n']:,} images"
    return f"{count} of {reference['name']} ({reference['digest']})"


def _table_1(measured: Reports, titles: dict[str, str], real: dict[str, Any] | None) -> str:
    """The paper's Table 1, with ours in it."""
    rows = []
    for group, scores in TABLE_1.items():
        for model, inception, fid, trained in scores:
            rows.append([f"{model} ({group}, the paper)", inception, fid or "–", trained])
    for name, report in measured.items():
        for kind, words in KINDS.items():
            found = report["numbers"][kind]
            cells = [_inception_score(found), _fid(found), _training(report)]
            rows.append([f"**{titles[name]}{words} (unconditional, ours)**", *cells])
    rows += [["real test images", _inception_score(real), _fid(real), "–"]] if real else []
    return "Table 1 of the paper, with ours:\n\n" + table(["model", "Inception score", "FID", "training"], rows)


def _training(report: dict[str, Any]) -> str:
    """How long a model was trained, in iterations and, where its run is known, in time."""
    model, seconds = report["model"], report.get("training", {}).get("seconds")
    took = "" if seconds is None else f", {duration(seconds)}"
    return f"{model['step']:,} iterations{took}" + (f" on {model['machine']}" if took and "machine" in model else "")


def losses(mine: Reports, titles: dict[str, str]) -> str:
    """The held-out loss at each noise level."""
    each = {}
    for name, report in mine.items():
        if "loss_per_level" in report.get("numbers", {}):
            sigmas = (f"{sigma:.3g}" for sigma in report["model"]["sigmas"])
            each[name] = dict(zip(sigmas, report["numbers"]["loss_per_level"], strict=True))
    if not each:
        return ""
    levels = sorted({sigma for values in each.values() for sigma in values}, key=float, reverse=True)
    rows = [[sigma, *(_number(values.get(sigma), ".2f") for values in each.values())] for sigma in levels]
    words = (
        "Losses at each noise level, σ² ℓ(σ), on held-out images (the paper reports none). Training looks at the first "
        "of these images only, so its curves may end elsewhere:\n\n"
    )
    return words + table(["σ", *(titles[name] for name in each)], rows)


def robustness(mine: Reports, titles: dict[str, str]) -> str:
    """FID, and KID in thousandths, by step size and number of steps."""
    parts = []
    for name, report in mine.items():
        if (made := report.get("robustness")) is None:
            continue
        cells = {(cell["step_size"], cell["steps"]): cell for cell in made["cells"]}
        step_sizes, steps = (sorted({key[k] for key in cells}) for k in (0, 1))
        rows = [[f"ε = {e:g}", *(_cell(cells.get((e, t))) for t in steps)] for e in step_sizes]
        parts.append(
            f"Other settings of the sampler: {ROBUST} {titles[name]}, FID (KID in thousandths), n = {made['n']:,}; "
            "FID of so few samples is larger, and comparable only with values of the same n.\n\n"
            + table(["", *(f"T = {t}" for t in steps)], rows)
        )
    return "\n".join(parts)


def _cell(found: dict[str, Any] | None) -> str:
    if found is None:
        return "–"
    if "diverged" in found:
        return "diverges"
    kid = found.get("kid")
    return f"{_number(found['fid'], '.1f')}" + (f" ({1000 * kid:.1f})" if kid is not None else "")


def holes(numbers: Sequence[tuple[str, dict[str, dict[str, Any]]]]) -> str:
    """What completions of each data set are like, by the shape of the hole."""
    rows = [
        [
            f"{title}, {HOLES.get(hole, hole)}",
            f"{told['images']}",
            _number(told.get("hidden"), ".0%"),
            _number(told["known_error"], ".2f"),
            _number(told["distance"], ".3f"),
            _number(told["distance_between_images"], ".3f"),
            _number(told["seam"], ".2f"),
            _number(told.get("inside"), ".2f"),
        ]
        for title, masks in numbers
        for hole, told in masks.items()
    ]
    head = ["hidden", "n", "share", "known", "completions", "images", "border", "inside"]
    return f"{HOLES_COLUMNS}\n\n{table(head, rows)}"


def caption(exhibit: Exhibit, report: dict[str, Any]) -> str:
    """What is to be said below a picture of ours."""
    made, seed = report[exhibit.part], report["sampler"]["seed"]
    if exhibit.part == "samples":
        last = ", with the last denoising step" if exhibit.picture == "samples_denoised.png" else ""
        return f"the first {made['shown']} samples of seed {seed}{last}"
    if exhibit.part == "stages":
        return f"after {', '.join(f'{step:,}' for step in made['steps'])} steps"
    if exhibit.part == "inpainting":
        told = made["masks"][exhibit.picture.removesuffix(".png").removeprefix("inpainting_")]
        last = "" if report["sampler"]["denoise"] else ", without the last denoising step"
        return f"{told['completions']} completions each{last}"
    told, others = made[exhibit.picture.removesuffix(".png")], made.get("others", "held-out images")
    return (
        f"{len(told['copies'])} of {told['n']:,} samples are copies by our measure, and {told['held_out_copies']} of "
        f"{told['held_out_n']:,} {others}; the median distance to the nearest training image is "
        f"{_number(told['ratio']['0.5'], '.2f')} times theirs"
    )


def figure_caption(name: str, numbers: dict[str, Any]) -> str:
    """What is to be said below a figure that is not about an image model."""
    if name == "fig1":
        ends = [_end(sigma, told) for sigma, told in numbers["spread"].items()]
        return f"{'; '.join(ends)}; arithmetic in {numbers['precision']}"
    if name == "fig2":
        near, far = numbers["relative_error_near"], numbers["relative_error_far"]
        return f"relative error {near:.2f} {numbers['near']}, {far:.2f} {numbers['far']}"
    share = numbers["heavy_fraction"]
    return "share of samples in the mode of weight 0.8: " + ", ".join(f"{key} {p:.2f}" for key, p in share.items())


def _end(sigma: str, told: dict[str, Any]) -> str:
    words = f"σ = {sigma}, {words_of(told)}"
    if "not_finite_from" in told:
        return words
    wander = "–" if told["wander"] is None else amount(told["wander"])
    return f"{words}, median {amount(told['quantiles']['50'])}, means of 100 iterations ± {wander}"
