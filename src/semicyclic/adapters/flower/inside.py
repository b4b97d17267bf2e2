"""The strategy inside, asked in a way that no fault of its own ends a run and no draw is left to chance."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp.strategy import Strategy

from semicyclic.adapters.flower.among import Among, check_enough
from semicyclic.adapters.flower.averages import Layout, as_type
from semicyclic.adapters.flower.chains import SHARED, Model
from semicyclic.adapters.flower.coding import decode, record
from semicyclic.adapters.flower.memory import dump, load
from semicyclic.adapters.flower.screening import finite


class Spoilt(Exception):
    """A strategy has made nothing that could be used, and was put back to where it was."""


class Inside:
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
        self, number: int, sent: ArrayRecord, config: ConfigRecord, grid: Among
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
        self, number: int, sent: ArrayRecord, config: ConfigRecord, grid: Among
    ) -> list[Message]:
        check_enough(self.strategy, grid.nodes, "min_evaluate_nodes")
        with self._sampling(2 * number + 1):
            return list(self.strategy.configure_evaluate(number, sent, config, grid))

    def moved(
        self, number: int, replies: Sequence[Message], layout: Layout
    ) -> tuple[Model | None, MetricRecord | None]:
        """The chain's next model, if there is one; Spoilt if it cannot be used."""
        held = dump(self.strategy)
        self.rounds += 1
        try:
            with self._noise(number):
                arrays, metrics = self.strategy.aggregate_train(self.rounds, replies)
            return (None if arrays is None else self._checked(arrays, layout)), metrics
        except Exception as error:
            # Whatever it has made of the replies, its own state included, did not happen.
            load(self.strategy, *held)
            raise Spoilt(f"{type(error).__name__}: {error}") from error

    def _checked(self, arrays: ArrayRecord, layout: Layout) -> Model:
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
        return Model(arrays if same else record(found), found)

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
