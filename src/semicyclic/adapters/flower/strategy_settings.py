"""Settings of `PluralisticStrategy`: defaults that depend on each other, and invalid combinations."""

from collections.abc import Sequence

from flwr.serverapp.strategy import Strategy

from semicyclic.adapters.flower.candidate_evaluation import DEFAULT_EVALUATORS
from semicyclic.adapters.flower.chains import Chains
from semicyclic.adapters.flower.strategy_state import classes
from semicyclic.method.hedge import AdaHedge, Prod
from semicyclic.schedule.schedule import Schedule


def resolve_settings(
    inner: Strategy,
    schedule: Schedule,
    chains: Chains | None,
    *,
    hedge: AdaHedge | Prod | None,
    evaluators: int | None,
    per_block: Sequence[str],
) -> tuple[Chains, int]:
    """Return chains and number of evaluators with defaults filled in; raise if settings are incompatible."""
    if not isinstance(schedule, Schedule):
        raise TypeError(f"schedule={schedule!r}: give a Schedule, such as Schedule.daily(6)")
    if not isinstance(inner, Strategy):
        raise TypeError(f"inner={inner!r}: give a strategy of flwr.serverapp.strategy")
    private = "DifferentialPrivacy" in classes(inner)
    if chains is None:
        chains = Chains.SHARED if private or per_block or evaluators == 0 else Chains.SPLIT
    if not isinstance(chains, Chains):
        raise TypeError(f"chains={chains!r}: give Chains.SHARED, SEPARATE, HEDGED or SPLIT")
    if hedge is not None and not chains.is_hedged:
        raise ValueError("hedge= requires chains=Chains.SPLIT or Chains.HEDGED")
    if evaluators is None:
        evaluators = 0 if private else DEFAULT_EVALUATORS
    _check_combination(inner, chains, private=private, evaluators=evaluators, per_block=per_block)
    return chains, evaluators


def _check_combination(
    inner: Strategy, chains: Chains, *, private: bool, evaluators: int, per_block: Sequence[str]
) -> None:
    """Raise if the strategy and the settings are incompatible."""
    name = classes(inner)
    if "Xgb" in name:
        raise ValueError(
            f"{name} trains trees, which cannot be averaged: use a strategy for arrays of fixed shape"
        )
    if type(inner).start is not Strategy.start:
        raise ValueError(
            f"{type(inner).__name__} overrides start(), which is never called on a wrapped strategy: move "
            "its code into configure_train and aggregate_train"
        )
    if private and (chains.is_hedged or evaluators):
        raise ValueError(
            f"{name}: losses that clients report are neither clipped nor noised, so a hedge or best() would "
            "release more than the privacy accounting covers: use Chains.SHARED or SEPARATE with evaluators=0"
        )
    if evaluators < 0:
        raise ValueError(f"evaluators={evaluators}: must be 0 or more")
    if chains is Chains.SPLIT and not evaluators:
        raise ValueError("Chains.SPLIT needs clients that evaluate: set evaluators= to at least 1")
    if per_block and chains is not Chains.SHARED:
        raise ValueError("per_block= requires Chains.SHARED: other chains do not share a body")
