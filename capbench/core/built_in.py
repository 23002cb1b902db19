"""Built-in metrics, data sets and detectors by the name on the command line: their only place of registration.

Packages of plug-ins register theirs by entry points of these groups; see :mod:`capbench.core.plugins`.
"""

from __future__ import annotations

from collections.abc import Mapping

BUILT_IN: Mapping[str, Mapping[str, str]] = {
    "capbench.metrics": {
        "bleu": "capbench.metrics.ngram:Bleu",
        "rouge-l": "capbench.metrics.ngram:RougeL",
        "meteor": "capbench.metrics.meteor:Meteor",
        "cider": "capbench.metrics.ngram:Cider",
        "spice": "capbench.metrics.spice:Spice",
        "spider": "capbench.metrics.ngram:Spider",
        "wmd": "capbench.metrics.wmd:Wmd",
        "bertscore": "capbench.metrics.bertscore:BERTScore",
        "bert-tbr": "capbench.metrics.bert_tbr:BertTBR",
        "tiger": "capbench.metrics.tiger:Tiger",
        "reo": "capbench.metrics.reo:Reo",
        "nneval": "capbench.metrics.nneval.metric:NNEval",
        "faier": "capbench.metrics.faier.metric:Faier",
        "vilbertscore": "capbench.metrics.vilbert.metric:ViLBERTScore",
        "vifidel": "capbench.metrics.vifidel:Vifidel",
        "leic": "capbench.metrics.leic.metric:Leic",
        "clipscore": "capbench.metrics.clip:ClipScore",
        "pac-s": "capbench.metrics.clip:PacScore",
    },
    "capbench.datasets": {
        "flickr8k-expert": "capbench.datasets.flickr8k:Flickr8kExpert",
        "flickr8k-crowdflower": "capbench.datasets.flickr8k:Flickr8kCrowdFlower",
        "composite": "capbench.datasets.composite:Composite",
        "distractions": "capbench.datasets.distractions:Distractions",
        "pascal-50s": "capbench.datasets.pascal50s:Pascal50S",
        "nocaps": "capbench.datasets.nocaps:Nocaps",
        "foil": "capbench.datasets.foil:Foil",
        "foil-full": "capbench.datasets.foil:FoilFull",
        "flickr8k-pseudo": "capbench.datasets.pseudo_judgements:Flickr8kPseudo",
        "flickr8k-swaps": "capbench.datasets.swaps:Flickr8kSwaps",
        "thumb": "capbench.datasets.thumb:Thumb",
        "nebula": "capbench.datasets.nebula:Nebula",
        "polaris": "capbench.datasets.nebula:Polaris",
        "hm-coco": "capbench.datasets.human_machine:HmCoco",
        "hm-flickr8k": "capbench.datasets.human_machine:HmFlickr8k",
        "publicsys": "capbench.datasets.publicsys:PublicSys",
        "cxc-sits": "capbench.datasets.cxc:CxcSits",
        "cxc-sts": "capbench.datasets.cxc:CxcSts",
        "longcap-arena": "capbench.datasets.longcap_arena:LongCapArena",
        "valse": "capbench.datasets.foil_sets:Valse",
        "sugarcrepe": "capbench.datasets.foil_sets:SugarCrepe",
        "iiw": "capbench.datasets.imageinwords:ImageInWords",
        "context-sighted": "capbench.datasets.context:ContextSighted",
        "context-blv": "capbench.datasets.context:ContextBlv",
    },
    "capbench.detectors": {
        "bottom-up-caffe": "capbench.features.detectors.bottom_up:BottomUpCaffe",
        "bottom-up-hf": "capbench.features.detectors.bottom_up:BottomUpHF",
        "x152-fpn": "capbench.features.detectors.x152_fpn:X152Detector",
        "torchvision-frcnn": "capbench.features.detectors.torchvision_frcnn:TorchvisionFRCNN",
        "grid": "capbench.features.detectors.grid:Grid",
        "sample": "capbench.features.detectors.sample:SampleDetector",
    },
}
"""Group → name → class, as ``module:Class``; the order is that of lists and tables."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "bleu": ("bleu-1", "bleu-2", "bleu-3", "bleu-4"),
    "wmd": ("wmd", "wmd-distance"),
    "bertscore": ("bertscore-f", "bertscore-p", "bertscore-r"),
    "tiger": ("tiger", "rrs", "wds", "grounding"),
    "reo": (
        *("reo-relevance", "reo-extraness", "reo-omission"),
        *("reo-image-relevance", "reo-image-extraness", "reo-image-omission"),
    ),
    "faier": ("faier", "faier-object", "faier-relation"),
    "vilbertscore": ("vilbertscore-f", "vilbertscore-p", "vilbertscore-r"),
    "vifidel": ("vifidel", "vifidel-ref"),
    "clipscore": ("clipscore", "refclipscore"),
    "pac-s": ("pac-s", "refpac-s"),
}
"""Columns of metrics with others than their name, so that looking up a name imports no metric."""
