from __future__ import annotations

from capbench.core.version import _source, code_digest
from tests.test_layers import imports


def test_the_code_of_a_checkout_is_followed_along_all_imports() -> None:
    computing = ("capbench.text.", "capbench.weights.", "capbench.features.", "capbench.metrics.")
    for module, imported in imports().items():
        if module.startswith(computing):
            assert {name for name in imported if name.startswith(computing)} <= _source(module)[1]
    assert len({code_digest(f"capbench.metrics.{name}") for name in ("bleu", "cider", "cider")}) == 2
