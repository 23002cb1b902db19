"""Downloads published files: resumes, verifies, writes atomically, never overwrites.

A partial download is stored next to the target as ``NAME.part``, with ``NAME.part.json`` for the address and the
server's version of the file (``ETag`` or ``Last-Modified``). A later run requests the rest with ``Range`` and
``If-Range``: if the file has changed, the download restarts instead of mixing both versions (RFC 9110, sections 13.1.5
and 14).
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import http.client
import json
import os
import re
import stat
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import IO

from capbench import __version__
from capbench.core.errors import DataError, MissingFileError, UsageError, unwritable
from capbench.core.files import atomic_write, cache_dir, lock, real_path, sha256_file

Progress = Callable[[int, int | None], None]
"""Called with the number of bytes received and the total, if known."""

_BLOCK = 1 << 17
_LARGEST_MEMBER = 8 << 30


@dataclasses.dataclass
class _Part:
    """A partial download: the bytes received and the server's description of the file."""

    path: Path
    url: str
    validator: str = ""
    total: int | None = None

    @classmethod
    def open(cls, target: Path, url: str) -> _Part:
        """The partial download of a target; discarded if it is from another address or has no description."""
        part = cls(target.with_name(target.name + ".part"), url)
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            description = json.loads(part.note.read_text(encoding="utf-8"))
            if description["url"] == url and isinstance(description["validator"], str) and description["validator"]:
                part.validator = description["validator"]
                part.total = description["total"] if isinstance(description["total"], int) else None
        if not part.validator:
            part.drop()
        return part

    @property
    def note(self) -> Path:
        return self.path.with_name(self.path.name + ".json")

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def describe(self, headers: http.client.HTTPMessage, total: int | None) -> None:
        """Store the server's description of the file. Without a strong validator the download cannot be resumed."""
        etag = headers.get("ETag", "")
        self.validator = etag if etag and not etag.startswith("W/") else headers.get("Last-Modified", "")
        self.total = total
        with atomic_write(self.note) as stream:
            json.dump({"url": self.url, "validator": self.validator, "total": total}, stream)

    def drop(self) -> None:
        """Discard the partial download."""
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)
        self.validator, self.total = "", None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https only, and never from https to http."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        old, new = urllib.parse.urlsplit(req.full_url).scheme, urllib.parse.urlsplit(newurl).scheme
        if new not in ("http", "https") or (old == "https" and new == "http"):
            raise urllib.error.URLError(f"unsafe redirect to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _AgainError(Exception):
    """The connection failed or the server is busy: retry."""


def fetch(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    manual: str = "",
    progress: Progress | None = None,
    attempts: int = 4,
    timeout_s: float = 30.0,
    wait_s: float = 1.0,
) -> bool:
    """Download one file, or the rest of it.

    Args:
        url: an http or https address.
        target: path of the file. An existing file is never overwritten.
        sha256: the expected SHA-256 as hex digits, all 64 or the first ones, if known.
        manual: instructions for getting the file manually; part of the error if the download fails.
        progress: called after every block.
        attempts: maximum number of attempts.
        timeout_s: timeout of each attempt, in seconds.
        wait_s: pause before the second attempt in seconds, doubled for each further one.

    Returns:
        True if the file was downloaded, False if a valid file exists.

    Raises:
        MissingFileError: the address does not respond, or not with this file; the hint contains ``manual``.
        DataError: the SHA-256 of the downloaded file differs; the file is removed.
        UsageError: the address is invalid, the file cannot be written, or another file exists at its path.
    """
    if urllib.parse.urlsplit(url).scheme not in ("http", "https") or not urllib.parse.urlsplit(url).hostname:
        raise UsageError(
            f"{url}: not an http or https address",
            code="wrong-value",
            value=url,
            hint="Give the whole address, with https://",
        )
    key = hashlib.sha256(str(real_path(target)).encode()).hexdigest()[:16]
    with lock(cache_dir("locks") / f"download-{key}"):
        if target.exists():
            if sha256 is not None and not sha256_file(target).startswith(sha256):
                raise UsageError(
                    "exists, but is not the expected file (its SHA-256 differs)",
                    code="exists",
                    path=target,
                    hint="Move it away to download the file; nothing was overwritten",
                )
            return False
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            arrived = _Part.open(target, url)
            _fetch_all(arrived, target, manual, progress, attempts, timeout_s, wait_s)
            if sha256 is not None and not (actual := sha256_file(arrived.path)).startswith(sha256):
                arrived.drop()
                hint = "Try again, or use another source; the downloaded file was removed"
                raise DataError(
                    f"the file from {url} has the SHA-256 {actual[:12]}…, expected {sha256[:12]}…",
                    code="damaged",
                    value=actual,
                    path=target,
                    hint=hint,
                )
            os.replace(arrived.path, target)
            arrived.note.unlink(missing_ok=True)
        except OSError as error:
            raise unwritable(error, target, "Check permissions and free space") from error
    return True


def _fetch_all(
    arrived: _Part, target: Path, manual: str, progress: Progress | None, attempts: int, timeout_s: float, wait_s: float
) -> None:
    failure = ""
    for attempt in range(attempts):
        if attempt:
            time.sleep(wait_s * 2 ** (attempt - 1))
        before = arrived.size
        try:
            _fetch_once(arrived, target, manual, progress, timeout_s)
            return
        except _AgainError as error:
            failure = str(error)
            if arrived.size > before and attempt == attempts - 1:
                failure += "; run the same command again to resume"
    hint = f"Try again later. Manually: {manual}" if manual else "Try again later"
    raise MissingFileError(
        f"{arrived.url} could not be downloaded ({failure})",
        code="download-failed",
        value=arrived.url,
        path=target,
        hint=hint,
    )


def _fetch_once(arrived: _Part, target: Path, manual: str, progress: Progress | None, timeout_s: float) -> None:
    if not arrived.validator:
        arrived.drop()
    start = arrived.size
    if start and start == arrived.total:
        return
    # Without "identity" a server may compress the file, and byte ranges would refer to the compressed stream.
    headers = {"User-Agent": f"capbench/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": arrived.validator}
    opener = urllib.request.build_opener(_Redirects())
    try:
        with opener.open(urllib.request.Request(arrived.url, headers=headers), timeout=timeout_s) as response:
            _receive(response, arrived, target, manual, progress, start)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:
            arrived.drop()
            raise _AgainError("the server rejected the byte range") from error
        if error.code in (408, 429) or error.code >= 500:
            raise _AgainError(f"HTTP {error.code} {error.reason}") from error
        hint = f"Manually: {manual}" if manual else "Give another address with --url"
        raise MissingFileError(
            f"{arrived.url} responds with HTTP {error.code} {error.reason}: the link is dead or restricted",
            code="download-failed",
            value=arrived.url,
            path=target,
            hint=hint,
        ) from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", None) or error
        raise _AgainError(f"{reason}" if str(reason) else type(error).__name__) from error


def _receive(
    response: http.client.HTTPResponse, arrived: _Part, target: Path, manual: str, progress: Progress | None, start: int
) -> None:
    by_hand = f"Manually: {manual}" if manual else "Open it in a browser"
    kind = response.headers.get_content_type()
    if kind in ("text/html", "application/xhtml+xml") and target.suffix.lower() not in (".html", ".htm"):
        raise MissingFileError(
            f"{arrived.url} responds with a web page instead of the file",
            code="download-failed",
            value=arrived.url,
            path=target,
            hint=by_hand,
        )
    length = response.headers.get("Content-Length", "")
    rest = int(length) if length.isdigit() else None
    if response.status == 206:
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if not match or int(match[1]) != start:
            arrived.drop()
            raise _AgainError("the server sent another byte range than requested")
        total = int(match[2]) if match[2] != "*" else arrived.total
    else:
        # 200: the server does not support ranges, or the file has changed. Restart.
        arrived.drop()
        start, total = 0, rest
        arrived.describe(response.headers, total)
    with open(arrived.path, "ab") as stream:
        here = start
        broken = False
        while not broken:
            block, broken = _read_block(response)
            if not block:
                break
            stream.write(block)
            here += len(block)
            if progress is not None:
                progress(here, total)
        stream.flush()
        os.fsync(stream.fileno())
    if broken or (total is not None and here < total):
        of = "an unknown number of" if total is None else f"{total:,}"
        raise _AgainError(f"the connection ended after {here:,} of {of} bytes")
    if total is not None and here > total:
        arrived.drop()
        raise _AgainError("the server sent more than it announced")


def _read_block(response: http.client.HTTPResponse) -> tuple[bytes, bool]:
    """The next bytes, and True if the connection failed after them."""
    try:
        return response.read(_BLOCK), False
    except http.client.IncompleteRead as error:
        return error.partial, True
    except OSError:  # reset, timeout or broken TLS stream; caught here so that it is not reported as a write error
        return b"", True


def unpack(archive: Path, wanted: Mapping[str, str | None], folder: Path) -> tuple[list[str], list[str]]:
    """Extract files from a zip archive.

    Names of members are compared but never used as paths to write to. An archive with names that lead out of the folder
    is nevertheless rejected as untrustworthy.

    Args:
        archive: the zip file.
        wanted: path below ``folder`` → the end of the member's name (``annotations/captions_val2014.json``), or None
            if the file name identifies it.
        folder: the data folder.

    Returns:
        The paths that were written, and the wanted paths that are not in the archive. Existing files are kept and are
        not listed.

    Raises:
        DataError: the file is not a zip archive, is damaged, contains unsafe names, or two members match one file.
    """
    again = "Remove it and download it again"
    written, absent = [], []
    try:
        with zipfile.ZipFile(archive) as opened:
            members = [info for info in opened.infolist() if _is_safe(info, archive)]
            for path, member in wanted.items():
                if (folder / path).exists():
                    continue
                end = PurePosixPath(member or PurePosixPath(path).name).parts
                fitting = [m for m in members if PurePosixPath(m.filename).parts[-len(end) :] == end]
                if not fitting:
                    absent.append(path)
                    continue
                if len(fitting) > 1:
                    names = ", ".join(m.filename for m in fitting[:3])
                    raise DataError(
                        f"contains several files for {path}: {names}",
                        code="ambiguous",
                        value=path,
                        path=archive,
                        hint="Unpack it manually",
                    )
                with opened.open(fitting[0]) as source, atomic_write(folder / path, "wb") as stream:
                    while block := source.read(_BLOCK):
                        stream.write(block)
                written.append(path)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"is not a valid zip archive ({error})", code="damaged", path=archive, hint=again) from error
    return written, absent


def _is_safe(info: zipfile.ZipInfo, archive: Path) -> bool:
    """True for a regular file. Raises DataError if the member's name leads out of the archive's folder."""
    name = info.filename.replace("\\", "/")
    if name.startswith("/") or re.match(r"[A-Za-z]:", name) or ".." in name.split("/"):
        raise DataError(
            f"contains the unsafe name '{info.filename}'",
            code="unsafe",
            value=info.filename,
            path=archive,
            hint="Do not trust this archive",
        )
    is_link = stat.S_ISLNK(info.external_attr >> 16)
    if info.file_size > _LARGEST_MEMBER:
        raise DataError(
            f"'{info.filename}' unpacks to {info.file_size:,} bytes",
            code="too-large",
            value=info.filename,
            path=archive,
            hint="Unpack it by hand",
        )
    return not info.is_dir() and not is_link and not name.startswith("__MACOSX/")
