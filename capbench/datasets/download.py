"""Fetches published files: resumes, checks, writes atomically, never overwrites.

What has arrived lies beside the target as ``NAME.part`` with ``NAME.part.json``, which names the address and the
server's version of the file (``ETag`` or ``Last-Modified``). A later run asks for the rest with ``Range`` and
``If-Range``, so that a file that changed meanwhile starts anew instead of becoming a mixture (RFC 9110, sections 13.1.5
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
from capbench.core.errors import DataError, MissingFileError, UsageError
from capbench.core.files import atomic_write, cache_dir, lock, real_path, sha256_file

__all__ = ["fetch", "unpack"]

Progress = Callable[[int, int | None], None]
"""Called with the bytes that are here and the bytes in all, if known."""

_BLOCK = 1 << 17
_LARGEST_MEMBER = 8 << 30


@dataclasses.dataclass
class _Part:
    """A download that is under way: the bytes so far and what the server said of the file."""

    path: Path
    url: str
    validator: str = ""
    total: int | None = None

    @classmethod
    def open(cls, target: Path, url: str) -> _Part:
        """The part of a target; what is left of another address or without its description starts anew."""
        arrived = cls(target.with_name(target.name + ".part"), url)
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            said = json.loads(arrived.note.read_text(encoding="utf-8"))
            if said["url"] == url and isinstance(said["validator"], str) and said["validator"]:
                arrived.validator = said["validator"]
                arrived.total = said["total"] if isinstance(said["total"], int) else None
        if not arrived.validator:
            arrived.drop()
        return arrived

    @property
    def note(self) -> Path:
        return self.path.with_name(self.path.name + ".json")

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def describe(self, headers: http.client.HTTPMessage, total: int | None) -> None:
        """Keep what the server says of the file. Without a strong validator it cannot be resumed."""
        etag = headers.get("ETag", "")
        self.validator = etag if etag and not etag.startswith("W/") else headers.get("Last-Modified", "")
        self.total = total
        with atomic_write(self.note) as stream:
            json.dump({"url": self.url, "validator": self.validator, "total": total}, stream)

    def drop(self) -> None:
        """Remove what has arrived."""
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)
        self.validator, self.total = "", None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https only, and never from https down to http."""

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
            raise urllib.error.URLError(f"it redirects to {newurl}, which is not followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _AgainError(Exception):
    """The connection broke or the server is busy: worth another attempt."""


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
        target: where it goes. A file that is there already is never overwritten.
        sha256: its SHA-256 as 64 hex digits, if known.
        manual: how to get the file by hand; part of the error if the address does not answer.
        progress: called after every block.
        attempts: how often a broken connection is taken up again before giving up.
        timeout_s: how long to wait for the server each time.
        wait_s: pause before the second attempt, doubled for each further one.

    Returns:
        True if it was downloaded, False if a good file was there already.

    Raises:
        MissingFileError: the address does not answer, or not with this file; ``manual`` says what to do instead.
        DataError: what arrived is not the file that was expected; it is removed.
        UsageError: the address is none, the file cannot be written, or another file is in its place.
    """
    if urllib.parse.urlsplit(url).scheme not in ("http", "https") or not urllib.parse.urlsplit(url).hostname:
        raise UsageError(
            f"{url}: no http or https address",
            code="wrong-value",
            value=url,
            hint="Give the whole address, with https://",
        )
    key = hashlib.sha256(str(real_path(target)).encode()).hexdigest()[:16]
    with lock(cache_dir("locks") / f"download-{key}"):
        if target.exists():
            if sha256 is not None and sha256_file(target) != sha256:
                raise UsageError(
                    "is there and is not the expected file (its SHA-256 differs)",
                    code="exists",
                    path=target,
                    hint="Move it away if you want it downloaded; nothing was overwritten",
                )
            return False
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            arrived = _Part.open(target, url)
            _fetch_all(arrived, target, manual, progress, attempts, timeout_s, wait_s)
            if sha256 is not None and (actual := sha256_file(arrived.path)) != sha256:
                arrived.drop()
                hint = "Try again, or another source; what arrived was removed"
                raise DataError(
                    f"what {url} sent has the SHA-256 {actual[:12]}…, not {sha256[:12]}…",
                    code="damaged",
                    value=actual,
                    path=target,
                    hint=hint,
                )
            os.replace(arrived.path, target)
            arrived.note.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(
                f"cannot be written ({error.strerror or error})",
                code="unwritable",
                path=target,
                hint="Check permissions and free space",
            ) from error
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
                failure += "; run the same command again to go on from there"
    hint = f"Try again later. By hand: {manual}" if manual else "Try again later"
    raise MissingFileError(
        f"{arrived.url} could not be fetched ({failure})",
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
    # Without Accept-Encoding: identity a server may compress, and then byte ranges are those of another stream.
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
            raise _AgainError("the server has no such part") from error
        if error.code in (408, 429) or error.code >= 500:
            raise _AgainError(f"HTTP {error.code} {error.reason}") from error
        hint = f"By hand: {manual}" if manual else "Give another address with --url"
        raise MissingFileError(
            f"{arrived.url} answers HTTP {error.code} {error.reason}: the link is dead or closed",
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
    by_hand = f"By hand: {manual}" if manual else "Open it in a browser"
    kind = response.headers.get_content_type()
    if kind in ("text/html", "application/xhtml+xml") and target.suffix.lower() not in (".html", ".htm"):
        raise MissingFileError(
            f"{arrived.url} answers with a web page instead of the file",
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
            raise _AgainError("the server sent another part than was asked for")
        total = int(match[2]) if match[2] != "*" else arrived.total
    else:
        # 200: the server knows no ranges, or the file is another one than before. Start anew.
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
    """The next bytes, and whether the connection broke after them."""
    try:
        return response.read(_BLOCK), False
    except http.client.IncompleteRead as error:
        return error.partial, True
    except OSError:  # reset, timed out, or a broken TLS stream; not to be taken for an error of writing
        return b"", True


def unpack(archive: Path, wanted: Mapping[str, str | None], folder: Path) -> tuple[list[str], list[str]]:
    """Take files out of a zip archive.

    A member's name is only ever compared, never used as a path to write to; an archive whose names lead out of the
    folder is refused all the same, because it is not what it should be.

    Args:
        archive: the zip file.
        wanted: paths below ``folder`` → the end of the member's name (``annotations/captions_val2014.json``), or None
            if the file's own name identifies it.
        folder: the data folder.

    Returns:
        The paths that were written, and the wanted paths that the archive does not hold. Files that are there already
        are kept and count as neither.

    Raises:
        DataError: it is not a zip archive, is damaged, holds unsafe names, or two members fit one file.
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
                        hint="Unpack it by hand",
                    )
                with opened.open(fitting[0]) as source, atomic_write(folder / path, "wb") as stream:
                    while block := source.read(_BLOCK):
                        stream.write(block)
                written.append(path)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"is not a valid zip archive ({error})", code="damaged", path=archive, hint=again) from error
    return written, absent


def _is_safe(info: zipfile.ZipInfo, archive: Path) -> bool:
    """Whether a member is a file to consider. Raises DataError if its name leads out of the archive's folder."""
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
