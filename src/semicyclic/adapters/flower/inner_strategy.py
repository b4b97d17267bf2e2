"""Wrapper of the inner strategy: contains its failures and seeds its random draws."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from logging import WARNING

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp.strategy import Strategy

from semicyclic.adapters.flower.averages import ArraySpec, as_type
from semicyclic.adapters.flower.chains import SHARED, ChainModel
from semicyclic.adapters.flower.reply_validation import is_finite
from semicyclic.adapters.flower.serialization import decode, record
from semicyclic.adapters.flower.strategy_state import classes, dump, load
from semicyclic.adapters.flower.subset_grid import SubsetGrid, check_enough


class StrategyFailed(Exception):
    """A strategy raised or returned an unusable model; its state was rolled back."""


class InnerStrategy:
    """Strategy that updates one chain.

    rounds: number of steps of the chain. The strategy receives the number of the chain's next step, because
        some strategies count rounds (FedAdam's bias correction). Clients receive the round of the run.
    seed: if set, the nodes that the strategy draws (Python's global generator) depend on the round alone, and
        the noise that it adds (NumPy's global generator) on the round and the chain alone.
    """

    def __init__(self, strategy: Strategy, name: str, seed: int | None) -> None:
        self.strategy, self.name, self.seed = strategy, name, seed
        self.fresh = dump(strategy)[0]
        self.rounds = 0

    def configure_train(
        self, number: int, sent: ArrayRecord, config: ConfigRecord, grid: SubsetGrid
    ) -> list[Message]:
        """Return the strategy's training messages of round `number`; raise TooFewNodes if it would wait."""
        check_enough(self.strategy, grid.nodes, "min_train_nodes")
        with self._seed_sampling(2 * number):
            messages = list(self.strategy.configure_train(self.rounds + 1, sent, config, grid))
        contents = {id(message.content): message.content for message in messages}
        for content in contents.values():
            # Messages often share one content.
            for settings in content.config_records.values():
                if "server-round" in settings:
                    settings["server-round"] = number
        for message in messages:
            # Flower's nodes log the group id as the round.
            message.metadata.group_id = f"{number}/{self.name}"
        return messages

    def configure_evaluate(
        self, number: int, sent: ArrayRecord, config: ConfigRecord, grid: SubsetGrid
    ) -> list[Message]:
        """Return the strategy's evaluation messages of round `number`; raise TooFewNodes if it would wait."""
        check_enough(self.strategy, grid.nodes, "min_evaluate_nodes")
        with self._seed_sampling(2 * number + 1):
            return list(self.strategy.configure_evaluate(number, sent, config, grid))

    def advance(
        self, number: int, replies: Sequence[Message], layout: ArraySpec
    ) -> tuple[ChainModel | None, MetricRecord | None]:
        """Aggregate replies; return the chain's next model, if any, and the metrics.

        Raise StrategyFailed, with the strategy's state rolled back, if it fails or the model is unusable.
        """
        state = dump(self.strategy)
        self.rounds += 1
        try:
            with self._seed_noise(number):
                arrays, metrics = self.strategy.aggregate_train(self.rounds, replies)
            return (None if arrays is None else self._check(arrays, layout)), metrics
        except Exception as error:
            # Roll back the round, including the strategy's state.
            load(self.strategy, *state)
            raise StrategyFailed(f"{type(error).__name__}: {error}") from error

    def _check(self, arrays: ArrayRecord, layout: ArraySpec) -> ChainModel:
        """Return the new model in the run's dtypes; raise if it or the strategy's state is not finite."""
        if set(arrays) != set(layout.names):
            raise ValueError("the array names of the strategy's new model differ from those of the old one")
        values, same = {}, True
        for name, shape, dtype in zip(*layout, strict=True):
            value = decode(arrays[name])
            if value.shape != shape:
                raise ValueError(
                    f"array {name!r} of the strategy's new model has shape {value.shape}, not {shape}"
                )
            values[name] = as_type(value, dtype)
            same &= values[name] is value
            if not is_finite(values[name]):
                raise ValueError(f"array {name!r} of the strategy's new model is not finite")
        for name, value in dump(self.strategy)[1].items():
            if not is_finite(value):
                raise ValueError(f"state {name!r} of the strategy is not finite")
        return ChainModel(arrays if same else record(values), values)

    @contextmanager
    def _seed_sampling(self, stream: int) -> Iterator[None]:
        """Seed Python's global generator with stream number `stream`, and restore it afterwards."""
        if self.seed is None:
            yield
            return
        state = random.getstate()
        random.seed((self.seed << 40) + stream)
        try:
            yield
        finally:
            random.setstate(state)

    @contextmanager
    def _seed_noise(self, number: int) -> Iterator[None]:
        """Seed NumPy's global generator for round `number`, and restore it afterwards."""
        if self.seed is None:
            yield
            return
        chain = 0 if self.name == SHARED else 1 + int(self.name)
        state = np.random.get_state()  # noqa: NPY002
        np.random.seed([self.seed % 2**32, number, chain])  # noqa: NPY002
        try:
            yield
        finally:
            np.random.set_state(state)  # noqa: NPY002


def copy_for_chains(
    inner: Strategy, names: Sequence[str], seed: int | None, *, required: bool
) -> dict[str, InnerStrategy] | None:
    """Return a copy of a strategy per chain name, so that each chain has separate state such as momentum.

    If the strategy cannot be copied: raise TypeError if `required`, otherwise warn and return None.
    """
    try:
        copies = [deepcopy(inner) for _ in names[1:]]
    except Exception as error:
        reason = f"{classes(inner)} cannot be copied ({error}), and every chain needs a separate copy"
        if required:
            raise TypeError(f"{reason}: use chains=Chains.SHARED") from error
        log(WARNING, "%s: falling back to one chain, Chains.SHARED", reason)
        return None
    return {name: InnerStrategy(one, name, seed) for name, one in zip(names, [inner, *copies], strict=True)}
