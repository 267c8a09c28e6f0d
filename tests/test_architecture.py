"""The house rules that a reader of any one file relies on."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "scorefield"
LAYERS = [
    {"version", "score", "progress", "files", "kernels", "shipped"},
    {"noise", "derivatives", "threads"},
    {"objectives", "samplers", "constraints", "distributions", "networks", "images", "logs", "metrics"},
    {"data", "training", "distributed", "generate", "released"},
    {"masks", "recipes", "inception", "fast"},
    {"checkpoint"},
    {"runs", "bench", "export"},
    {"experiments"},
    {"evaluation"},
    {"web"},
    {"cli"},
]
"""Imports point from a later layer to an earlier one, or stay inside one folder. A new module must be put here."""

CORE = {"torch", "numpy", "safetensors", "rich"}
"""All that models, training and sampling may need, so that they run where only these are installed."""
MORE = {
    "cli": {"tyro"},
    "experiments": {"matplotlib"},
    "logs": {"wandb"},
    "data": {"PIL"},
    "images": {"PIL"},
    "kernels": {"triton"},
    "web": {"starlette", "uvicorn", "python_multipart", "PIL"},
}
"""What some modules may need beyond that."""

MODULES = sorted(PACKAGE.rglob("*.py"))


def room(module: Path) -> str:
    """The first part of a module's name inside the package: its file, or the folder it lies in."""
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(module: Path) -> set[str]:
    """Full names of everything a module imports, wherever in the file."""
    names = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute here"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def level(name: str) -> int:
    (found,) = [i for i, layer in enumerate(LAYERS) if name in layer]
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(PACKAGE)))
def test_imports_point_down(module: Path) -> None:
    here = room(module)
    if here in ("__init__", "__main__"):
        return
    for name in imported(module):
        parts = name.split(".")
        if parts[0] == "scorefield" and parts[1] not in (here, "__version__"):
            assert level(parts[1]) < level(here), f"{here} must not import {name}"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(PACKAGE)))
def test_third_party_packages_stay_where_they_belong(module: Path) -> None:
    packages = {name.split(".")[0] for name in imported(module)} - set(sys.stdlib_module_names)
    assert packages - {"scorefield"} <= CORE | MORE.get(room(module), set())


def test_every_module_has_its_layer() -> None:
    assert {room(module) for module in MODULES} - {"__init__", "__main__"} == set.union(*LAYERS)


def test_functions_and_files_stay_short() -> None:
    for module in MODULES:
        source = module.read_text(encoding="utf-8")
        assert len(source.splitlines()) <= 300, f"{module} wants splitting"
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                first, last = node.body[0], node.body[-1]
                start = (first.end_lineno if ast.get_docstring(node) else first.lineno) or 0
                assert (last.end_lineno or 0) - start <= 40, f"{module}: {node.name} wants splitting"


def test_models_train_and_sample_where_only_torch_numpy_safetensors_and_rich_are_installed() -> None:
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['PIL', 'tyro', 'matplotlib', 'wandb', 'tensorboard', 'scipy']))\n"
        "import scorefield, scorefield.training, scorefield.models.generate, scorefield.models.released, scorefield.models.checkpoint\n"
        "from scorefield import *\n"
        "missing = set(scorefield.__all__) - set(globals())\n"
        "assert not missing, missing\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PACKAGE.parent)
