"""A server on this machine that can be told to misbehave."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

BODY = bytes(range(256)) * 4096  # 1 MiB
DIGEST = hashlib.sha256(BODY).hexdigest()


@dataclass
class Server:
    """What the server sends, how it misbehaves, and what it was asked."""

    url: str = ""
    body: bytes = BODY
    files: dict[str, bytes] = field(default_factory=dict)
    cut_after: list[int] = field(default_factory=list)
    status: list[int] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            state.asked.append(wanted)
            self.close_connection = True
            if state.status and (code := state.status.pop(0)) != 200:
                self.send_error(code)
                return
            body = state.files.get(self.path, b"") if state.files else state.body
            if not body:
                self.send_error(404)
                return
            start = 0
            match = re.fullmatch(r"bytes=(\d+)-", wanted)
            if match:
                start = int(match[1])
                if start >= len(body):
                    self.send_error(416)
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            else:
                self.send_response(200)
            rest = body[start:]
            sent = rest[: state.cut_after.pop(0)] if state.cut_after else rest
            self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_: object) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{listener.server_address[1]}/file.bin"
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    yield state
    listener.shutdown()
    listener.server_close()
    thread.join()
