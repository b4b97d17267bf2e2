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
from semicyclic.adapters.flower.reply_validation import finite
from semicyclic.adapters.flower.serialization import decode, record
from semicyclic.adapters.flower.strategy_state import classes, dump, load
from semicyclic.adapters.flower.subset_grid import SubsetGrid, check_enough


class StrategyFailed(Exception):
    """A strategy has made nothing that could be used, and was put back to where it was."""


class InnerStrategy:
    """A strategy that moves one chain.

    rounds: how many steps the chain has made. The strategy is told the number of the chain's own next step,
    as some count rounds (FedAdam's bias correction); clients are told the number of the run's round.
    seed: with one, which nodes it draws (by Python's global generator) and what noise it adds (by NumPy's)
    depend on the round and the chain alone.
    """

    def __init__(self, strategy: Strategy, name: str, seed: int | None) -> None:
        self.strategy, self.name, self.seed = strategy, name, seed
        self.fresh = dump(strategy)[0]
        self.rounds = 0

    def configure_train(
        self, number: int, sent: ArrayRecord, config: ConfigRecord, grid: SubsetGrid
    ) -> list[Message]:
        check_enough(self.strategy, grid.nodes, "min_train_nodes")
        with self._sampling(2 * number):
            messages = list(self.strategy.configure_train(self.rounds + 1, sent, config, grid))
        contents = {id(message.content): message.content for message in messages}
        for content in contents.values():
            # Often one for all messages.
            for told in content.config_records.values():
                if "server-round" in told:
                    told["server-round"] = number
        for message in messages:
            # Flower's nodes log this as the round.
            message.metadata.group_id = f"{number}/{self.name}"
        return messages

    def configure_evaluate(
        self, number: int, sent: ArrayRecord, config: ConfigRecord, grid: SubsetGrid
    ) -> list[Message]:
        check_enough(self.strategy, grid.nodes, "min_evaluate_nodes")
        with self._sampling(2 * number + 1):
            return list(self.strategy.configure_evaluate(number, sent, config, grid))

    def advance(
        self, number: int, replies: Sequence[Message], layout: ArraySpec
    ) -> tuple[ChainModel | None, MetricRecord | None]:
        """The chain's next model, if there is one; Spoilt if it cannot be used."""
        held = dump(self.strategy)
        self.rounds += 1
        try:
            with self._noise(number):
                arrays, metrics = self.strategy.aggregate_train(self.rounds, replies)
            return (None if arrays is None else self._check(arrays, layout)), metrics
        except Exception as error:
            # Whatever it has made of the replies, its own state included, did not happen.
            load(self.strategy, *held)
            raise StrategyFailed(f"{type(error).__name__}: {error}") from error

    def _check(self, arrays: ArrayRecord, layout: ArraySpec) -> ChainModel:
        """The new model in the types of the first one, if all of it and of the strategy's state is finite."""
        if set(arrays) != set(layout.names):
            raise ValueError("the strategy's new model has other arrays than the old one")
        found, same = {}, True
        for name, shape, dtype in zip(*layout, strict=True):
            value = decode(arrays[name])
            if value.shape != shape:
                raise ValueError(
                    f"array {name!r} of the strategy's new model has shape {value.shape}, not {shape}"
                )
            found[name] = as_type(value, dtype)
            same &= found[name] is value
            if not finite(found[name]):
                raise ValueError(f"array {name!r} of the strategy's new model is not finite")
        for name, value in dump(self.strategy)[1].items():
            if not finite(value):
                raise ValueError(f"{name} of the strategy itself is not finite")
        return ChainModel(arrays if same else record(found), found)

    @contextmanager
    def _sampling(self, use: int) -> Iterator[None]:
        if self.seed is None:
            yield
            return
        held = random.getstate()
        random.seed((self.seed << 40) + use)
        try:
            yield
        finally:
            random.setstate(held)

    @contextmanager
    def _noise(self, number: int) -> Iterator[None]:
        if self.seed is None:
            yield
            return
        chain = 0 if self.name == SHARED else 1 + int(self.name)
        held = np.random.get_state()  # noqa: NPY002
        np.random.seed([self.seed % 2**32, number, chain])  # noqa: NPY002
        try:
            yield
        finally:
            np.random.set_state(held)  # noqa: NPY002


def copy_for_chains(
    inner: Strategy, names: Sequence[str], seed: int | None, *, required: bool
) -> dict[str, InnerStrategy] | None:
    """A copy of a strategy for each chain, so that each has the server's state, such as momentum, for itself.

    None, with a warning, if it cannot be copied and several chains are not `required`.
    """
    try:
        copies = [deepcopy(inner) for _ in names[1:]]
    except Exception as error:
        what = f"{classes(inner)} cannot be copied ({error}), and every chain needs one of its own"
        if required:
            raise TypeError(f"{what}: use chains=Chains.SHARED") from error
        log(WARNING, "%s: there is one chain only, Chains.SHARED", what)
        return None
    return {name: InnerStrategy(one, name, seed) for name, one in zip(names, [inner, *copies], strict=True)}
