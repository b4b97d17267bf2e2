"""Checkpoints of a federated run, written after every round, so that a killed server can resume.

    state.json                  what there is, and in which file its latest version stands
    models-R.safetensors        the models after round R
    sums-R.safetensors          the open visits' means, the strategies' own state and the hedge, after round R
    blocks-R.safetensors        the means of blocks whose visit has ended before round R
    nodes-R.safetensors         the nodes met until round R, and what they said of themselves
    rounds.jsonl                a line for every round

Files are written under new names, then `state.json` is replaced in one step; what it no longer names is
removed. A round writes the arrays that it has changed, however many blocks there are. Other files in the
folder are not touched.
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semicyclic.adapters.flower.averages import BlockAverages, CycleMean, ModelMean
from semicyclic.adapters.flower.chains import ChainModel
from semicyclic.adapters.flower.client_selection import ClientDirectory, ClientProfile
from semicyclic.adapters.flower.round_results import BlockResult, Round
from semicyclic.adapters.flower.serialization import record
from semicyclic.adapters.flower.strategy_state import changes_since, classes, dump, load
from semicyclic.method.hedge import HedgeState
from semicyclic.store.atomic import lock, write_tensors, write_text
from semicyclic.types import Array

if TYPE_CHECKING:
    from semicyclic.adapters.flower.server_state import ServerState
    from semicyclic.adapters.flower.strategy import PluralisticStrategy

FORMAT = "semicyclic-federated-2"
STATE, ROUNDS, LOCK = "state.json", "rounds.jsonl", ".lock"
OURS = re.compile(r"(models|sums|blocks|nodes)-\d+\.safetensors")
LEFT = re.compile(rf"\.({OURS.pattern}|state\.json)\.\d+\.[0-9a-f]+")


class CheckpointDir:
    """The folder of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        held = lock(folder / LOCK)
        if held is None:
            raise ValueError(f"{folder}: another run is working in this folder")
        self._lock = held
        self.files: dict[str, str] = {}
        self.weights: dict[str, Any] = {}
        self.length = 0

    def close(self) -> None:
        """Let others work in the folder."""
        self._lock.close()

    def keep(self, strategy: "PluralisticStrategy", this: Round) -> None:
        """Put a round's changes into the folder; in one step they count."""
        number = this.tick
        models, sums, blocks = self._changes(strategy, this)
        nodes = self._nodes(strategy.directory)
        for word, pieces in (("models", models), ("sums", sums), ("blocks", blocks), ("nodes", nodes)):
            if not pieces:
                continue
            file = f"{word}-{number}.safetensors"
            write_tensors(
                self.folder / file, {key: _whole(value) for key, value in pieces.items()}, {"format": FORMAT}
            )
            for key in pieces:
                self.files[key.split("|")[0]] = file
        for kind in strategy.learnt.last if this.began else ():
            # What the visit began with: candidates for `best` are judged as they were then.
            last = f"last/{kind}/{this.block}"
            for held in (self.files, self.weights):
                held.pop(f"previous/{kind}", None)
                if last in held:
                    held[f"previous/{kind}"] = held[last]
        for kind, name in strategy.chains.moving(this.block):
            if name in this.moved:
                self.files[f"last/{kind}/{this.block}"] = self.files[f"current/{name}"]
                self.weights[f"last/{kind}/{this.block}"] = name
        self._log(this)
        told = {
            "format": FORMAT,
            "settings": settings(strategy),
            "seed": strategy.seed,
            "draws": strategy.draws,
            "round": this.number if this.counts else this.number - 1,
            "tick": this.tick,
            "trials": strategy.trials.to_json(),
            "known": [[arrays, shape] for arrays, shape in strategy.known.items()],
            "chain_rounds": {name: one.rounds for name, one in strategy.inside.items()},
            "visit": None if strategy.learnt.frozen is None else strategy.learnt.frozen.place,
            "block": this.block,
            "instant": this.instant,
            "rounds_bytes": self.length,
            "total": strategy.total,
            "weights": self.weights,
            "files": self.files,
            "insides": {
                name: changes_since(dump(one.strategy)[0], one.fresh) for name, one in strategy.inside.items()
            },
            "latest": sorted(strategy.directory.latest.items()),
        }
        write_text(self.folder / STATE, json.dumps(told, sort_keys=True))
        self._tidy()

    def _log(self, this: Round) -> None:
        """Add a line; what a killed server has added after its last state goes."""
        with open(self.folder / ROUNDS, "ab") as log:
            log.truncate(self.length)
            log.seek(self.length)
            log.write(json.dumps(this.to_json()).encode() + b"\n")
            self.length = log.tell()
            log.flush()
            os.fsync(log.fileno())

    def _changes(self, strategy: "PluralisticStrategy", this: Round) -> tuple[dict[str, Array], ...]:
        """The arrays that a round has changed, by piece and name: `piece|name`."""
        models: dict[str, Array] = {}
        sums: dict[str, Array] = {}
        blocks: dict[str, Array] = {}
        moving = strategy.chains.moving(this.block)
        for _, name in moving:
            if name in this.moved or f"current/{name}" not in self.files:
                for key, value in strategy.learnt.current[name].values.items():
                    models[f"current/{name}|{key}"] = value
        touched = {name for _, name in moving}
        for name, one in strategy.inside.items():
            if name in touched or f"inner/{name}" not in self.files:
                for key, value in dump(one.strategy)[1].items():
                    sums[f"inner/{name}|{key}"] = value
        if strategy.learnt.bets is not None:
            for field, value in zip(HedgeState._fields[1:], strategy.learnt.bets[1:], strict=True):
                sums[f"bets|{field}"] = value
        for kind, averages in strategy.learnt.averages.items():
            self._add_mean(sums, f"open/{kind}", averages, averages.open)
            self.weights[f"open/{kind}"] = [averages.place, averages.open.weight]
        for kind, block in this.closed:
            averages = strategy.learnt.averages[kind]
            whole = averages.total[block]
            assert whole is not None
            self._add_mean(blocks, f"total/{kind}/{block}", averages, whole)
            self.weights[f"total/{kind}/{block}"] = whole.weight
            parts = averages.recent[block]
            self.weights[f"recent/{kind}/{block}"] = [[part.cycle, part.mean.weight] for part in parts]
            for number, part in enumerate(parts):
                self._add_mean(blocks, f"recent/{kind}/{block}", averages, part.mean, f"{number}|")
        return models, sums, blocks

    @staticmethod
    def _nodes(directory: ClientDirectory) -> dict[str, Array]:
        """Whom the server has met, if that has changed."""
        if not directory.changed:
            return {}
        directory.changed = False
        known = directory.profiles
        zones = "\n".join(each.zone for each in known.values())
        profiles = [each.availability for each in known.values()]
        return {
            "nodes|known": np.array(list(known), np.uint64),
            "nodes|devices": np.array([each.device for each in known.values()], np.uint64),
            "nodes|profiles": np.array(profiles).reshape(len(known), directory.blocks),
            "nodes|zones": np.frombuffer(zones.encode(), np.uint8),
            "nodes|refused": np.array(sorted(directory.refused), np.uint64),
            "nodes|tried": np.array(list(directory.tries.items()), np.uint64).reshape(-1, 2),
        }

    @staticmethod
    def _meet(directory: ClientDirectory, held: dict[str, Array]) -> None:
        if not held:
            return
        zones = held["zones"].tobytes().decode().split("\n")
        columns = held["known"].tolist(), held["profiles"], zones, held["devices"].tolist()
        for node, profile, zone, device in zip(*columns, strict=False):
            directory.profiles[node] = ClientProfile(profile, zone, device)
        directory.refused = set(held["refused"].tolist())
        directory.tries = dict(held["tried"].tolist())

    @staticmethod
    def _add_mean(
        pieces: dict[str, Array], piece: str, averages: BlockAverages, mean: ModelMean, before: str = ""
    ) -> None:
        for name, value in zip(averages.layout.names, mean.values, strict=False):
            pieces[f"{piece}|{before}{name}"] = value

    def _tidy(self) -> None:
        """Remove what a state that has been replaced had named."""
        named = set(self.files.values())
        for path in self.folder.iterdir():
            if OURS.fullmatch(path.name) and path.name not in named:
                path.unlink(missing_ok=True)

    def restore(self, strategy: "PluralisticStrategy", result: BlockResult) -> int:
        """Bring a strategy to where the folder's run was; the number of rounds done, 0 if there is none."""
        path = self.folder / STATE
        for left in self.folder.iterdir():
            if LEFT.fullmatch(left.name):
                left.unlink(missing_ok=True)
        if not path.exists():
            return 0
        told = _read(path)
        for name, value in settings(strategy).items():
            if told["settings"].get(name) != value:
                raise ValueError(
                    f"{self.folder}: the run there has another {name}, {_short(told['settings'].get(name))}, "
                    f"not {_short(value)}: give the same settings, or another folder"
                )
        if strategy.seed is not None and strategy.seed != told["seed"]:
            raise ValueError(f"{self.folder}: the run there has seed {told['seed']}, not {strategy.seed}")
        strategy.draws = strategy.trials.draws = told["draws"]
        strategy.learnt.block = told["block"]
        strategy.ticks = told["tick"]
        strategy.trials.restore(told["trials"])
        strategy.known.update((arrays, _tuples(shape)) for arrays, shape in told["known"])
        strategy.clock.resume(told["instant"])
        strategy.total = told["total"]
        self.files, self.weights, self.length = told["files"], told["weights"], told["rounds_bytes"]
        strategy.directory.latest = {int(device): int(instant) for device, instant in told["latest"]}
        pieces = _Pieces(self.folder, self.files)
        self._fill(strategy, told, pieces)
        self._meet(strategy.directory, pieces.get("nodes"))
        self._tell(result)
        return int(told["round"])

    def _fill(self, strategy: "PluralisticStrategy", told: dict[str, Any], pieces: "_Pieces") -> None:
        names = strategy.learnt.layout.names

        def model(piece: str, inside: str) -> ChainModel:
            held = pieces.get(piece, inside)
            found = {key: held[key] for key in names}
            return ChainModel(record(found), found)

        for name, one in strategy.inside.items():
            if f"current/{name}" in self.files:
                strategy.learnt.current[name] = model(f"current/{name}", f"current/{name}")
            load(one.strategy, told["insides"][name], pieces.get(f"inner/{name}"))
            one.rounds = told["chain_rounds"][name]
        if strategy.learnt.bets is not None and "bets" in self.files:
            held = pieces.get("bets")
            strategy.learnt.bets = HedgeState(
                strategy.learnt.bets.rule, *(held[name] for name in HedgeState._fields[1:])
            )
        for kind, averages in strategy.learnt.averages.items():
            place, weight = self.weights[f"open/{kind}"]
            averages.place = None if place is None else (place[0], place[1])
            held = pieces.get(f"open/{kind}")
            own = averages.layout.names
            averages.open = ModelMean([held[name] for name in own] if weight else [], weight)
            for block in range(len(averages.total)):
                if f"total/{kind}/{block}" in self.files:
                    held = pieces.get(f"total/{kind}/{block}")
                    whole = ModelMean([held[name] for name in own], self.weights[f"total/{kind}/{block}"])
                    averages.total[block] = averages.keep(block, 0, whole)
                    held = pieces.get(f"recent/{kind}/{block}")
                    for number, (cycle, each) in enumerate(self.weights[f"recent/{kind}/{block}"]):
                        part = ModelMean([held[f"{number}|{name}"] for name in own], each)
                        kept = averages.keep(block, 1 + number, part)
                        averages.recent[block].append(CycleMean(cycle, kept, 1 + number))
        learnt = strategy.learnt
        for kind, lasts in learnt.last.items():
            for block in range(len(lasts)):
                lasts[block] = self._last(learnt, model, f"last/{kind}/{block}")
        if told["visit"] is not None:
            place = (told["visit"][0], told["visit"][1])
            began = {kind: list(lasts) for kind, lasts in learnt.last.items()}
            for kind, lasts in began.items():
                lasts[place[1]] = self._last(learnt, model, f"previous/{kind}")
            learnt.freeze(place, began)

    def _last(self, learnt: "ServerState", model: Callable[[str, str], ChainModel], piece: str) -> Any:
        """The last model of a block that a piece of the folder holds, if there is one."""
        if piece not in self.files:
            return None
        return learnt.own(model(piece, f"current/{self.weights[piece]}").values)

    def _tell(self, result: BlockResult) -> None:
        """What earlier rounds have measured, for the result."""
        path = self.folder / ROUNDS
        try:
            with open(path, "rb") as file:
                lines = [json.loads(line) for line in file.read(self.length).splitlines()]
        except (OSError, ValueError) as error:
            raise ValueError(f"{path}: it cannot be read: {error}") from None
        for told in lines:
            if told["came"] + told["failed"]:
                result.add(told)


class _Pieces:
    """The arrays of a folder, by piece."""

    def __init__(self, folder: Path, files: dict[str, str]) -> None:
        self.folder, self.files = folder, files
        self.held: dict[str, dict[str, Array]] = {}

    def get(self, piece: str, inside: str | None = None) -> dict[str, Array]:
        """The arrays of a piece by name; `inside` is what it is called in its file, if otherwise."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        file = self.files.get(piece)
        if file is None:
            return {}
        if file not in self.held:
            try:
                self.held[file] = load_file(self.folder / file)
            except (SafetensorError, OSError) as error:
                raise ValueError(f"{self.folder / file}: it cannot be read: {error}") from None
        before = f"{inside or piece}|"
        return {
            key.removeprefix(before): value
            for key, value in self.held[file].items()
            if key.startswith(before)
        }


def settings(strategy: "PluralisticStrategy") -> dict[str, Any]:
    """What must be the same for a run to go on."""
    layout = strategy.learnt.layout
    return {
        "schedule": strategy.schedule.to_json(),
        "chains": strategy.chains.name,
        "strategy": classes(strategy.inner),
        "hedge": None if strategy.learnt.bets is None else int(strategy.learnt.bets.rule),
        "clock": strategy.clock.to_json(),
        "tail": strategy.learnt.tail,
        "per_block": list(strategy.learnt.per_block),
        "arrays": [[name, list(shape), str(dtype)] for name, shape, dtype in zip(*layout, strict=True)],
    }


def _read(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: it cannot be read: {error}") from None
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise ValueError(f"{path}: not the state of a federated run")
    return told


def _tuples(value: Any) -> Any:
    """JSON's lists as the tuples they were."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) < 120 else text[:117] + "..."


def _whole(value: Array) -> Array:
    return np.ascontiguousarray(value).reshape(np.shape(value))
