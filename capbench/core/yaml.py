"""A strict YAML reader for settings.

In addition to the checks of PyYAML's safe loader, it rejects duplicate keys in a mapping (PyYAML keeps the last one).
``5e-4`` is a number (a string in YAML 1.1), and ``2024-01-31`` is a string, not a date.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import yaml

from capbench.core.errors import StudyError, suggest
from capbench.core.files import read_text

_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    problem = f"the key '{key.value}' occurs twice in one mapping"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_TAG}timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    f"{_TAG}float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+\Z"), list("-+0123456789")
)


def parse_own(text: str) -> Any:
    """Parse a YAML file of the package, with libyaml if PyYAML was built with it (ten times as fast)."""
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # both are safe loaders


def parse_value(text: str) -> Any:
    """Parse the value after ``key=`` on the command line. Raises ValueError if it is not valid YAML."""
    try:
        return yaml.load(text, _Loader)  # a safe loader
    except (yaml.YAMLError, LookupError) as error:  # LookupError: "!!bool z"
        raise ValueError(str(error)) from error


def read_yaml(path: str | os.PathLike[str], expected: str) -> dict[Any, Any]:
    """The mapping in a settings file; ``expected``: its content in words, for the message."""
    text = read_text(path)
    try:
        settings = yaml.load(text, _Loader)  # a safe loader
    except yaml.MarkedYAMLError as error:
        row = error.problem_mark.line + 1 if error.problem_mark else None
        code, problem, hint = "wrong-format", f"is not YAML: {error.problem}", "Correct the file at that position"
        if "occurs twice in one mapping" in str(error.problem):
            code, problem, hint = "duplicate", str(error.problem), "Keep one of the two"
        elif "'\\t'" in str(error.problem):
            hint = "Indent with spaces"
        raise StudyError(problem, code=code, path=path, row=row, hint=hint) from error
    except (yaml.YAMLError, ValueError, LookupError) as error:
        raise StudyError(f"is not YAML: {error}", code="wrong-format", path=path) from error
    if not isinstance(settings, dict):
        raise StudyError(f"is not {expected}", code="wrong-type", path=path)
    return settings


def shipped_configs() -> Path:
    """The folder of capbench's study files, installed or in a source checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "_configs"
    return installed if installed.is_dir() else package.parent / "configs"


def shipped_files(folder: str = "") -> dict[str, Path]:
    """The study files, or the files of a folder next to them (``tasks``, ``train``), by name."""
    return {path.stem: path for path in sorted((shipped_configs() / folder).glob("*.yaml"))}


def find_config(name: str | os.PathLike[str], folder: str = "", kind: str = "study") -> Path:
    """The path of a settings file: the path itself, or that of a file shipped in ``configs/`` by its name."""
    path = Path(name)
    if os.path.isfile(path):  # noqa: PTH113  Path.is_file raises for a folder without read permission
        return path
    shipped = shipped_files(folder)
    # 'configs/tiger-table1.yaml' works in any folder, also without a checkout.
    if path.stem in shipped and path.suffix in ("", ".yaml") and path.parent in (Path(), Path("configs") / folder):
        return shipped[path.stem]
    hint = suggest(path.stem, list(shipped))
    raise StudyError(f"there is no such {kind} file", code="missing-file", path=name, hint=hint)
