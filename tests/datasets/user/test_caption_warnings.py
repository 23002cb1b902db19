from __future__ import annotations

import pytest

from capbench.core.records import Item
from capbench.datasets.user.caption_warnings import caption_warnings

FINE = (
    Item("a", "a dog runs", ("the dog is running", "dog")),
    Item("b", "two cats", ("cats on a mat",)),
    Item("c", "a red bus", ("a bus",)),
)


def test_captions_that_are_in_order_get_no_line() -> None:
    assert caption_warnings(FINE, ["cider", "bleu"]) == []


@pytest.mark.parametrize(
    "text",
    [
        *("['a dog', 'one dog']", '["a dog"]', "('a dog', 'b')"),
        *("a dog</s>", "a dog<|endoftext|>", "[unused0] a dog", "a dog [PAD]", "a <unk> runs"),
        *("a cafÃ©", "the dogâ€™s ball", "a d\ufffdg"),
    ],
)
@pytest.mark.parametrize("role", ["candidates", "references"])
def test_captions_that_are_damaged_are_counted(text: str, role: str) -> None:
    damaged = Item("d", text, ("a horse",)) if role == "candidates" else Item("d", "a horse", (text,))
    (line,) = caption_warnings([*FINE, damaged])
    assert line.startswith(f"1 {role} ")
    assert "image 'd'" in line


def test_candidates_that_are_alike_are_counted() -> None:
    same = [Item(image, "a man", (f"the {image} in question",)) for image in "abc"]
    assert caption_warnings([*same, FINE[2]]) == ["3 of 4 candidates are the same text: 'a man'"]


def test_candidates_among_their_references_are_counted() -> None:
    copied = Item("d", "A horse.", ("a pony", "a horse"))
    assert caption_warnings([*FINE, copied]) == ["1 of 4 candidates is one of its own references (first: image 'd')"]
    assert "2 of 5 candidates are among their own references" in caption_warnings([*FINE, copied, copied])[0]


def test_long_candidates_are_noticed() -> None:
    long = [Item(item.image, " ".join([item.candidate] * 6), item.references) for item in FINE]
    (line,) = caption_warnings(long)
    assert "18 words" in line
    assert "references of 3:" in line


def test_one_image_alone_is_noticed_under_cider() -> None:
    assert caption_warnings(FINE[:1], ["bleu"]) == []
    for metric in ("cider", "spider"):
        (line,) = caption_warnings(FINE[:1], [metric])
        assert "CIDEr" in line
        assert "--option cider.df=coco-val" in line
