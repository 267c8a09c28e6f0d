"""What a user may name as data, and where data is stored."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest
from platformdirs.api import PlatformDirsABC
from platformdirs.macos import MacOS
from platformdirs.unix import Unix
from platformdirs.windows import Windows

from data.image_files import GREYS, put
from scorefield.data import folder_of, load

# ---------------------------------------------------------------- places


def test_data_is_stored_where_the_variable_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert folder_of("mnist") == tmp_path / "data" / "mnist"
    monkeypatch.setenv("SCOREFIELD_DATA", "~/sets")
    assert folder_of("mnist") == Path.home() / "sets" / "mnist"


def test_a_mistyped_variable_makes_no_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The data folder may be created, but not the folders above it."""
    mistyped = tmp_path / "dta" / "sets"
    monkeypatch.setenv("SCOREFIELD_DATA", __file__)
    with pytest.raises(ValueError, match=r"SCOREFIELD_DATA is .*, a file \(set it to a folder\)"):
        folder_of("cache")
    monkeypatch.setenv("SCOREFIELD_DATA", str(mistyped))
    for source in ("mnist", str(put(tmp_path / "pictures" / "one.png", GREYS).parent)):
        with pytest.raises(ValueError, match=r"SCOREFIELD_DATA is .*sets, but there is no folder .*dta \(correct"):
            load(source)
    assert not mistyped.parent.exists()
    mistyped.parent.mkdir()
    assert len(load(str(tmp_path / "pictures"))) == 1
    assert mistyped.is_dir()


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        (Unix, {"XDG_CACHE_HOME": "/x"}, "/x"),
        (Unix, {}, "/home/me/.cache"),
        (MacOS, {}, "/home/me/Library/Caches"),
        (Windows, {"WIN_PD_OVERRIDE_LOCAL_APPDATA": "C:/local"}, "C:/local"),
    ],
)
def test_without_the_variable_it_is_stored_in_the_users_cache(
    monkeypatch: pytest.MonkeyPatch, platform: type[PlatformDirsABC], variables: dict[str, str], expected: str
) -> None:
    for name in ("SCOREFIELD_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(platformdirs, "PlatformDirs", platform)
    assert folder_of("inception") == Path(expected) / "scorefield" / "inception"


# ---------------------------------------------------------------- wrong sources


@pytest.mark.parametrize("source", ["mnsit", "/no/such/folder", "missing.npy", "", "imagenet:train"])
def test_what_is_not_there(source: str) -> None:
    with pytest.raises(ValueError, match=r"does not exist .*mnist\[:test\], cifar10\[:test\], celeba\[:valid\|test\]"):
        load(source)


def test_what_is_not_understood(tmp_path: Path) -> None:
    path = put(tmp_path / "single.png", GREYS)
    with pytest.raises(ValueError, match=r"is a single image .*a folder of images; or an .npy or .npz file"):
        load(str(path))


@pytest.mark.parametrize("source", ["mnist:valid", "cifar10:", "celeba:training"])
def test_parts_that_a_set_does_not_have(source: str) -> None:
    with pytest.raises(ValueError, match=r"has no part .*choose from train, "):
        load(source)
