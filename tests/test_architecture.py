"""Rules that a reader of any file relies on: which room may import which, and which packages each needs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "scorefield"
LAYERS = [
    {"version", "spacing", "files", "memory", "progress", "score"},
    {"noise", "derivatives", "distributed", "metrics", "operators"},
    {"objectives", "distributions", "samplers", "constraints", "networks", "images", "likelihood", "posteriors"},
    {"acceleration", "data"},
    {"models"},
    {"training"},
    {"evaluation"},
    {"doctor"},
    {"paper"},
    {"web"},
    {"cli"},
]
"""The rooms: a file or a folder of the package each. Imports point from a later layer to an earlier one, or stay inside
a room. A new room must be put here."""

EXCEPTIONS = {("noise", "acceleration")}
"""Noise is drawn by a kernel where there is a GPU, which `acceleration`, built on `noise`, has. It is imported then."""

CORE = {"torch", "numpy", "safetensors", "rich", "filelock"}
"""All that models, training and sampling may need, so that they run where only these are installed."""
MORE = {
    "cli": {"tyro"},
    "paper": {"matplotlib", "jinja2"},
    "models": {"huggingface_hub"},
    "training": {"wandb"},
    "data": {"PIL", "platformdirs"},
    "images": {"PIL"},
    "evaluation": {"PIL"},
    "likelihood": {"torchdiffeq"},
    "acceleration": {"triton"},
    "web": {"starlette", "uvicorn", "python_multipart", "PIL"},
}
"""What some rooms may need beyond that."""
LAZY = {"torchdiffeq", "wandb", "huggingface_hub", "platformdirs", "filelock", "rich"}
"""Packages that are imported inside a function, when first needed."""
WITHOUT_TORCH = ["scorefield", "scorefield.models.recipes", "scorefield.samplers.settings", "scorefield.cli"]

MODULES = sorted(PACKAGE.rglob("*.py"))


def room(module: Path) -> str:
    """The first part of a module's name inside the package: its file, or the folder it lies in."""
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(module: Path, *, at_once: bool = False) -> set[str]:
    """Full names of everything that a module imports: anywhere in the file, or only `at_once`, when it is imported."""
    names, waiting = set[str](), list[ast.AST](ast.parse(module.read_text(encoding="utf-8")).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute here"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        later = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        )
        if not (at_once and later):
            waiting += ast.iter_child_nodes(node)
    return names


def rooms_imported(module: Path, *, at_once: bool = False) -> set[str]:
    names = [name.split(".") for name in imports(module, at_once=at_once)]
    return {parts[1] for parts in names if parts[0] == "scorefield" and len(parts) > 1} - {"__version__"}


def level(name: str) -> int:
    (found,) = [i for i, layer in enumerate(LAYERS) if name in layer]
    return found


def run_python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PACKAGE.parent)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(PACKAGE)))
def test_imports_point_down(module: Path) -> None:
    here = room(module)
    if here in ("__init__", "__main__"):
        return
    for other in rooms_imported(module) - {here}:
        assert level(other) < level(here) or (here, other) in EXCEPTIONS, f"{here} must not import {other}"


def test_the_exceptions_are_there_and_lazy() -> None:
    for here, other in EXCEPTIONS:
        modules = [module for module in MODULES if room(module) == here]
        assert any(other in rooms_imported(module) for module in modules)
        assert not any(other in rooms_imported(module, at_once=True) for module in modules)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(PACKAGE)))
def test_third_party_packages_stay_where_they_belong(module: Path) -> None:
    def packages(*, at_once: bool) -> set[str]:
        names = {name.split(".")[0] for name in imports(module, at_once=at_once)}
        return names - set(sys.stdlib_module_names) - {"scorefield"}

    assert packages(at_once=False) <= CORE | MORE.get(room(module), set())
    eager = packages(at_once=True)
    assert not eager & LAZY
    if "PIL" in eager:
        assert module.name in ("pictures.py", "uploads.py"), "open images with scorefield.data.pictures"


def test_every_module_has_its_layer() -> None:
    assert {room(module) for module in MODULES} - {"__init__", "__main__"} == set.union(*LAYERS)


def test_only_networks_and_what_builds_or_accelerates_them_know_the_papers_network() -> None:
    """Nor does anything else read a network's noise levels."""
    for module in MODULES:
        name = module.relative_to(PACKAGE).as_posix()
        text = module.read_text(encoding="utf-8")
        knows = name.startswith(("networks/", "acceleration/")) or name in ("models/build.py", "models/released.py")
        if not knows:
            assert not any(each.endswith(".RefineNet") for each in imports(module)), name
        if not name.startswith("networks/") and name not in ("acceleration/refinenet.py", "models/released.py"):
            assert "network.sigmas" not in text, name


def test_models_train_and_sample_where_only_torch_numpy_safetensors_and_rich_are_installed() -> None:
    missing = ["PIL", "tyro", "matplotlib", "wandb", "tensorboard", "scipy", "platformdirs", "starlette", "uvicorn"]
    missing += ["torchdiffeq", "huggingface_hub", "diffusers"]
    run_python(
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({missing}))\n"
        "import scorefield, scorefield.training, scorefield.models.released, scorefield.models.export\n"
        "from scorefield import *\n"
        "missing = set(scorefield.__all__) - set(globals())\n"
        "assert not missing, missing\n"
    )


@pytest.mark.parametrize("name", WITHOUT_TORCH)
def test_names_and_help_come_without_pytorch(name: str) -> None:
    run_python(f"import sys, {name}\nassert not {{'torch', 'numpy'}} & sys.modules.keys()")


@pytest.mark.parametrize("words", [["--help"], ["sample", "--help"], ["train", "--help"], ["train", "tiny", "--help"]])
def test_the_help_of_the_command_line_comes_without_pytorch(words: list[str]) -> None:
    run_python(
        "import sys\n"
        "from scorefield.cli import main\n"
        "try:\n"
        f"    main({words})\n"
        "except SystemExit as end:\n"
        "    assert not end.code\n"
        "assert not {'torch', 'numpy'} & sys.modules.keys()"
    )


def test_every_public_name_is_there_whatever_was_imported_before() -> None:
    """A submodule that is imported becomes an attribute of its package, and must not take a function's place."""
    run_python(
        "import pkgutil, types, scorefield\n"
        "for module in pkgutil.walk_packages(scorefield.__path__, 'scorefield.'):\n"
        "    if not module.name.startswith(('scorefield.__main__', 'scorefield.acceleration.', 'scorefield.web')):\n"
        "        __import__(module.name)\n"
        "modules = {'data', 'distributions', 'metrics', 'networks', 'noise', 'objectives', 'operators', 'samplers'}\n"
        "for name in scorefield.__all__:\n"
        "    assert isinstance(getattr(scorefield, name), types.ModuleType) == (name in modules), name\n"
        "for package in (scorefield.samplers, scorefield.data, scorefield.networks, scorefield.metrics):\n"
        "    for name in getattr(package, '__all__', ()):\n"
        "        assert not isinstance(getattr(package, name), types.ModuleType), name\n"
    )
