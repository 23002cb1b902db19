"""A look at a pickle's opcodes before they are obeyed: what :mod:`capbench.safe_pickle` does first.

A small file can ask for a lot: hashing a tuple that is nested a million deep overflows the C stack, and a memo index of
2^32 allocates 64 GB.
"""

from __future__ import annotations

import pickletools

__all__ = ["MAX_DEPTH", "RefusedError", "scan"]

MAX_DEPTH = 64


class RefusedError(Exception):
    """What a pickle asks for and does not get."""


_OPCODES = {opcode.code.encode("latin-1")[0]: opcode for opcode in pickletools.opcodes}
_FORBIDDEN = frozenset({"PERSID", "BINPERSID", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER"})
_LENGTH_BYTES = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_PUTS = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
_GETS = frozenset({"GET", "BINGET", "LONG_BINGET"})
_CONTAINERS = frozenset({"TUPLE1", "TUPLE2", "TUPLE3", "REDUCE", "BUILD", "APPEND", "SETITEM", "NEWOBJ", "NEWOBJ_EX"})
_MARK = -1


def scan(data: bytes) -> None:
    """Walk the opcodes without obeying them: depths of what they build, memo indices, forbidden opcodes.

    Raises:
        RefusedError: one of these is out of bounds, or the pickle is cut off.
    """
    stack: list[int] = []  # depth of each value, or _MARK
    memo: dict[int, int] = {}
    position, length = 0, len(data)
    while True:
        if position >= length:
            raise RefusedError("it is cut off")
        opcode = _OPCODES.get(data[position])
        if opcode is None:
            raise RefusedError(f"byte {position} is no opcode")
        position += 1
        argument, position = _argument(data, position, opcode)
        name = opcode.name
        if name in _FORBIDDEN:
            raise RefusedError(f"it uses the opcode {name}")
        if name == "STOP":
            return
        depth = _step(name, opcode, argument, stack, memo)
        if depth > MAX_DEPTH:
            raise RefusedError(f"it is nested deeper than {MAX_DEPTH} levels")


def _argument(data: bytes, position: int, opcode: pickletools.OpcodeInfo) -> tuple[int, int]:
    """The opcode's argument where it is a memo index (else 0), and the position behind it."""
    if opcode.arg is None:
        return 0, position
    size = opcode.arg.n
    if size >= 0:
        raw = data[position : position + size]
        return (int.from_bytes(raw, "little") if opcode.name in _PUTS | _GETS else 0), position + size
    if size == pickletools.UP_TO_NEWLINE:
        lines = 2 if opcode.name in ("GLOBAL", "INST") else 1
        begin = position
        for _ in range(lines):
            end = data.find(b"\n", position)
            if end < 0:
                raise RefusedError("it is cut off")
            position = end + 1
        if opcode.name in _PUTS | _GETS:
            text = data[begin:end].strip()
            if not text.isdigit() or len(text) > 12:
                raise RefusedError("a memo index is no number")
            return int(text), position
        return 0, position
    width = _LENGTH_BYTES[size]
    count = int.from_bytes(data[position : position + width], "little")
    return 0, position + width + count


def _step(name: str, opcode: pickletools.OpcodeInfo, argument: int, stack: list[int], memo: dict[int, int]) -> int:
    """Do to depths what the opcode does to values; the depth of what it leaves on top."""
    if name == "MARK":
        stack.append(_MARK)
        return 0
    if name in _PUTS or name == "MEMOIZE":
        index = len(memo) if name == "MEMOIZE" else argument
        # Picklers number the memo in order from 0 or 1; gaps come only from entries that were optimised away.
        if index > 4 * len(memo) + 1024:
            raise RefusedError(f"its memo index {index} is out of all proportion")
        memo[index] = _top(stack)
        return 0
    if name in _GETS:
        if argument not in memo:
            raise RefusedError(f"it asks for the memo entry {argument}, which it never made")
        stack.append(memo[argument])
        return stack[-1]
    before, after = list(opcode.stack_before), list(opcode.stack_after)
    taken: list[int] = []
    if pickletools.markobject in before:
        below = before.index(pickletools.markobject)
        while stack and stack[-1] != _MARK:
            taken.append(stack.pop())
        if not stack:
            raise RefusedError("it lacks a mark")
        stack.pop()
        taken += [_pop(stack) for _ in range(below)]
    elif name == "POP" and stack and stack[-1] == _MARK:
        stack.pop()
        return 0
    else:
        taken = [_pop(stack) for _ in before]
    if name == "DUP":
        stack += [taken[0], taken[0]]
        return taken[0]
    grows = bool(taken) and (name in _CONTAINERS or pickletools.markobject in before)
    depth = max(taken, default=0) + int(grows)
    stack.extend(depth for _ in after)
    return depth


def _top(stack: list[int]) -> int:
    if not stack or stack[-1] == _MARK:
        raise RefusedError("it takes a value from an empty stack")
    return stack[-1]


def _pop(stack: list[int]) -> int:
    depth = _top(stack)
    stack.pop()
    return depth
