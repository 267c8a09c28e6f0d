"""A stand-in for the Hugging Face hub on this machine: as much of its protocol as huggingface_hub uses here."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from local_server import Quiet, serving

COMMIT = "c" * 40


@dataclass
class HubServer:
    """Repositories by OWNER/NAME, each with its files by name."""

    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    """Those that were made for their owner's eyes alone."""
    url: str = ""
    unknown: list[str] = field(default_factory=list)
    """Requests that it does not know."""

    @contextmanager
    def running(self) -> Iterator[HubServer]:
        hub = self

        class Handler(Quiet):
            protocol_version = "HTTP/1.1"

            def answer(self, body: bytes, code: int = 200, **headers: str) -> None:
                self.send_response(code)
                headers = {"Content-Length": str(len(body)), **{k.replace("_", "-"): v for k, v in headers.items()}}
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def as_json(self, value: object) -> None:
                self.answer(json.dumps(value).encode(), Content_Type="application/json")

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
                    files = hub.repositories.get(found[1])
                    if files is None or found[2] not in files:
                        self.answer(b"", 404, X_Error_Code="RepoNotFound" if files is None else "EntryNotFound")
                        return
                    content = files[found[2]]
                    tag = hashlib.sha256(content).hexdigest()
                    self.answer(content, ETag=f'"{tag}"', X_Repo_Commit=COMMIT)
                elif found := re.match(r"/api/models/([^/]+/[^/]+)", path):
                    if (files := hub.repositories.get(found[1])) is None:
                        self.answer(b"", 404, X_Error_Code="RepoNotFound")
                    elif "/tree/" in path:
                        tree = [{"type": "file", "path": name, "size": len(files[name]), "oid": "0"} for name in files]
                        self.as_json(tree)
                    else:
                        self.as_json({"id": found[1], "sha": COMMIT, "siblings": [{"rfilename": f} for f in files]})
                else:
                    self.missing()

            do_HEAD = do_GET  # noqa: N815

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.path == "/api/repos/create":
                    asked = json.loads(body)
                    name = f"{asked.get('organization') or 'me'}/{asked['name']}"
                    hub.repositories.setdefault(name, {})
                    if asked.get("private") or asked.get("visibility") == "private":
                        hub.private.add(name)
                    self.as_json({"url": f"{hub.url}/{name}", "name": name})
                elif self.path == "/api/validate-yaml":
                    self.as_json({"errors": [], "warnings": []})
                elif re.fullmatch(r"/api/models/[^/]+/[^/]+/preupload/main", self.path):
                    names = [each["path"] for each in json.loads(body)["files"]]
                    each = {"uploadMode": "regular", "shouldIgnore": False}
                    self.as_json({"files": [{"path": name, **each} for name in names]})
                elif found := re.match(r"/api/models/([^/]+/[^/]+)/commit/main", self.path):
                    for line in map(json.loads, body.splitlines()):
                        if line["key"] == "file":
                            value = line["value"]
                            hub.repositories[found[1]][value["path"]] = base64.b64decode(value["content"])
                    self.as_json({"commitOid": COMMIT, "commitUrl": f"{hub.url}/{found[1]}/commit/{COMMIT}"})
                else:
                    self.missing()

            def missing(self) -> None:
                hub.unknown.append(f"{self.command} {self.path}")
                self.answer(b"", 400)

        with serving(Handler) as self.url:
            yield self
