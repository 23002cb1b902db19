"""How settings are read from YAML: strictly, and without surprises.

Beside what PyYAML's safe loader refuses, a key that stands twice in one mapping is refused (PyYAML keeps the last one),
``5e-4`` is a number (YAML 1.1 takes it for a text), and ``2024-01-31`` is a text and no date. Of explicit tags only
those of texts, numbers, truth values, nothing, lists and mappings are known (``!!str 5``).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import yaml

from capbench.core.errors import StudyError
from capbench.core.files import read_text

__all__ = ["parse_own", "parse_value", "read_yaml", "shipped_configs"]


_LARGEST = 1_000_000  # bytes; a file of settings has a few thousand
_MOST_NODES = 100_000  # with what aliases repeat: nine lines of them can stand for billions


_TAG = "tag:yaml.org,2002:"
_SURROGATE = re.compile("[\ud800-\udfff]")
_MOST_BITS = 1000  # Python refuses to print what is much larger
_KNOWN_TAGS = ("str", "int", "float", "bool", "null", "seq", "map")


class _Loader(yaml.SafeLoader):
    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.deep_construct = True  # so that a list which holds itself is refused

    def construct_document(self, node: Any) -> Any:
        if _expanded_nodes(node) > _MOST_NODES:
            raise yaml.constructor.ConstructorError(
                None, None, f"its aliases (*) repeat more than {_MOST_NODES:,} values", node.start_mark
            )
        return super().construct_document(node)

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
        except (ValueError, LookupError) as error:
            # PyYAML takes the text behind a tag for what the tag says: '!!int ""', '!!bool z', or 5,000 digits.
            raise self._misfit(node, f"is no {str(node.tag).replace(_TAG, '!!')}") from error
        if isinstance(value, str) and _SURROGATE.search(value):
            raise self._misfit(node, "holds half of a surrogate pair")
        if isinstance(value, int) and value.bit_length() > _MOST_BITS:
            raise self._misfit(node, "is too large a number")
        return value

    @staticmethod
    def _misfit(node: Any, why: str) -> yaml.constructor.ConstructorError:
        shown = str(node.value)[:40].encode("utf-8", "backslashreplace").decode()
        return yaml.constructor.ConstructorError(None, None, f"'{shown}' {why}", node.start_mark)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.tag != f"{_TAG}merge":
                if (key.tag, key.value) in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key '{key.value}' stands twice in one mapping", key.start_mark
                    )
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


def _expanded_nodes(root: Any) -> int:
    """Nodes of a document, those behind an alias as often as they are repeated."""
    sizes: dict[int, int] = {}
    waiting = [(root, False)]
    while waiting:  # not recursive, for documents may be nested deeply
        node, counted = waiting.pop()
        below = [] if isinstance(node, yaml.ScalarNode) else node.value
        children = [child for pair in below for child in pair] if isinstance(node, yaml.MappingNode) else below
        if counted:
            sizes[id(node)] = 1 + sum(sizes[id(child)] for child in children)
        elif id(node) not in sizes:
            sizes[id(node)] = 0  # for as long as it is counted: one that holds itself is refused later
            waiting.append((node, True))
            waiting += [(child, False) for child in children]
    return sizes[id(root)]


_Loader.yaml_constructors = {
    tag: construct
    for tag, construct in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.removeprefix(_TAG) in _KNOWN_TAGS  # None: what refuses all others
}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_TAG}timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    f"{_TAG}float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+\Z"), list("-+0123456789")
)


def parse_own(text: str) -> Any:
    """A file that comes with capbench: plain YAML, read by libyaml where PyYAML was built with it (ten times as fast).

    Raises:
        yaml.YAMLError: it is not YAML.
    """
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # both are safe loaders


def parse_value(text: str) -> Any:
    """One value as it stands after ``key=`` on the command line. Raises ValueError if it cannot be read."""
    try:
        return yaml.load(text, _Loader)  # a safe loader
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(str(error)) from error


def read_yaml(path: str | os.PathLike[str], wanted: str) -> dict[Any, Any]:
    """The mapping that a file of settings holds.

    Args:
        path: the file.
        wanted: what it should hold, for the message where it does not: ``study: a mapping with 'schema' and 'name'``.

    Raises:
        StudyError: it is not YAML (the row is named), no mapping, a key stands twice, or it is too large.
        DataError: it cannot be read as text.
    """
    file = Path(path)
    if file.is_file() and file.stat().st_size > _LARGEST:
        size = file.stat().st_size / 1e6
        raise StudyError(f"holds no {wanted} is wanted, not {size:,.1f} MB", path=path)
    text = read_text(path)
    try:
        settings = yaml.load(text, _Loader)  # a safe loader
    except yaml.MarkedYAMLError as error:
        row = error.problem_mark.line + 1 if error.problem_mark else None
        problem, hint = f"is not YAML: {error.problem}", "Mend the file at that place"
        if isinstance(error, yaml.constructor.ConstructorError) and "stands twice" in str(error.problem):
            problem, hint = str(error.problem), "Keep one of the two"
        elif "found another document" in str(error.problem):
            problem, hint = "a second document begins here ('---')", "Give each its own file"
        elif "'\\t'" in str(error.problem):
            hint = "Indent with spaces"
        raise StudyError(problem, path=path, row=row, hint=hint) from error
    except (yaml.YAMLError, ValueError) as error:
        raise StudyError(f"is not YAML: {error}", path=path) from error
    except RecursionError as error:
        raise StudyError("is nested too deeply to be read", path=path) from error
    if not isinstance(settings, dict):
        raise StudyError(f"holds no {wanted} is wanted", path=path)
    return settings


def shipped_configs() -> Path:
    """The folder of the study files that come with capbench, installed or in a source checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "_configs"
    return installed if installed.is_dir() else package.parent / "configs"
