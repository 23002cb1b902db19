"""Make the embedded sample of synthetic scenes, captions and ratings, or check the one that is there.

python scripts/make_sample.py                  # writes data/sample
python scripts/make_sample.py --out /tmp/s     # writes elsewhere
python scripts/make_sample.py --check          # is data/sample what would be written? Exit code 1 if not
"""

from __future__ import annotations

import argparse
import io
import sys
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from capbench.core.errors import CapbenchError  # noqa: E402
from capbench.core.files import atomic_write  # noqa: E402
from scripts.checks import require_writable  # noqa: E402
from scripts.sample.build import build  # noqa: E402


def content(path: str, data: bytes) -> bytes:
    """The content of a file without its compression: pixels of a PNG, bytes in a gzip or MATLAB file.

    Compressed bytes depend on the compressor's version, which does not make a sample different.
    """
    if path.endswith(".png"):
        from PIL import Image

        with Image.open(io.BytesIO(data)) as image:
            return f"{image.mode} {image.size} ".encode() + image.tobytes()
    if path.endswith(".gz"):
        import gzip

        return gzip.decompress(data)
    if path.endswith(".mat"):
        parts, at = [data[:128]], 128
        while at < len(data):
            kind = int.from_bytes(data[at : at + 4], "little")
            size = int.from_bytes(data[at + 4 : at + 8], "little")
            body = data[at + 8 : at + 8 + size]
            parts.append(zlib.decompress(body) if kind == 15 else body)  # 15: a compressed element
            at += 8 + size
        return b"".join(parts)
    return data


def differences(folder: Path, files: dict[str, bytes]) -> list[str]:
    """One line for every file under ``folder`` that is missing, in excess, or holds something else."""
    differing = []
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    for path in sorted(present | files.keys()):
        if path not in present:
            differing.append(f"{path}: missing")
        elif path not in files:
            differing.append(f"{path}: not part of the sample")
        else:
            try:
                same = content(path, (folder / path).read_bytes()) == content(path, files[path])
            except (OSError, EOFError, zlib.error):
                same = False  # damaged
            if not same:
                differing.append(f"{path}: differs")
    return differing


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns the exit code: 0, or 1 if ``--check`` finds a difference."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "data" / "sample", help="folder of the sample")
    parser.add_argument("--check", action="store_true", help="write nothing; say whether the folder holds the sample")
    options = parser.parse_args(arguments)
    try:
        if options.check and not options.out.is_dir():
            parser.error(f"{options.out}: there is no such folder to check")
        if not options.check:
            require_writable(options.out)
    except CapbenchError as error:
        parser.error(str(error))
    files = build(lambda words: print(f"making {words}", file=sys.stderr)).files
    if options.check:
        differing = differences(options.out, files)
        for line in differing:
            print(line)
        print(f"{options.out}: {f'{len(differing)} differences' if differing else f'identical ({len(files)} files)'}")
        return 1 if differing else 0
    for path, data in files.items():
        with atomic_write(options.out / path, "wb") as stream:
            stream.write(data)
    print(f"{len(files)} files, {sum(map(len, files.values())) / 1e6:.2f} MB, in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
