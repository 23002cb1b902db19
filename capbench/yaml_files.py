"""How settings are read from YAML: strictly, and without surprises.

Beside what PyYAML's safe loader refuses, a key that stands twice in one mapping is refused (PyYAML keeps the last one),
``5e-4`` is a number (YAML 1.1 takes it for a text), and ``2024-01-31`` is a text and no date.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import yaml

from capbench.errors import StudyError
from capbench.files import read_text

__all__ = ["parse_value", "read_yaml"]

_LARGEST = 1_000_000  # bytes; a file of settings has a few thousand


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if (key.tag, key.value) in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key '{key.value}' stands twice in one mapping", key.start_mark
                    )
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+\Z"), list("-+0123456789")
)


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
        found = yaml.load(text, _Loader)  # a safe loader
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
    if not isinstance(found, dict):
        raise StudyError(f"holds no {wanted} is wanted", path=path)
    return found
