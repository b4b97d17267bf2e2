"""Metrics: accuracy, log loss, AUC and errors of a model on labelled rows."""

from dataclasses import dataclass

from semicyclic.method.loss import QUANTILE, SQUARED, Loss

ACCURACY, LOG_LOSS, AUC, ABSOLUTE_ERROR, SQUARED_ERROR, PINBALL = range(6)


@dataclass(frozen=True)
class Metric:
    """A metric of predictions.

    Parameters
    ----------
    name : str
    code : int
        Selects the formula in compiled kernels.
    more_is_better : bool
    level : float
        Of a quantile.
    """

    name: str
    code: int
    more_is_better: bool = False
    level: float = 0.0

    def __repr__(self) -> str:
        return f"metrics.{self.name}"

    def check(self, loss: Loss) -> None:
        """Raise if the metric does not apply to models with this loss."""
        regression = self.code in (ABSOLUTE_ERROR, SQUARED_ERROR, PINBALL)
        if regression != (loss.classes == 0):
            use = "accuracy, log_loss or auc" if regression else "absolute_error, squared_error or pinball"
            raise ValueError(f"{self.name} has no meaning for loss {loss.name}: use {use}")
        if self.code == AUC and loss.outputs > 1:
            raise ValueError(f"auc needs two classes, loss {loss.name} has {loss.classes}: use log_loss")
        if self.code == LOG_LOSS and loss.name == "hinge":
            raise ValueError(
                "log_loss needs probabilities, which loss hinge does not give: use accuracy or auc"
            )


accuracy = Metric("accuracy", ACCURACY, more_is_better=True)
log_loss = Metric("log_loss", LOG_LOSS)
auc = Metric("auc", AUC, more_is_better=True)
absolute_error = Metric("absolute_error", ABSOLUTE_ERROR)
squared_error = Metric("squared_error", SQUARED_ERROR)


def pinball(level: float) -> Metric:
    """The quantile (pinball) loss.

    Parameters
    ----------
    level : float
        The quantile, between 0 and 1.

    Returns
    -------
    Metric
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"level={level!r}: a quantile lies strictly between 0 and 1, such as 0.9")
    return Metric(f"pinball({level!r})", PINBALL, level=level)


def natural(loss: Loss) -> Metric:
    """Return the default metric of models with a loss: accuracy, or the error that the loss minimizes.

    Parameters
    ----------
    loss : Loss

    Returns
    -------
    Metric
    """
    if loss.classes:
        return accuracy
    if loss.code == QUANTILE:
        return pinball(loss.level)
    return squared_error if loss.code == SQUARED else absolute_error
