"""The web page and its API: a server for this machine, with one worker thread that runs the models."""

from __future__ import annotations

try:
    import python_multipart as _python_multipart  # noqa: F401
    import starlette as _starlette  # noqa: F401
    import uvicorn as _uvicorn  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"the web page needs a package that is not installed: {error} (pip install starlette uvicorn python-multipart)"
    ) from error
