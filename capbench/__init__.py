"""capbench measures how well image-caption metrics agree with human judgements, and tests differences between metrics.

::

    import capbench

    capbench.score(["a dog runs"], [["a dog is running", "a brown dog runs"]], metrics=["cider", "bleu-4"])
    capbench.correlate("flickr8k-expert", metrics=["cider", my_function], bootstrap=1000)
    capbench.compare("flickr8k-expert", metrics=["cider", "meteor"])
    capbench.load("flickr8k-expert").to_frame()

See ``docs/python.md``. Custom metrics, data sets and detectors also import from here (``docs/extend.md``). The modules
are imported on first use.
"""

from __future__ import annotations

__version__ = "0.3.0"

TYPE_CHECKING = False  # type checkers recognise the name; 'typing' is not imported

if TYPE_CHECKING:
    from capbench.api.agreement import correlate, correlate_all_protocols
    from capbench.api.check_metric import check_metric
    from capbench.api.combining import combine
    from capbench.api.comparing import compare, power
    from capbench.api.data import import_data
    from capbench.api.explaining import explain
    from capbench.api.features import extract_features, import_features
    from capbench.api.leaderboard import LeaderboardResult, leaderboard
    from capbench.api.ranking import RankingResult, rank
    from capbench.api.references import references
    from capbench.api.results import Judgements, ScoreTable
    from capbench.api.retrieving import retrieve
    from capbench.api.scoring import load, score
    from capbench.api.systems import compare_systems
    from capbench.api.training import evaluate_model, fit_reo_covariance, train, train_word_vectors
    from capbench.core.errors import CapbenchError, CapbenchWarning, DataError, MetricError, ModelError, UsageError
    from capbench.core.explanations import (
        Bars,
        ExplainedCandidate,
        Explanation,
        Matrix,
        RegionMaps,
        Table,
    )
    from capbench.core.options import Choice, Count, File, Flag, Number, Options, Positive, Share, Text, option
    from capbench.core.progress import Progress
    from capbench.core.records import FloatArray, Item, Preferences, Ratings, caption_key, image_id
    from capbench.datasets.base import Dataset
    from capbench.datasets.protocol import ItemSelection, accuracy, correlations
    from capbench.features.class_names import regions_of
    from capbench.features.detectors.base import Detector
    from capbench.features.records import Fingerprint, RegionFeatures
    from capbench.features.store import open_store
    from capbench.metrics.base import CombinedMetric, Metric
    from capbench.metrics.clip import ContrastiveMetric, ContrastiveOptions
    from capbench.metrics.image_metric import ImageMetric
    from capbench.metrics.needs import Features, Image, Images, References, Resources, Weights, find_pictures
    from capbench.studies.results import StudyResult
    from capbench.text.vocabulary import Vocabulary, tokenizer_version
    from capbench.training.trainer import Task

__all__ = [
    "Bars",
    "CapbenchError",
    "CapbenchWarning",
    "Choice",
    "CombinedMetric",
    "ContrastiveMetric",
    "ContrastiveOptions",
    "Count",
    "DataError",
    "Dataset",
    "Detector",
    "ExplainedCandidate",
    "Explanation",
    "Features",
    "File",
    "Fingerprint",
    "Flag",
    "FloatArray",
    "Image",
    "ImageMetric",
    "Images",
    "Item",
    "ItemSelection",
    "Judgements",
    "LeaderboardResult",
    "Matrix",
    "Metric",
    "MetricError",
    "ModelError",
    "Number",
    "Options",
    "Positive",
    "Preferences",
    "Progress",
    "RankingResult",
    "Ratings",
    "References",
    "RegionFeatures",
    "RegionMaps",
    "Resources",
    "ScoreTable",
    "Share",
    "StudyResult",
    "Table",
    "Task",
    "Text",
    "UsageError",
    "Vocabulary",
    "Weights",
    "__version__",
    "accuracy",
    "caption_key",
    "check_metric",
    "combine",
    "compare",
    "compare_systems",
    "correlate",
    "correlate_all_protocols",
    "correlations",
    "evaluate_model",
    "explain",
    "extract_features",
    "find_pictures",
    "fit_reo_covariance",
    "image_id",
    "import_data",
    "import_features",
    "leaderboard",
    "load",
    "open_store",
    "option",
    "power",
    "rank",
    "references",
    "regions_of",
    "retrieve",
    "score",
    "tokenizer_version",
    "train",
    "train_word_vectors",
]

_HOMES = {
    "Bars": "capbench.core.explanations",
    "CapbenchError": "capbench.core.errors",
    "CapbenchWarning": "capbench.core.errors",
    "Choice": "capbench.core.options",
    "CombinedMetric": "capbench.metrics.base",
    "ContrastiveMetric": "capbench.metrics.clip",
    "ContrastiveOptions": "capbench.metrics.clip",
    "Count": "capbench.core.options",
    "DataError": "capbench.core.errors",
    "Dataset": "capbench.datasets.base",
    "Detector": "capbench.features.detectors.base",
    "ExplainedCandidate": "capbench.core.explanations",
    "Explanation": "capbench.core.explanations",
    "Features": "capbench.metrics.needs",
    "File": "capbench.core.options",
    "Fingerprint": "capbench.features.records",
    "Flag": "capbench.core.options",
    "FloatArray": "capbench.core.records",
    "Image": "capbench.metrics.needs",
    "ImageMetric": "capbench.metrics.image_metric",
    "Images": "capbench.metrics.needs",
    "Item": "capbench.core.records",
    "ItemSelection": "capbench.datasets.protocol",
    "Judgements": "capbench.api.results",
    "LeaderboardResult": "capbench.api.leaderboard",
    "Matrix": "capbench.core.explanations",
    "Metric": "capbench.metrics.base",
    "MetricError": "capbench.core.errors",
    "ModelError": "capbench.core.errors",
    "Number": "capbench.core.options",
    "Options": "capbench.core.options",
    "Positive": "capbench.core.options",
    "Preferences": "capbench.core.records",
    "Progress": "capbench.core.progress",
    "RankingResult": "capbench.api.ranking",
    "Ratings": "capbench.core.records",
    "References": "capbench.metrics.needs",
    "RegionFeatures": "capbench.features.records",
    "RegionMaps": "capbench.core.explanations",
    "Resources": "capbench.metrics.needs",
    "ScoreTable": "capbench.api.results",
    "Share": "capbench.core.options",
    "StudyResult": "capbench.studies.results",
    "Table": "capbench.core.explanations",
    "Task": "capbench.training.trainer",
    "Text": "capbench.core.options",
    "UsageError": "capbench.core.errors",
    "Vocabulary": "capbench.text.vocabulary",
    "Weights": "capbench.metrics.needs",
    "accuracy": "capbench.datasets.protocol",
    "caption_key": "capbench.core.records",
    "check_metric": "capbench.api.check_metric",
    "combine": "capbench.api.combining",
    "compare": "capbench.api.comparing",
    "compare_systems": "capbench.api.systems",
    "correlate": "capbench.api.agreement",
    "correlate_all_protocols": "capbench.api.agreement",
    "correlations": "capbench.datasets.protocol",
    "evaluate_model": "capbench.api.training",
    "explain": "capbench.api.explaining",
    "extract_features": "capbench.api.features",
    "find_pictures": "capbench.metrics.needs",
    "fit_reo_covariance": "capbench.api.training",
    "image_id": "capbench.core.records",
    "import_data": "capbench.api.data",
    "import_features": "capbench.api.features",
    "leaderboard": "capbench.api.leaderboard",
    "load": "capbench.api.scoring",
    "open_store": "capbench.features.store",
    "option": "capbench.core.options",
    "power": "capbench.api.comparing",
    "rank": "capbench.api.ranking",
    "references": "capbench.api.references",
    "regions_of": "capbench.features.class_names",
    "retrieve": "capbench.api.retrieving",
    "score": "capbench.api.scoring",
    "tokenizer_version": "capbench.text.vocabulary",
    "train": "capbench.api.training",
    "train_word_vectors": "capbench.api.training",
}


if not TYPE_CHECKING:  # a type checker would accept every misspelt name

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
