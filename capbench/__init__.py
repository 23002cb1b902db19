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
    from capbench.api.agreement import correlate as correlate
    from capbench.api.agreement import correlate_all_protocols as correlate_all_protocols
    from capbench.api.check_metric import check_metric as check_metric
    from capbench.api.comparing import combine as combine
    from capbench.api.comparing import compare as compare
    from capbench.api.comparing import power as power
    from capbench.api.data import import_data as import_data
    from capbench.api.explaining import explain as explain
    from capbench.api.features import extract_features as extract_features
    from capbench.api.features import import_features as import_features
    from capbench.api.ranking import leaderboard as leaderboard
    from capbench.api.ranking import rank as rank
    from capbench.api.results import Judgements as Judgements
    from capbench.api.results import ScoreTable as ScoreTable
    from capbench.api.scoring import load as load
    from capbench.api.scoring import score as score
    from capbench.api.systems import compare_systems as compare_systems
    from capbench.api.tasks import references as references
    from capbench.api.tasks import retrieve as retrieve
    from capbench.api.training import evaluate_model as evaluate_model
    from capbench.api.training import fit_reo_covariance as fit_reo_covariance
    from capbench.api.training import train as train
    from capbench.api.training import train_word_vectors as train_word_vectors
    from capbench.core.errors import CapbenchError as CapbenchError
    from capbench.core.errors import CapbenchWarning as CapbenchWarning
    from capbench.core.errors import DataError as DataError
    from capbench.core.errors import MetricError as MetricError
    from capbench.core.errors import ModelError as ModelError
    from capbench.core.errors import UsageError as UsageError
    from capbench.core.explanations import Bars as Bars
    from capbench.core.explanations import ExplainedCandidate as ExplainedCandidate
    from capbench.core.explanations import Explanation as Explanation
    from capbench.core.explanations import Matrix as Matrix
    from capbench.core.explanations import RegionMaps as RegionMaps
    from capbench.core.explanations import Table as Table
    from capbench.core.options import Choice as Choice
    from capbench.core.options import Count as Count
    from capbench.core.options import File as File
    from capbench.core.options import Flag as Flag
    from capbench.core.options import Number as Number
    from capbench.core.options import Options as Options
    from capbench.core.options import Positive as Positive
    from capbench.core.options import Text as Text
    from capbench.core.options import option as option
    from capbench.core.progress import Progress as Progress
    from capbench.core.records import FloatArray as FloatArray
    from capbench.core.records import Item as Item
    from capbench.core.records import Preferences as Preferences
    from capbench.core.records import Ratings as Ratings
    from capbench.core.records import caption_key as caption_key
    from capbench.core.records import image_id as image_id
    from capbench.datasets.base import Dataset as Dataset
    from capbench.datasets.protocol import ItemSelection as ItemSelection
    from capbench.datasets.protocol import accuracy as accuracy
    from capbench.datasets.protocol import correlations as correlations
    from capbench.features.class_names import regions_of as regions_of
    from capbench.features.detectors.base import Detector as Detector
    from capbench.features.records import Fingerprint as Fingerprint
    from capbench.features.records import RegionFeatures as RegionFeatures
    from capbench.features.store import open_store as open_store
    from capbench.metrics.base import CombinedMetric as CombinedMetric
    from capbench.metrics.base import Metric as Metric
    from capbench.metrics.clip import ContrastiveMetric as ContrastiveMetric
    from capbench.metrics.clip import ContrastiveOptions as ContrastiveOptions
    from capbench.metrics.image_metric import ImageMetric as ImageMetric
    from capbench.metrics.needs import Features as Features
    from capbench.metrics.needs import Image as Image
    from capbench.metrics.needs import Images as Images
    from capbench.metrics.needs import References as References
    from capbench.metrics.needs import Resources as Resources
    from capbench.metrics.needs import Weights as Weights
    from capbench.metrics.needs import find_pictures as find_pictures
    from capbench.studies.leaderboard import Leaderboard as Leaderboard
    from capbench.studies.ranking import TaskRanking as TaskRanking
    from capbench.studies.results import StudyResult as StudyResult
    from capbench.text.vocabulary import Vocabulary as Vocabulary
    from capbench.text.vocabulary import tokenizer_version as tokenizer_version
    from capbench.training.trainer import Task as Task

_NAMES = {
    "api.agreement": "correlate correlate_all_protocols",
    "api.check_metric": "check_metric",
    "api.comparing": "combine compare power",
    "api.data": "import_data",
    "api.explaining": "explain",
    "api.features": "extract_features import_features",
    "api.ranking": "leaderboard rank",
    "api.results": "Judgements ScoreTable",
    "api.scoring": "load score",
    "api.systems": "compare_systems",
    "api.tasks": "references retrieve",
    "api.training": "evaluate_model fit_reo_covariance train train_word_vectors",
    "core.errors": "CapbenchError CapbenchWarning DataError MetricError ModelError UsageError",
    "core.explanations": "Bars ExplainedCandidate Explanation Matrix RegionMaps Table",
    "core.options": "Choice Count File Flag Number Options Positive Text option",
    "core.progress": "Progress",
    "core.records": "FloatArray Item Preferences Ratings caption_key image_id",
    "datasets.base": "Dataset",
    "datasets.protocol": "ItemSelection accuracy correlations",
    "features.class_names": "regions_of",
    "features.detectors.base": "Detector",
    "features.records": "Fingerprint RegionFeatures",
    "features.store": "open_store",
    "metrics.base": "CombinedMetric Metric",
    "metrics.clip": "ContrastiveMetric ContrastiveOptions",
    "metrics.image_metric": "ImageMetric",
    "metrics.needs": "Features Image Images References Resources Weights find_pictures",
    "studies.leaderboard": "Leaderboard",
    "studies.ranking": "TaskRanking",
    "studies.results": "StudyResult",
    "text.vocabulary": "Vocabulary tokenizer_version",
    "training.trainer": "Task",
}
"""Names by the module that defines them, separated by spaces."""
_HOMES = {name: f"capbench.{home}" for home, names in _NAMES.items() for name in names.split()}
__all__ = ["__version__", *_HOMES]


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
