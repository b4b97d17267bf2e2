"""scikit-learn estimators `SemiCyclicClassifier` and `SemiCyclicRegressor`, and the splitter `CycleSplit`."""

try:
    import sklearn  # noqa: F401
except ImportError:
    raise ImportError(
        "the estimators need scikit-learn, which is not installed: pip install 'semicyclic[sklearn]'"
    ) from None

from semicyclic.adapters.sklearn.classifier import SemiCyclicClassifier
from semicyclic.adapters.sklearn.cycle_split import CycleSplit
from semicyclic.adapters.sklearn.regressor import SemiCyclicRegressor

__all__ = ["CycleSplit", "SemiCyclicClassifier", "SemiCyclicRegressor"]
