"""Reads many damaged PyTorch files in this process: ``python -m tests.weights.torch_fuzz FOLDER SEED COUNT``.

The folder holds sound files; what is damaged is a copy of one. The process ends with 0 if each was read or rejected
with one line. The number of the case is written before it is read, so that it is known after a crash.
"""

from __future__ import annotations

import io
import pickletools
import random
import resource
import sys
import zipfile
from pathlib import Path
from typing import Any

import torch

from capbench.core.errors import CapbenchError
from capbench.metrics.grounding.scan_files import load_scan
from capbench.weights.checkpoints import read_checkpoint, read_torch

MOST_MEMORY = 500 << 20  # bytes; all sound files have less than one million
NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    63,
    255,
    1 << 16,
    1 << 20,
    (1 << 31) - 1,
    -(1 << 31),
    1 << 40,
    1 << 62,
    (1 << 63) - 1,
    1 << 70,
)
NAMES = (
    "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor_v3", "torch._utils _rebuild_tensor",
    "torch._utils _rebuild_parameter", "torch._utils _rebuild_parameter_with_state", "torch._utils _rebuild_qtensor",
    "torch._utils _rebuild_sparse_tensor", "torch._utils _rebuild_meta_tensor_no_storage", "torch._tensor "
    "_rebuild_from_type_v2", "torch Tensor", "torch.nn.parameter Parameter", "torch FloatStorage", "torch BoolStorage",
    "torch ByteStorage", "torch ComplexDoubleStorage", "torch.storage UntypedStorage", "torch float64", "torch uint16",
    "torch Size", "torch device", "collections OrderedDict", "collections Counter", "argparse Namespace", "numpy dtype",
    "numpy ndarray", "numpy._core.multiarray _reconstruct", "numpy._core.multiarray scalar", "_codecs encode",
    "numpy.core.numeric _frombuffer", "__builtin__ set", "__builtin__ bytes", "__builtin__ complex", "posix system",
)  # fmt: skip


def _whole(number: int) -> bytes:
    raw = number.to_bytes(16, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def _name(name: str) -> bytes:
    return b"c" + name.replace(" ", "\n").encode() + b"\n"


_DTYPE = b"cnumpy\ndtype\n(X\x02\x00\x00\x00f8K\x00K\x01tR"
PIECES = (
    b"0", b"1", b"2", b"(", b")", b"]", b"}", b"N", b"t", b"R", b"b", b"s", b"a", b"u", b"e", b"Q", b"\x81", b"\x85",
    b"\x86", b"\x87", b"\x8f", b"\x90", b"\x94", b"h\x00", b"q\x00", b"}X\x01\x00\x00\x00aK\x01sb", b"N}\x86b", b"]R",
    b")R",
    b")\x81", b")" + b"\x85" * 50, b")" + b"\x85" * 100_000, b"r\xff\xff\xff\x7f", _DTYPE,
    _DTYPE + b"(K\x03X\x01\x00\x00\x00<NNNJ\xff\xff\xff\x3fJ\xff\xff\xff\x3fK\x3ftb", b"(K\x01K\x02tb", b"(K\x00)}tb",
    b"cnumpy\nndarray\nM\xff\xff\x85R", b"X\x07\x00\x00\x00storage", b"C\x08abcdefgh", b"\x96\x04\0\0\0\0\0\0\0abcd",
)  # fmt: skip


def _damaged_pickle(chance: random.Random, data: bytes) -> bytes:
    for _ in range(chance.randint(1, 4)):
        try:
            places = [(op.name, position or 0) for op, _, position in pickletools.genops(data)]
        except Exception:  # it was damaged before
            places = [("", position) for position in range(len(data))]
        if not places:
            return data
        which = chance.randrange(len(places))
        position = places[which][1]
        after = places[which + 1][1] if which + 1 < len(places) else len(data)
        kind = chance.choice(("flip", "number", "name", "insert", "drop", "repeat", "take"))
        if kind == "flip":
            place = chance.randrange(len(data))
            data = data[:place] + bytes([chance.randrange(256)]) + data[place + 1 :]
        elif kind in ("number", "name"):
            wanted = ("GLOBAL", "STACK_GLOBAL") if kind == "name" else ("BININT", "BININT1", "BININT2", "LONG1")
            fitting = [number for number, (name, _) in enumerate(places[:-1]) if name in wanted]
            if fitting:
                which = chance.choice(fitting)
                new = _name(chance.choice(NAMES)) if kind == "name" else _whole(chance.choice(NUMBERS))
                data = data[: places[which][1]] + new + data[places[which + 1][1] :]
        elif kind == "insert":
            data = data[:position] + chance.choice((*PIECES, _name(chance.choice(NAMES)))) + data[position:]
        elif kind == "drop":
            data = data[:position] + data[after:]
        elif kind == "repeat":
            data = data[:after] + data[position:after] + data[after:]
        else:
            other = chance.randrange(len(places))
            begin, end = sorted((position, places[other][1]))
            data = data[:position] + data[begin:end][:400] + data[position:]
    return data


def _damaged(chance: random.Random, data: bytes) -> bytes:
    if chance.random() < 0.15:  # whatever it is
        changed = bytearray(data)
        for _ in range(chance.randint(1, 6)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        return bytes(changed[: chance.randrange(len(changed))] if chance.random() < 0.3 else changed)
    if data[:2] != b"PK":
        ends, stream = [], io.BytesIO(data)
        for _ in range(5):
            for _ in pickletools.genops(stream):
                pass
            ends.append(stream.tell())
        which = chance.choice((2, 3, 3, 3, 3, 4))
        begin, end = ends[which - 1], ends[which]
        return data[:begin] + _damaged_pickle(chance, data[begin:end]) + data[end:]
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(target, "w") as archive:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith("/data.pkl"):
                content = _damaged_pickle(chance, content)
            elif chance.random() < 0.05:
                content = content[: chance.randrange(len(content) + 1)]
            archive.writestr(name, content)
    return target.getvalue()


def _use(value: Any, seen: set[int]) -> None:
    """Touch all numbers; a list may hold itself."""
    if isinstance(value, torch.Tensor):
        if value.numel() <= 1 << 20 and not value.is_meta:
            value.clone()
            if value.dtype == torch.bool:
                value.nonzero()
    elif isinstance(value, dict | list | tuple):
        if id(value) not in seen:
            seen.add(id(value))
            for entry in list(value.values()) if isinstance(value, dict) else value[:1000]:
                _use(entry, seen)
    else:
        repr(value)


def main(folder: Path, seed: int, count: int) -> None:
    """Read so many damaged files."""
    sound = [path.read_bytes() for path in sorted(folder.glob("*.pth"))]
    path, note = folder / "damaged.tmp", folder / "case"
    outcomes = {"read": 0, "rejected": 0}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for case in range(count):
        chance = random.Random(f"{seed}-{case}")
        path.write_bytes(_damaged(chance, chance.choice(sound)))
        note.write_text(f"seed {seed}, case {case}")
        for read in (read_torch, read_checkpoint, load_scan):
            try:
                value = read(path)
                _use(value, set())
                outcomes["read"] += 1
            except CapbenchError as error:
                assert "\n" not in str(error)  # noqa: PT017
                outcomes["rejected"] += 1
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert grown < MOST_MEMORY, grown
    assert outcomes["rejected"], outcomes
    print(outcomes, grown >> 20, "MB")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
