"""Arguments of single features, declared once for Python and the command line (:mod:`capbench.core.arguments`)."""

from __future__ import annotations

from os import PathLike
from typing import Annotated, Literal

from annotated_types import Ge, Le
from typing_extensions import TypedDict

from capbench.core.arguments import Help, Seed

Draws = Annotated[int, Ge(1), Le(10_000), Help("Random orders of the references. Default: 5.")]


class RetrievalChanges(TypedDict, total=False):
    """Captions and images of a retrieval, in place of the defaults or of a study file's."""

    captions: Annotated[
        str | PathLike[str],
        Help("Captions: a corpus such as flickr8k, or a file. Default: flickr8k.", metavar="NAME|FILE"),
    ]
    split: Annotated[str, Help("Split or domain of the captions: test, dev. Default: all images.", metavar="NAME")]
    sample_size: Annotated[int, Ge(2), Help("Number of sampled images. Default: 1000.", ("--images",), "N")]
    seed: Annotated[Seed, Help("Seed of the sample of images. Default: 0.", metavar="N")]
    references: Annotated[
        int, Ge(1), Help("Number of captions per image that are references. Default: 4.", metavar="N")
    ]
    gallery: Annotated[
        Literal["rest", "one"],
        Help("Queries and gallery: all captions that are not references (default), or one per image."),
    ]
