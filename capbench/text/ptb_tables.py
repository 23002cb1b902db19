"""The transition tables of the reference tokeniser, read out of its jar.

The reference tokeniser (Stanford CoreNLP 3.4.1, ``PTBLexer``) is a finite automaton that JFlex has
generated: a table of character classes, a table of transitions, and for every accepting state the
number of the rule that it stands for. All of it lies as string constants in one class file of the
jar that pycocoevalcap installs. Reading those constants takes some 30 ms and no Java, and whoever
follows the same transitions finds the same tokens, on any text.

What is read here is data of the installed jar; none of it is kept in this package. A class file of
another version is refused by its checksum, since the numbers of its rules would mean other things.

References:
    Lindholm et al., *The Java Virtual Machine Specification*, chapter 4 (class files).
    Klein, Rowe and Décamps, *JFlex User's Manual*, version 1.4.3 (packed tables, look-ahead).
"""

from __future__ import annotations

import hashlib
import struct
import zipfile
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import ToolError
from capbench.text.java import tokenizer_jar

__all__ = ["Automaton", "load_automaton"]

_ENTRY = "edu/stanford/nlp/process/PTBLexer.class"
_SHA256 = "715fdfb3652cc6796f90f28442378a0c71c92b5909f1fc934f698497987b6dd0"
_REINSTALL = "Reinstall it with 'pip install --force-reinstall --no-deps pycocoevalcap==1.2'"

_STRING, _UTF8, _WIDE = 8, 1, (5, 6)
_ENTRY_BYTES = {3: 5, 4: 5, 7: 3, 8: 3, 9: 5, 10: 5, 11: 5, 12: 5, 15: 4, 16: 3, 17: 5, 18: 5, 19: 3, 20: 3, 5: 9, 6: 9}


@dataclass(frozen=True)
class Automaton:
    """The tables of one lexer; a character is a UTF-16 code unit, as in Java.

    Attributes:
        classes: (65536,) character class of every code unit.
        next_state: (states, classes) state after reading a character of that class; -1 where there is none.
        rule: (states,) number of the rule that a state accepts, 0 if it accepts none. (States that only serve to
            find where a look-ahead begins accept without a rule.)
        accepts: (states,) whether the state accepts.
    """

    classes: NDArray[np.int16]
    next_state: NDArray[np.int16]
    rule: NDArray[np.int16]
    accepts: NDArray[np.bool_]


@cache
def load_automaton() -> Automaton:
    """Read the tables. Raises ToolError if the jar is missing, damaged or of another version."""
    path = tokenizer_jar().path
    try:
        with zipfile.ZipFile(path) as archive:
            data = archive.read(_ENTRY)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise ToolError("the PTB tokeniser's jar cannot be read", path=path, hint=_REINSTALL) from error
    if hashlib.sha256(data).hexdigest() != _SHA256:
        raise ToolError("the PTB tokeniser's jar is not that of CoreNLP 3.4.1", path=path, hint=_REINSTALL)

    packed = _string_constants(data)
    classes = _unpack_runs(packed["ZZ_CMAP_PACKED"])
    rule = _unpack_runs(packed["ZZ_ACTION_PACKED_0"])
    attribute = _unpack_runs(packed["ZZ_ATTRIBUTE_PACKED_0"])
    halves = _code_units(packed["ZZ_ROWMAP_PACKED_0"])
    first = (halves[0::2] << 16) | halves[1::2]  # where a state's row begins; equal rows are kept once
    parts = sorted((name for name in packed if name.startswith("ZZ_TRANS_PACKED_")), key=lambda name: int(name[16:]))
    # JFlex stores the state after next plus one, so that "none" fits into an unsigned number.
    flat = np.concatenate([_unpack_runs(packed[name]) for name in parts]) - 1
    columns = np.arange(int(classes.max()) + 1)
    return Automaton(
        classes=classes.astype(np.int16),
        next_state=flat[first[:, None] + columns].astype(np.int16),
        rule=rule.astype(np.int16),
        accepts=(attribute & 1).astype(bool),
    )


def _string_constants(data: bytes) -> dict[str, bytes]:
    """Name → value of the static final strings of a class file, in Java's modified UTF-8."""
    pool: dict[int, bytes | int] = {}  # a text, or for a string constant the index of its text
    (count,) = struct.unpack_from(">H", data, 8)
    position, index = 10, 1
    while index < count:
        tag = data[position]
        if tag == _UTF8:
            (length,) = struct.unpack_from(">H", data, position + 1)
            pool[index] = data[position + 3 : position + 3 + length]
            position += 3 + length
        else:
            if tag == _STRING:
                (pool[index],) = struct.unpack_from(">H", data, position + 1)
            position += _ENTRY_BYTES[tag]
        index += 2 if tag in _WIDE else 1  # an 8-byte constant takes two places

    position += 6
    (interfaces,) = struct.unpack_from(">H", data, position)
    position += 2 + 2 * interfaces
    (fields,) = struct.unpack_from(">H", data, position)
    position += 2
    constants: dict[str, bytes] = {}
    for _ in range(fields):
        _, name, _, attributes = struct.unpack_from(">HHHH", data, position)
        position += 8
        for _ in range(attributes):
            kind, length = struct.unpack_from(">HI", data, position)
            position += 6
            if pool[kind] == b"ConstantValue":
                (value,) = struct.unpack_from(">H", data, position)
                text, label = pool.get(value), pool[name]
                if isinstance(text, int) and isinstance(label, bytes):
                    literal = pool[text]
                    assert isinstance(literal, bytes)
                    constants[label.decode()] = literal
            position += length
    return constants


def _code_units(text: bytes) -> NDArray[np.int64]:
    """The UTF-16 code units of a string in modified UTF-8 (NUL as two bytes, surrogates one by one)."""
    decoded = text.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    return np.frombuffer(decoded.encode("utf-16-le", "surrogatepass"), dtype="<u2").astype(np.int64)


def _unpack_runs(text: bytes) -> NDArray[np.int64]:
    """Undo JFlex's run-length code: pairs of how often and what."""
    units = _code_units(text)
    return np.repeat(units[1::2], units[0::2])
