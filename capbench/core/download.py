"""Downloads published files: resumes, verifies, writes atomically, never overwrites.

A partial download is stored next to the target as ``NAME.part``. A later run requests the rest with ``Range`` if the
file's SHA-256 is known, which tells whether the parts belong together.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from capbench import __version__
from capbench.core.errors import DataError, MissingFileError, UsageError
from capbench.core.files import atomic_write, cache_dir, check_writable, lock, sha256_file

Progress = Callable[[int, int | None], None]  # called with the number of bytes received and the total, if known

_BLOCK = 1 << 17
_TIMEOUT_S = 30.0


def fetch(
    url: str,
    target: Path,  # path of the file. An existing file is never overwritten
    *,
    sha256: str | None = None,  # the expected SHA-256 as hex digits, all 64 or the first ones, if known
    manual: str = "",
    progress: Progress | None = None,
) -> bool:
    """Download one file, or the rest of it if its SHA-256 is known.

    Returns True if the file was downloaded, False if a valid file exists.
    """
    if not url.startswith(("http://", "https://")):
        hint = "Give the whole address, with https://"
        raise UsageError(f"{url}: not an http or https address", code="wrong-value", value=url, hint=hint)
    key = hashlib.sha256(str(target.resolve()).encode()).hexdigest()[:16]
    with lock(cache_dir("locks") / f"download-{key}"):
        if target.exists():
            if sha256 is not None and not sha256_file(target).startswith(sha256):
                message = "exists, but is not the expected file (its SHA-256 differs)"
                hint = "Move it away to download the file"
                raise UsageError(message, code="exists", path=target, hint=hint)
            return False
        part = target.with_name(target.name + ".part")
        check_writable(target)
        if sha256 is None:
            part.unlink(missing_ok=True)
        try:
            _receive(url, part, sha256 is not None, progress)
        except (OSError, http.client.HTTPException) as error:
            problem = str(getattr(error, "reason", None) or error) or type(error).__name__
            if isinstance(error, urllib.error.HTTPError):
                problem = f"HTTP {error.code} {problem}"
                error.close()
                if error.code == 416:  # the part is not the beginning of this file
                    part.unlink(missing_ok=True)
            hint = f"Manually: {manual}" if manual else "Run the command again, or give another address with --url"
            message = f"{url} could not be downloaded ({problem})"
            raise MissingFileError(message, code="download-failed", value=url, path=target, hint=hint) from error
        if sha256 is not None and not (actual := sha256_file(part)).startswith(sha256):
            part.unlink()
            message = f"the file from {url} has the SHA-256 {actual[:12]}…, expected {sha256[:12]}…"
            hint = "Try again, or use another source; the downloaded file was removed"
            raise DataError(message, code="damaged", value=actual, path=target, hint=hint)
        os.replace(part, target)
    return True


def _receive(url: str, part: Path, resume: bool, progress: Progress | None) -> None:
    """Write a file, or the rest of it, into ``part``. Raises OSError and HTTPException if the connection fails."""
    start = part.stat().st_size if resume and part.exists() else 0
    # Without "identity" a server may compress the file, and byte ranges would refer to the compressed stream.
    headers = {"User-Agent": f"capbench/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT_S) as response:
        if response.headers.get_content_type() == "text/html" and ".htm" not in part.name.lower():
            raise OSError("the server sent a web page instead of the file")
        here = start if response.status == 206 else 0  # 200: the server does not support ranges
        length = response.headers.get("Content-Length")
        total = here + int(length) if length else None
        with open(part, "ab" if here else "wb", buffering=0) as stream:
            while block := response.read(_BLOCK):
                stream.write(block)
                here += len(block)
                if progress is not None:
                    progress(here, total)
            os.fsync(stream.fileno())
    if total is not None and here < total:
        raise OSError(f"the connection ended after {here:,} of {total:,} bytes")


def unpack(archive: Path, wanted: Mapping[str, str | None], folder: Path) -> tuple[list[str], list[str]]:
    """Extract files from a zip archive. Names of members are compared but never used as paths to write to.

    ``wanted``: path below ``folder`` → the end of the member's name (``annotations/captions_val2014.json``), or None if
    the file name identifies it. Returns the new paths, and the wanted ones that are not in the archive.
    """
    written, absent = [], []
    try:
        with zipfile.ZipFile(archive) as opened:
            members = [name for name in opened.namelist() if not name.startswith("__MACOSX/")]
            for path, member in wanted.items():
                if (folder / path).exists():
                    continue
                end = PurePosixPath(member or PurePosixPath(path).name).parts
                fitting = [name for name in members if PurePosixPath(name).parts[-len(end) :] == end]
                if not fitting:
                    absent.append(path)
                    continue
                if len(fitting) > 1:
                    message = f"contains several files for {path}: {', '.join(fitting[:3])}"
                    raise DataError(message, code="ambiguous", value=path, path=archive, hint="Unpack it manually")
                with opened.open(fitting[0]) as source, atomic_write(folder / path, "wb") as stream:
                    shutil.copyfileobj(source, stream)
                written.append(path)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        hint = "Remove it and download it again"
        raise DataError(f"is not a valid zip archive ({error})", code="damaged", path=archive, hint=hint) from error
    return written, absent
