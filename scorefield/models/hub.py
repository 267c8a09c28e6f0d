"""Models on the Hugging Face hub: hf:OWNER/NAME, and hf:OWNER/NAME/FILE.safetensors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

PREFIX = "hf:"
FILE = "model.safetensors"
"""The file of a model that is uploaded, and the one looked for first."""
CARD = "README.md"


class Place(NamedTuple):
    """A repository on the hub, and a file in it."""

    repository: str
    file: str | None = None


def is_hub(name: str) -> bool:
    """Whether a model's name is one of the hub."""
    return name.startswith(PREFIX)


def parse(name: str) -> Place:
    """The repository and file that hf:OWNER/NAME[/FILE.safetensors] names."""
    owner, _, rest = name.removeprefix(PREFIX).partition("/")
    repository, _, file = rest.partition("/")
    named = all(re.fullmatch(r"\w[\w.-]*", part) for part in (owner, repository))
    if not named or (file and not file.endswith(".safetensors")):
        raise ValueError(f"a model of the hub is hf:OWNER/NAME or hf:OWNER/NAME/FILE.safetensors; got {name}")
    return Place(f"{owner}/{repository}", file or None)


def check_hub(repository: str) -> None:
    """Check before the work of an upload that this can be a repository, and that the hub's package is installed."""
    if parse(f"{PREFIX}{repository}").file is not None:
        raise ValueError(f"a repository of the hub is OWNER/NAME; got {repository}")
    _hub()


def fetch(name: str) -> Path:
    """The file of a model of the hub, which is downloaded unless it is in the hub's own cache.

    Without a file in the name it is model.safetensors, or else the only .safetensors file of the repository.
    """
    repository, file = parse(name)
    hub = _hub()
    with _plain_errors(name):
        try:
            return Path(hub.hf_hub_download(repository, file or FILE))
        except hub.errors.EntryNotFoundError as error:
            if file is not None or isinstance(error, hub.errors.LocalEntryNotFoundError):
                raise
        files = [each for each in hub.HfApi().list_repo_files(repository) if each.endswith(".safetensors")]
        if len(files) == 1:
            return Path(hub.hf_hub_download(repository, files[0]))
    if not files:
        raise FileNotFoundError(f"{name} holds no .safetensors file (name another repository)")
    raise ValueError(f"{name} holds {len(files)} .safetensors files (name one: {PREFIX}{repository}/{files[0]})")


def upload(file: Path, card: str, repository: str, *, private: bool = False) -> tuple[str, bool]:
    """Put a model file and its card into a repository of the hub, which is made if it is missing. A card that is there
    stays as it is. Returns the repository's address, and whether it got the card."""
    hub = _hub()
    with _plain_errors(f"{PREFIX}{repository}"):
        api = hub.HfApi()
        url = str(api.create_repo(repository, private=private or None, exist_ok=True))
        new = not api.file_exists(repository, CARD)
        files = {FILE: file} | ({CARD: card.encode()} if new else {})
        api.create_commit(
            repository,
            [hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=content) for name, content in files.items()],
            commit_message="A model made with scorefield",
        )
    return url, new


def _hub() -> Any:  # noqa: ANN401
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError as error:
        raise ImportError(
            f"models of the Hugging Face hub need the package huggingface_hub, which is missing here: {error} "
            "(pip install 'scorefield[hub]')"
        ) from error
    return huggingface_hub


@contextmanager
def _plain_errors(name: str) -> Iterator[None]:
    """Turn the hub's errors into messages that say what to do."""
    errors = _hub().errors
    try:
        yield
    except errors.GatedRepoError as error:
        raise PermissionError(
            f"{name} is open only to those who asked for access (ask on its page, then log in: hf auth login)"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise FileNotFoundError(
            f"there is no {name} on the hub, or you may not see it (check the name; hf auth login if it is private)"
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise FileNotFoundError(
            f"{name} is not in the hub's cache on this machine, and the hub cannot be reached (try again with a "
            "network connection and without HF_HUB_OFFLINE, or give the path of a model file)"
        ) from error
    except errors.EntryNotFoundError as error:
        raise FileNotFoundError(f"there is no file {name} on the hub (its page lists the files)") from error
    except (getattr(errors, "HTTPError", OSError), OSError) as error:
        why = next(iter(str(error).splitlines()), "") or type(error).__name__
        fix = "hf auth login" if " 401 " in f" {why} " else "try again later"
        raise OSError(f"the hub did not answer as it should about {name}: {why} ({fix})") from error
