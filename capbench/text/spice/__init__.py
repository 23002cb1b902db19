"""SPICE without Java: merging of scene graphs and matching of their tuples (Anderson et al., 2016).

The tuples themselves come from the parser (:mod:`capbench.text.spice.scene_graph`); everything after them
happens here and gives the counts of the published SPICE 1.0 program.
"""

from capbench.text.spice.matching import (
    CATEGORIES,
    COUNTS,
    Concept,
    Graph,
    Node,
    Relation,
    Scorer,
    TupleList,
    WordNet,
    f_scores,
    wordnet,
)

__all__ = [
    "CATEGORIES",
    "COUNTS",
    "Concept",
    "Graph",
    "Node",
    "Relation",
    "Scorer",
    "TupleList",
    "WordNet",
    "f_scores",
    "wordnet",
]
