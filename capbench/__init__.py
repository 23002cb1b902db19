"""capbench measures how well image-caption metrics agree with human judgements, and tests differences between metrics.

::

    import capbench

    capbench.score(["a dog runs"], [["a dog is running", "a brown dog runs"]], metrics=["cider", "bleu-4"])
    capbench.correlate("flickr8k-expert", metrics=["cider", my_function], bootstrap=1000)
    capbench.compare("flickr8k-expert", metrics=["cider", "meteor"])
    capbench.load("flickr8k-expert").to_frame()

See ``docs/python.md``. Custom metrics, data sets and detectors also import from here (``docs/extend.md``). Modules are
imported on first use.
"""

from __future__ import annotations

__version__ = "0.3.0"

# The stub lists the public names with their modules once, for type checkers too: ``from HOME import NAME as NAME``.
_STUB = __spec__.loader.get_data(f"{__file__.rpartition('.')[0]}.pyi").decode()
_IMPORTS = (line.split() for line in _STUB.splitlines() if line.startswith("from "))
_HOMES = {name: home for _, home, _, name, *_ in _IMPORTS}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'capbench' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
