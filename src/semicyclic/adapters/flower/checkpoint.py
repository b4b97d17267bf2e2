"""Checkpoints of a federated run, written after every round, so that a killed server can resume.

    state.json                  settings, counters, and the file with the latest version of each piece
    models-R.safetensors        models after round R
    sums-R.safetensors          means of open visits, state of the inner strategies and hedge, after round R
    blocks-R.safetensors        means of blocks whose visit ended before round R
    nodes-R.safetensors         nodes queried up to round R and their profiles
    rounds.jsonl                one line per round

R counts clock reads, rounds without participants included. Files are written under new names, then
`state.json` is replaced by an atomic rename, then files that it no longer refers to are removed. A round
writes only the arrays that it has changed, whatever the number of blocks. Other files in the folder are not
touched.

A piece is a group of arrays that are written together, such as `current/shared` or `total/own/3`. In a file,
arrays are named `piece|name`.
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

FORMAT = "semicyclic-federated-3"
STATE, ROUNDS, LOCK = "state.json", "rounds.jsonl", ".lock"
ARRAY_FILE = re.compile(r"(models|sums|blocks|nodes)-\d+\.safetensors")
# Temporary files that an interrupted atomic write leaves behind.
TEMPORARY_FILE = re.compile(rf"\.({ARRAY_FILE.pattern}|state\.json)\.\d+\.[0-9a-f]+")


class CheckpointDir:
    """Checkpoint folder of a run, locked until `close`.

    files: by piece, the file that holds it. weights: by piece, weights and cycles of its means, or the name
    of its chain. length: size of `rounds.jsonl` in bytes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        lock_file = lock(folder / LOCK)
        if lock_file is None:
            raise ValueError(
                f"{folder}: another run is working in this folder: stop it or use another folder"
            )
        self._lock = lock_file
        self.files: dict[str, str] = {}
        self.weights: dict[str, Any] = {}
        self.length = 0

    def close(self) -> None:
        """Release the lock of the folder."""
        self._lock.close()

    def save(self, strategy: "PluralisticStrategy", this: Round) -> None:
        """Write the changes of a round; they take effect when `state.json` is replaced."""
        number = this.tick
        models, sums, blocks = self._changes(strategy, this)
        nodes = self._node_arrays(strategy.directory)
        for prefix, arrays in (("models", models), ("sums", sums), ("blocks", blocks), ("nodes", nodes)):
            if not arrays:
                continue
            file = f"{prefix}-{number}.safetensors"
            contiguous = {key: _to_contiguous(value) for key, value in arrays.items()}
            write_tensors(self.folder / file, contiguous, {"format": FORMAT})
            for key in arrays:
                self.files[key.split("|")[0]] = file
        for kind in strategy.server.last if this.began else ():
            # Keep the last models from before the visit: candidates for `best` are evaluated as of then.
            last = f"last/{kind}/{this.block}"
            for by_piece in (self.files, self.weights):
                by_piece.pop(f"previous/{kind}", None)
                if last in by_piece:
                    by_piece[f"previous/{kind}"] = by_piece[last]
        for kind, name in strategy.chains.moving(this.block):
            if name in this.moved:
                self.files[f"last/{kind}/{this.block}"] = self.files[f"current/{name}"]
                self.weights[f"last/{kind}/{this.block}"] = name
        self._log(this)
        state = {
            "format": FORMAT,
            "settings": settings(strategy),
            "seed": strategy.seed,
            "draws": strategy.draws,
            "round": this.number if this.counts else this.number - 1,
            "tick": this.tick,
            "trials": strategy.trials.to_json(),
            "known": [[arrays, shape] for arrays, shape in strategy.known.items()],
            "chain_rounds": {name: one.rounds for name, one in strategy.inside.items()},
            "visit": None if strategy.server.frozen is None else strategy.server.frozen.place,
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
        write_text(self.folder / STATE, json.dumps(state, sort_keys=True))
        self._tidy()

    def _log(self, this: Round) -> None:
        """Append a line; discard lines that a killed server wrote after its last `state.json`."""
        with open(self.folder / ROUNDS, "ab") as log:
            log.truncate(self.length)
            log.seek(self.length)
            log.write(json.dumps(this.to_json()).encode() + b"\n")
            self.length = log.tell()
            log.flush()
            os.fsync(log.fileno())

    def _changes(self, strategy: "PluralisticStrategy", this: Round) -> tuple[dict[str, Array], ...]:
        """Return the arrays that a round has changed, named `piece|name`: models, sums and block means."""
        models: dict[str, Array] = {}
        sums: dict[str, Array] = {}
        blocks: dict[str, Array] = {}
        moving = strategy.chains.moving(this.block)
        for _, name in moving:
            if name in this.moved or f"current/{name}" not in self.files:
                for key, value in strategy.server.current[name].values.items():
                    models[f"current/{name}|{key}"] = value
        touched = {name for _, name in moving}
        for name, one in strategy.inside.items():
            if name in touched or f"inner/{name}" not in self.files:
                for key, value in dump(one.strategy)[1].items():
                    sums[f"inner/{name}|{key}"] = value
        if strategy.server.hedge_state is not None:
            for field, value in zip(HedgeState._fields[1:], strategy.server.hedge_state[1:], strict=True):
                sums[f"hedge|{field}"] = value
        for kind, averages in strategy.server.averages.items():
            self._add_mean(sums, f"open/{kind}", averages, averages.open)
            self.weights[f"open/{kind}"] = [averages.place, averages.open.weight]
        for kind, block in this.closed:
            averages = strategy.server.averages[kind]
            total = averages.total[block]
            assert total is not None
            self._add_mean(blocks, f"total/{kind}/{block}", averages, total)
            self.weights[f"total/{kind}/{block}"] = total.weight
            parts = averages.recent[block]
            self.weights[f"recent/{kind}/{block}"] = [[part.cycle, part.mean.weight] for part in parts]
            for number, part in enumerate(parts):
                self._add_mean(blocks, f"recent/{kind}/{block}", averages, part.mean, f"{number}|")
        return models, sums, blocks

    @staticmethod
    def _node_arrays(directory: ClientDirectory) -> dict[str, Array]:
        """Return the known nodes and their profiles as arrays; empty if unchanged."""
        if not directory.changed:
            return {}
        directory.changed = False
        profiles = directory.profiles
        zones = "\n".join(profile.zone for profile in profiles.values())
        availability = [profile.availability for profile in profiles.values()]
        return {
            "nodes|known": np.array(list(profiles), np.uint64),
            "nodes|devices": np.array([profile.device for profile in profiles.values()], np.uint64),
            "nodes|profiles": np.array(availability).reshape(len(profiles), directory.blocks),
            "nodes|zones": np.frombuffer(zones.encode(), np.uint8),
            "nodes|refused": np.array(sorted(directory.refused), np.uint64),
            "nodes|tried": np.array(list(directory.tries.items()), np.uint64).reshape(-1, 2),
        }

    @staticmethod
    def _restore_nodes(directory: ClientDirectory, arrays: dict[str, Array]) -> None:
        """Restore the nodes that `_node_arrays` returned, without the prefix of the names."""
        if not arrays:
            return
        zones = arrays["zones"].tobytes().decode().split("\n")
        columns = arrays["known"].tolist(), arrays["profiles"], zones, arrays["devices"].tolist()
        for node, profile, zone, device in zip(*columns, strict=False):
            directory.profiles[node] = ClientProfile(profile, zone, device)
        directory.refused = set(arrays["refused"].tolist())
        directory.tries = dict(arrays["tried"].tolist())

    @staticmethod
    def _add_mean(
        arrays: dict[str, Array], piece: str, averages: BlockAverages, mean: ModelMean, prefix: str = ""
    ) -> None:
        """Add the arrays of a mean to `arrays`, named `piece|prefix` plus array name."""
        for name, value in zip(averages.layout.names, mean.values, strict=False):
            arrays[f"{piece}|{prefix}{name}"] = value

    def _tidy(self) -> None:
        """Remove array files that the current state does not refer to."""
        used = set(self.files.values())
        for path in self.folder.iterdir():
            if ARRAY_FILE.fullmatch(path.name) and path.name not in used:
                path.unlink(missing_ok=True)

    def restore(self, strategy: "PluralisticStrategy", result: BlockResult) -> int:
        """Restore a strategy from the folder; return the number of completed rounds, 0 for a new run."""
        path = self.folder / STATE
        for leftover in self.folder.iterdir():
            if TEMPORARY_FILE.fullmatch(leftover.name):
                leftover.unlink(missing_ok=True)
        if not path.exists():
            return 0
        state = _read_state(path)
        for name, value in settings(strategy).items():
            if state["settings"].get(name) != value:
                raise ValueError(
                    f"{self.folder}: the run in this folder has another {name}, "
                    f"{_shorten(state['settings'].get(name))}, not {_shorten(value)}: use the same settings "
                    "or another folder"
                )
        if strategy.seed is not None and strategy.seed != state["seed"]:
            raise ValueError(
                f"{self.folder}: the run in this folder has seed {state['seed']}, not {strategy.seed}: use "
                "that seed or another folder"
            )
        strategy.draws = strategy.trials.draws = state["draws"]
        strategy.server.block = state["block"]
        strategy.ticks = state["tick"]
        strategy.trials.restore(state["trials"])
        strategy.known.update((arrays, _to_tuples(shape)) for arrays, shape in state["known"])
        strategy.clock.resume(state["instant"])
        strategy.total = state["total"]
        self.files, self.weights, self.length = state["files"], state["weights"], state["rounds_bytes"]
        strategy.directory.latest = {int(device): int(instant) for device, instant in state["latest"]}
        pieces = _Pieces(self.folder, self.files)
        self._restore_models(strategy, state, pieces)
        self._restore_nodes(strategy.directory, pieces.get("nodes"))
        self._add_earlier_rounds(result)
        return int(state["round"])

    def _restore_models(
        self, strategy: "PluralisticStrategy", state: dict[str, Any], pieces: "_Pieces"
    ) -> None:
        """Restore models, inner strategies, hedge and means."""
        names = strategy.server.layout.names

        def model(piece: str, stored_as: str) -> ChainModel:
            stored = pieces.get(piece, stored_as)
            values = {key: stored[key] for key in names}
            return ChainModel(record(values), values)

        for name, one in strategy.inside.items():
            if f"current/{name}" in self.files:
                strategy.server.current[name] = model(f"current/{name}", f"current/{name}")
            load(one.strategy, state["insides"][name], pieces.get(f"inner/{name}"))
            one.rounds = state["chain_rounds"][name]
        if strategy.server.hedge_state is not None and "hedge" in self.files:
            stored = pieces.get("hedge")
            strategy.server.hedge_state = HedgeState(
                strategy.server.hedge_state.rule, *(stored[name] for name in HedgeState._fields[1:])
            )
        for kind, averages in strategy.server.averages.items():
            visit, weight = self.weights[f"open/{kind}"]
            averages.place = None if visit is None else (visit[0], visit[1])
            stored = pieces.get(f"open/{kind}")
            averaged = averages.layout.names
            averages.open = ModelMean([stored[name] for name in averaged] if weight else [], weight)
            for block in range(len(averages.total)):
                if f"total/{kind}/{block}" in self.files:
                    stored = pieces.get(f"total/{kind}/{block}")
                    total = ModelMean(
                        [stored[name] for name in averaged], self.weights[f"total/{kind}/{block}"]
                    )
                    averages.total[block] = averages.store(block, 0, total)
                    stored = pieces.get(f"recent/{kind}/{block}")
                    for number, (cycle, rounds) in enumerate(self.weights[f"recent/{kind}/{block}"]):
                        part = ModelMean([stored[f"{number}|{name}"] for name in averaged], rounds)
                        kept = averages.store(block, 1 + number, part)
                        averages.recent[block].append(CycleMean(cycle, kept, 1 + number))
        server = strategy.server
        for kind, lasts in server.last.items():
            for block in range(len(lasts)):
                lasts[block] = self._load_last(server, model, f"last/{kind}/{block}")
        if state["visit"] is not None:
            visit = (state["visit"][0], state["visit"][1])
            began = {kind: list(lasts) for kind, lasts in server.last.items()}
            for kind, lasts in began.items():
                lasts[visit[1]] = self._load_last(server, model, f"previous/{kind}")
            server.freeze(visit, began)

    def _load_last(self, server: "ServerState", model: Callable[[str, str], ChainModel], piece: str) -> Any:
        """Return the per-block arrays of a stored last model; None if the folder has none."""
        if piece not in self.files:
            return None
        return server.own(model(piece, f"current/{self.weights[piece]}").values)

    def _add_earlier_rounds(self, result: BlockResult) -> None:
        """Add the metrics of earlier rounds to the result."""
        path = self.folder / ROUNDS
        try:
            with open(path, "rb") as file:
                lines = [json.loads(line) for line in file.read(self.length).splitlines()]
        except (OSError, ValueError) as error:
            raise ValueError(f"{path}: cannot be read: {error}") from None
        for row in lines:
            if row["came"] + row["failed"]:
                result.add(row)


class _Pieces:
    """Arrays of a checkpoint folder by piece; each file is loaded once."""

    def __init__(self, folder: Path, files: dict[str, str]) -> None:
        self.folder, self.files = folder, files
        self.held: dict[str, dict[str, Array]] = {}

    def get(self, piece: str, stored_as: str | None = None) -> dict[str, Array]:
        """Return the arrays of a piece by name; `stored_as` is its name in the file if that differs."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        file = self.files.get(piece)
        if file is None:
            return {}
        if file not in self.held:
            try:
                self.held[file] = load_file(self.folder / file)
            except (SafetensorError, OSError) as error:
                raise ValueError(f"{self.folder / file}: cannot be read: {error}") from None
        prefix = f"{stored_as or piece}|"
        return {
            key.removeprefix(prefix): value
            for key, value in self.held[file].items()
            if key.startswith(prefix)
        }


def settings(strategy: "PluralisticStrategy") -> dict[str, Any]:
    """Return the settings that a resumed run must share, as JSON values."""
    layout = strategy.server.layout
    return {
        "schedule": strategy.schedule.to_json(),
        "chains": strategy.chains.name,
        "strategy": classes(strategy.inner),
        "hedge": None if strategy.server.hedge_state is None else int(strategy.server.hedge_state.rule),
        "clock": strategy.clock.to_json(),
        "tail": strategy.server.tail,
        "per_block": list(strategy.server.per_block),
        "arrays": [[name, list(shape), str(dtype)] for name, shape, dtype in zip(*layout, strict=True)],
    }


def _read_state(path: Path) -> dict[str, Any]:
    """Return the content of `state.json`; raise if it is damaged or of another format."""
    try:
        state = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: cannot be read: {error}") from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise ValueError(f"{path}: not the state of a federated run")
    return state


def _to_tuples(value: Any) -> Any:
    """Convert lists from JSON to tuples, recursively."""
    return tuple(map(_to_tuples, value)) if isinstance(value, list) else value


def _shorten(value: object) -> str:
    """Return a value as JSON of at most 120 characters, for messages."""
    text = json.dumps(value)
    return text if len(text) < 120 else text[:117] + "..."


def _to_contiguous(value: Array) -> Array:
    """Return a C-contiguous array of the same shape, also for scalars."""
    return np.ascontiguousarray(value).reshape(np.shape(value))
