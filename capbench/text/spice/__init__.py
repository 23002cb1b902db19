"""SPICE without Java: merging of scene graphs and matching of their tuples (Anderson et al., 2016).

The parser provides the tuples (:mod:`capbench.text.spice.scene_graph`); all later steps are computed in
:mod:`capbench.text.spice.matching` and yield the counts of the published SPICE 1.0 program.
"""
