"""Recipes: all settings that decide what a training run computes. The paper's settings are the defaults.

This module does not import PyTorch, so that the command line can list the recipes at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from scorefield.files import parse_json
from scorefield.spacing import check_geometric

MOST = 10_000
"""The largest width of a network, and the largest number of noise levels."""
WIDEST = 0.25
"""The largest relative width of a moving average that grows with the run."""


def _is(value: object, kind: Any) -> bool:  # noqa: ANN401
    """Whether a value, which may come from a file, is of the type that a setting has."""
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_is(each, get_args(kind)[0]) for each in value)
    kinds = get_args(kind) or (kind,)
    if isinstance(value, tuple):
        pairs = [each for each in kinds if get_origin(each) is tuple]
        return any(len(value) == len(get_args(pair)) and all(_is(each, int) for each in value) for pair in pairs)
    if isinstance(value, (bool, str, NoneType)):
        return type(value) in kinds
    if isinstance(value, int) and value.bit_length() > 1000:  # more than a float can hold
        return False
    return isinstance(value, Integral) if int in kinds else isinstance(value, Real) and float in kinds


@dataclass(frozen=True)
class Recipe:
    """All settings of one training run. Equal recipes, with the same data and start, compute the same numbers."""

    data: str = "mnist"
    """Training images: mnist, cifar10, celeba, a folder of images, or an .npy/.npz of bytes (N, H, W[, C])."""
    image_size: int | tuple[int, int] | None = None
    """Resize images to this side, or to this height and width, after cropping to that shape. None keeps their size if
    it is the same for all; otherwise, and for unet if they have more pixels than 64 × 64 (on a CPU: than 32 × 32), a
    size is chosen."""
    crop: int | None = None
    """First crop a centred square of this side from each image. None does not crop."""
    flip: bool = False
    """Mirror each image left to right with probability 1/2."""
    dequantise: bool = True
    """Add uniform noise between the 256 grey values, x·255/256 + u/256, as the released code does. The paper does not
    mention it."""
    held_out: int = 512
    """Number of held-out images on which the loss is measured. For a named data set they come from its test split. 0
    holds none out."""

    network: str = "refinenet"
    """The network: refinenet, the paper's, which knows a list of noise levels, or unet, for all in a range."""
    width: int = 64
    """Number of filters at full resolution (the paper: 64 for MNIST, 128 for CIFAR-10 and CelebA). 0, for unet: by the
    size of the images."""
    stages: tuple[int, ...] = ()
    """unet: the number of filters at each resolution, as multiples of the width; each resolution is half the one
    before. None given: by the size of the images."""
    blocks: tuple[int, ...] = ()
    """unet: the number of residual blocks at each resolution, on the way down and again on the way up. None given: 3
    at each."""
    attention: tuple[int, ...] = ()
    """unet: the resolutions with attention, counted from 0, the full one."""
    dropout: float = 0.0
    """unet: the probability that an entry inside of a block is left out in training."""
    labels: bool = False
    """unet: learn the classes of the images, if they have any."""
    label_dropout: float = 0.1
    """unet: the share of labels that are left out in training, so that the network learns to do without as well."""
    sigma_data: float = 0.25
    """unet: the root mean square of pixel − 0.5 over the data, about 0.25 for photographs in [0, 1]. 0 measures it."""

    sigma_max: float = 1.0
    """Largest noise level σ₁, for pixels in [0, 1]."""
    sigma_min: float = 0.01
    """Smallest noise level σ_L."""
    levels: int = 10
    """Number of noise levels L, in geometric progression."""
    sigma_draw: Literal["levels", "log_normal"] = "levels"
    """How a noise level is drawn for each image in training: one of the levels, or from a log-normal distribution
    within the range, for networks that accept all."""
    log_sigma_mean: float = -0.5
    """The mean of ln(σ/sigma_data), for log_normal."""
    log_sigma_std: float = 1.2
    """Its standard deviation."""
    weight: Literal["paper", "unit", "learned"] = "paper"
    """The weight λ(σ) of a noise level in the loss: paper is σ²; unit is σ²(1 + σ²/σ_data²), with which all levels have
    about the same loss at the beginning; learned divides that by the loss that the network expects at σ."""
    start: str | None = None
    """Start from this model's weights instead of random ones: a file, a run folder or a pretrained model with the same
    network (channels, width and noise levels). Its moving average is used if it has one. Adam starts from zero, so
    --warmup 500 is advisable."""

    objective: Literal["denoising", "sliced"] = "denoising"
    """Score matching objective: denoising (Eq. 5, the paper's choice) or sliced (Eq. 3 on perturbed data, slower)."""
    steps: int = 200_000
    """Number of training iterations."""
    batch_size: int = 128
    """Images per iteration, summed over all processes."""
    learning_rate: float = 1e-3
    """Adam learning rate."""
    warmup: int = 0
    """Number of iterations over which the learning rate rises linearly from 0."""
    decay: int = 0
    """Number of iterations after which the learning rate falls as 1/√n. 0: it does not."""
    cooldown: float = 0.0
    """The last part of the run, as a share of its iterations, over which the learning rate falls linearly to 0."""
    beta2: float = 0.999
    """Adam's β₂."""
    clip: float = 0.0
    """Clip the gradient's norm to this value. 0 does not clip."""
    ema: float = 0.0
    """Decay of an exponential moving average of the weights, kept beside the raw weights; 0.999 is usual. 0 keeps no
    average, as in the paper."""
    averages: tuple[float, ...] = ()
    """Relative widths of moving averages that grow with the run (Karras et al. 2024), such as 0.05 0.1: about that
    share of the run is averaged. The first is what samples are drawn with. Instead of ema."""
    seed: int = 0
    """Seed of the initial weights, the batches and the noise."""

    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the network's arithmetic. auto is 16 bit on GPUs (float16 with the fused kernels, bfloat16 where
    they cannot run) and float32 on CPUs, but bfloat16 for unet on a CPU that has instructions for it."""
    compile: bool = False
    """Compile the plain network with torch.compile, which takes minutes. For long trainings on CPUs, and on GPUs that
    cannot run the fused kernels, which are faster."""
    deterministic: bool = False
    """Use only deterministic GPU kernels, so that a resumed run is bit-for-bit the same on a GPU too. Slower."""
    micro_batch: int = 0
    """Number of images that go through the network at once; a batch is cut into parts of this size. 0 means 32 on a
    CPU, to save memory, and the whole batch on a GPU."""

    checkpoint_every: int = 5_000
    """Iterations between checkpoints."""
    evaluate_every: int = 1_000
    """Iterations between measurements of the loss on held-out images."""
    log_every: int = 100
    """Iterations between lines of log.csv."""
    previews: int = 16
    """Number of samples drawn at each checkpoint, the same number for each class if there are few classes. 0 draws
    none."""
    preview_minutes: float = 5.0
    """unet: minutes between quick samples, which are drawn between checkpoints with few network calls: first after
    one minute, then at intervals that double up to this. They take at most 3 % of the time. 0 draws none."""
    preview_steps: int = 0
    """Sampler steps per noise level for these samples. 0 means sample_steps on a GPU and a tenth of it, with larger
    steps, on a CPU."""

    step_size: float = 2e-5
    """ε of the model's default sampler, annealed Langevin dynamics."""
    sample_steps: int = 100
    """T of the model's default sampler: its number of steps per noise level."""
    sampler: str = "annealed_langevin"
    """The model's default sampler. All others than annealed_langevin need a network for a range of noise levels."""
    sample_calls: int = 35
    """Network calls per image of another default sampler than annealed_langevin."""

    def describe(self) -> str:
        """One line for lists of recipes."""
        noise = f"{self.levels} noise levels" if self.levels > 1 else "a single noise level (baseline)"
        if self.sigma_draw == "log_normal":
            noise = "all noise levels" + ", classes" * self.labels
        width = f"width {self.width}" if self.width else "a width by the images' size"
        images = f"{self.data}, unless --data names other images"
        return f"{self.network} of {width}, {noise}, {self.steps:,} iterations; trained on {images}."

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(Recipe).items():
            if isinstance(given := getattr(self, name), list):  # from JSON
                object.__setattr__(self, name, tuple(given))
            if not _is(value := getattr(self, name), kind):
                choices = get_args(kind) if get_origin(kind) is Literal else ()
                wanted = f"one of {', '.join(choices)}" if choices else f"of type {getattr(kind, '__name__', kind)}"
                raise ValueError(f"{name} must be {wanted}; got {str(value)[:80]!r}")
        positive = (
            *("steps", "batch_size", "checkpoint_every", "evaluate_every", "log_every", "sample_steps"),
            "sample_calls",
        )
        for name in positive:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        for name in ("width", "levels"):
            least = 0 if name == "width" and self.network == "unet" else 1
            if not least <= getattr(self, name) <= MOST:
                raise ValueError(f"{name} must be from {least} to {MOST:,}; got {getattr(self, name)}")
        for name in (
            "previews",
            "preview_minutes",
            "preview_steps",
            "held_out",
            "warmup",
            "decay",
            "clip",
            "micro_batch",
            "sigma_data",
        ):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be 0 or more; got {getattr(self, name)}")
        for name in ("learning_rate", "step_size", "log_sigma_std"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be positive; got {getattr(self, name)}")
        if not 0 <= self.ema < 1:
            raise ValueError(f"ema must be from 0 (none) to just below 1; got {self.ema}")
        for name in ("dropout", "label_dropout", "cooldown", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be from 0 to just below 1; got {getattr(self, name)}")
        self._check_averages()
        self._check_unet()
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be a whole number from 0 to 2³² − 1; got {self.seed}")
        check_geometric(self.sigma_max, self.sigma_min, 2 if self.sigma_draw == "log_normal" else self.levels)
        if self.sigma_max > 1e4 or self.sigma_min < 1e-5:
            raise ValueError(
                f"sigmas must lie between 0.00001 and 10000, for pixels in [0, 1]; got {self.sigma_max:g} ... "
                f"{self.sigma_min:g}"
            )

    def _check_averages(self) -> None:
        if self.averages and self.ema:
            raise ValueError(
                f"ema and averages exclude each other; got {self.ema} and {list(self.averages)} (leave one out: --ema "
                "0, or --averages without numbers)"
            )
        names = {f"{width:g}" for width in self.averages}
        if not all(0 < width <= WIDEST for width in self.averages) or len(names) < len(self.averages):
            raise ValueError(
                f"averages must be different widths, above 0 and up to {WIDEST}; got {list(self.averages)} (0.05 and "
                "0.1 are usual)"
            )

    def _check_unet(self) -> None:
        """Raise an error for settings that only a network for all noise levels has, and for sizes beyond reason."""
        if self.network == "refinenet":
            for name, wanted in (("sigma_draw", "levels"), ("sampler", "annealed_langevin")):
                if getattr(self, name) != wanted:
                    raise ValueError(
                        f"refinenet knows a list of noise levels, so {name} must be {wanted}; got {getattr(self, name)}"
                    )
            if self.weight == "learned":
                raise ValueError("refinenet cannot learn the weight of a noise level (choose weight paper or unit)")
            for name in ("stages", "blocks", "attention", "dropout", "labels"):
                if getattr(self, name):
                    raise ValueError(f"refinenet has no {name}; got {getattr(self, name)} (leave it out)")
        if not -50 < self.log_sigma_mean < 50:
            raise ValueError(f"log_sigma_mean must be from −50 to 50; got {self.log_sigma_mean}")
        for name, most in {"stages": 100, "blocks": 100, "attention": 10}.items():
            values, least = getattr(self, name), 0 if name == "attention" else 1
            if len(values) > 10 or not all(least <= value <= most for value in values):
                raise ValueError(f"{name} must be up to 10 numbers from {least} to {most}; got {list(values)[:12]}")
        if self.network == "unet" and self.objective == "sliced" and (self.attention or not self.stages):
            raise ValueError(
                "sliced score matching needs second derivatives, which attention does not have (--objective denoising, "
                "or --stages without --attention)"
            )


MAY_CHANGE = ("steps", "learning_rate", "clip", "precision", "compile", "deterministic", "micro_batch")
"""Settings that a resumed run may change. They change its numbers, some only in the last bits, so every change is
recorded with its step."""
NO_EFFECT = (
    *("checkpoint_every", "evaluate_every", "log_every", "previews", "preview_steps", "step_size", "sample_steps"),
    "preview_minutes",
    *("sampler", "sample_calls", "data"),
)
"""Settings that a resumed run may change without a record, because its weights do not depend on them. The data may be
at another place, but their digest must be the same."""
SAMPLING = ("sampler", "sample_calls", "step_size", "sample_steps")
"""Those among them that samples are drawn with."""
FIXED = tuple(each.name for each in fields(Recipe) if each.name not in (*MAY_CHANGE, *NO_EFFECT))
"""Settings that define a run: a resumed run cannot change them."""

LATER = (
    *("stages", "blocks", "attention", "dropout", "labels", "label_dropout", "sigma_data", "sigma_draw"),
    *("log_sigma_mean", "log_sigma_std", "weight", "decay", "cooldown", "beta2", "averages", "sampler", "sample_calls"),
    "preview_minutes",
)
"""Settings that older versions did not have. Records leave them out where they have their defaults, as older records
do."""

IDENTITY = (
    *("image_size", "crop", "network", "width", "sigma_max", "sigma_min", "levels", "ema", "seed", "batch_size"),
    *("held_out", "start", "stages", "blocks", "attention", "labels", "averages"),
)
"""Settings that tell runs apart. Runs of older versions may have changed the other fixed ones on the way."""


@dataclass(frozen=True)
class Change:
    """A setting of a run that was changed when the run was resumed."""

    step: int
    """The number of iterations that were done before."""
    setting: str
    before: str | float | None
    after: str | float | None

    def __str__(self) -> str:
        return f"{self.setting} from {self.before} to {self.after} at step {self.step}"


def read_changes(text: str) -> list[Change]:
    """The changes in a model file's metadata."""
    try:
        return [Change(**each) for each in parse_json(text)]
    except TypeError as error:
        raise ValueError(f"the changes of a run cannot be read: {text[:80]}") from error


def changes_between(before: Recipe, after: Recipe, *, step: int) -> list[Change]:
    """The changes that a run resumed at that step has to record."""
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in (*FIXED, *MAY_CHANGE) if name != "start"}
    return [Change(step, name, old, new) for name, (old, new) in pairs.items() if old != new]


def check_unchanged(before: Recipe, after: Recipe, run: str) -> None:
    """Raise an error if a run that is resumed would change a setting that defines it."""
    changed = [name for name in FIXED if getattr(before, name) != getattr(after, name)]
    if changed:
        was, given = (_and([f"{name} {getattr(recipe, name)}" for name in changed]) for recipe in (before, after))
        options = _and([f"--{name.replace('_', '-')}" for name in changed])
        raise ValueError(
            f"{run} was started with {was}, which a resumed run cannot change; got {given} (leave {options} out, or "
            "start another run in a folder of its own: --out)"
        )


def _and(words: Sequence[str]) -> str:
    """a; a and b; a, b and c."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _baseline(recipe: Recipe) -> Recipe:
    """The same network for the smallest noise level only, sampled by plain Langevin dynamics (appendix B.2)."""
    return replace(recipe, sigma_max=recipe.sigma_min, levels=1, sample_steps=1000)


_MNIST = Recipe(data="mnist", width=64)
_MNIST_SMALL = replace(  # a quarter of the width: fast on a CPU
    _MNIST, width=16, steps=25_000, batch_size=512, learning_rate=2e-3, warmup=1000, ema=0.999
)
_CIFAR10 = Recipe(data="cifar10", width=128, flip=True)
_CELEBA = Recipe(data="celeba", width=128, flip=True, crop=140, image_size=32)
_TINY = Recipe(  # for a first try on a CPU: fewer, larger noise levels, which a small network learns in minutes
    image_size=16,
    width=16,
    held_out=24,
    sigma_min=0.05,
    levels=6,
    steps=500,
    batch_size=16,
    learning_rate=4e-3,
    clip=100.0,
    ema=0.98,
    checkpoint_every=250,
    evaluate_every=100,
    log_every=20,
    previews=4,
    step_size=5e-4,
    sample_steps=50,
)
_UNET = Recipe(  # for photographs; Karras et al. (2022, 2024), with sigmas for pixels in [0, 1], half of theirs
    network="unet",
    width=0,
    flip=True,
    labels=True,
    sigma_data=0.0,
    sigma_max=40.0,
    sigma_min=0.001,
    sigma_draw="log_normal",
    weight="learned",
    steps=100_000,
    batch_size=256,
    learning_rate=7e-3,
    warmup=300,
    decay=4_000,
    cooldown=0.2,
    beta2=0.99,
    dropout=0.05,
    averages=(0.05, 0.1),
    evaluate_every=5_000,
    sampler="heun",
)
_UNET_CIFAR10 = replace(
    _UNET, data="cifar10", width=128, stages=(1, 2, 2), blocks=(4, 4, 3), attention=(1,), sigma_data=0.25
)
_UNET_CELEBA = replace(_UNET_CIFAR10, data="celeba", crop=140, image_size=32)
_UNET_MNIST = replace(  # for laptops
    _UNET,
    data="mnist",
    flip=False,
    width=32,
    stages=(1, 2, 2),
    blocks=(1, 2, 1),
    attention=(1, 2),
    sigma_data=0.48,
    steps=30_000,
    dropout=0.0,
    sampler="adams_bashforth",
    sample_calls=10,
)
_UNET_TINY = replace(  # for a first try on a CPU
    _UNET_MNIST,
    image_size=16,
    sigma_data=0.0,
    width=16,
    stages=(1, 2),
    blocks=(1, 1),
    attention=(1,),
    held_out=24,
    steps=500,
    batch_size=16,
    warmup=50,
    decay=0,
    averages=(0.1,),
    checkpoint_every=250,
    evaluate_every=100,
    log_every=20,
    previews=4,
)

RECIPES = {
    "mnist": _MNIST,
    "mnist-small": _MNIST_SMALL,
    "cifar10": _CIFAR10,
    "celeba": _CELEBA,
    "mnist-baseline": _baseline(_MNIST),
    "cifar10-baseline": _baseline(_CIFAR10),
    "celeba-baseline": _baseline(_CELEBA),
    "tiny": _TINY,
    "unet-mnist": _UNET_MNIST,
    "unet-cifar10": _UNET_CIFAR10,
    "unet-celeba": _UNET_CELEBA,
    "unet-tiny": _UNET_TINY,
    "unet": _UNET,
}
