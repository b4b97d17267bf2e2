"""Checkpoints of a federated run, written after every round, so that a killed server can resume.

    state.json                        settings, counters, and the file with the latest version of each piece
    model-CHAIN-R.safetensors         model of a chain after round R
    inner-CHAIN-R.safetensors         state of the chain's inner strategy
    open-R.safetensors                means of the open visit, and the hedge
    block-KIND-BLOCK-R.safetensors    means of a block whose visit ended before round R
    nodes-R.safetensors               nodes queried up to round R and their profiles
    rounds.jsonl                      one line per round

R counts clock reads, rounds without participants included. Files are written under new names, then
`state.json` is replaced by an atomic rename, then files that it no longer refers to are removed. A round
writes only the pieces that it has changed, whatever the number of blocks. Other files in the folder are not
touched.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from semicyclic.adapters.flower.averages import BlockAverages, CycleMean
from semicyclic.adapters.flower.chains import ChainModel
from semicyclic.adapters.flower.client_selection import ClientDirectory, ClientProfile
from semicyclic.adapters.flower.round_results import BlockResult, Round
from semicyclic.adapters.flower.serialization import record
from semicyclic.adapters.flower.strategy_state import changes_since, classes, dump, load
from semicyclic.method.average import Mean
from semicyclic.method.hedge import HedgeState
from semicyclic.store.atomic import lock
from semicyclic.store.sealed import (
    FileFormat,
    Unreadable,
    read_sealed,
    read_sealed_json,
    write_sealed,
    write_sealed_json,
)
from semicyclic.types import Array

if TYPE_CHECKING:
    from semicyclic.adapters.flower.server_state import ServerState
    from semicyclic.adapters.flower.strategy import PluralisticStrategy

FORMAT = FileFormat(
    "semicyclic-federated",
    "about",
    version=4,
    oldest=4,
    what="the state of a federated run",
    remedy="resume with the version that wrote it, or start again in another folder",
)
STATE, ROUNDS, LOCK = "state.json", "rounds.jsonl", ".lock"
ARRAY_FILE = re.compile(r"((model|inner)-(shared|\d+)|open|nodes|block-[a-z]+-\d+)-\d+\.safetensors")
# Temporary files that an interrupted atomic write leaves behind.
TEMPORARY_FILE = re.compile(rf"\.({ARRAY_FILE.pattern}|state\.json)\.\d+\.[0-9a-f]+")


class Piece(NamedTuple):
    """Arrays that are written together in one file, and a JSON object with their weights and cycles."""

    name: str
    arrays: dict[str, Array]
    about: dict[str, Any]


class CheckpointDir:
    """Checkpoint folder of a run, locked until `close`.

    files: by piece, the file that holds it. length: size of `rounds.jsonl` in bytes.
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
        self.length = 0

    def close(self) -> None:
        """Release the lock of the folder."""
        self._lock.close()

    def save(self, strategy: "PluralisticStrategy", this: Round) -> None:
        """Write the changes of a round; they take effect when `state.json` is replaced."""
        number = this.tick
        pieces = list(self._changes(strategy, this))
        for piece in pieces:
            # Before anything is written, so that the last good state stays.
            _check_numbers(piece, f"{self.folder}: after round {this.number}, {piece.name}")
        for name, arrays, about in pieces:
            self.files[name] = f"{name.replace('/', '-')}-{number}.safetensors"
            write_sealed(self.folder / self.files[name], FORMAT, arrays, about)
        for kind in strategy.server.last if this.began else ():
            # Keep the last models from before the visit: candidates for `best` are evaluated as of then.
            last = self.files.get(f"last/{kind}/{this.block}")
            self.files.pop(f"previous/{kind}", None)
            if last is not None:
                self.files[f"previous/{kind}"] = last
        for kind, name in strategy.chains.moving(this.block):
            if name in this.moved:
                self.files[f"last/{kind}/{this.block}"] = self.files[f"model/{name}"]
        self._log(this)
        state = {
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
            "files": self.files,
            "insides": {
                name: changes_since(dump(one.strategy)[0], one.fresh) for name, one in strategy.inside.items()
            },
            "latest": sorted(strategy.directory.latest.items()),
        }
        write_sealed_json(self.folder / STATE, FORMAT, state)
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

    def _changes(self, strategy: "PluralisticStrategy", this: Round) -> Iterator[Piece]:
        """Yield the pieces that a round has changed."""
        server, moving = strategy.server, strategy.chains.moving(this.block)
        for _, name in moving:
            if name in this.moved or f"model/{name}" not in self.files:
                yield Piece(f"model/{name}", dict(server.current[name].values), {})
        touched = {name for _, name in moving}
        for name, one in strategy.inside.items():
            state = dump(one.strategy)[1]
            if state and (name in touched or f"inner/{name}" not in self.files):
                yield Piece(f"inner/{name}", state, {})
        sums, visits = {}, {}
        if server.hedge_state is not None:
            sums = {f"hedge/{field}": getattr(server.hedge_state, field) for field in HedgeState._fields[1:]}
        for kind, averages in server.averages.items():
            sums[kind] = averages.open.value
            visits[kind] = [averages.place, averages.open.weight]
        yield Piece("open", sums, visits)
        for kind, block in this.closed:
            total, recent = server.averages[kind].total[block], server.averages[kind].recent[block]
            assert total is not None
            means = {
                "total": total.value,
                **{f"recent/{k}": part.mean.value for k, part in enumerate(recent)},
            }
            weights = {"total": total.weight, "recent": [[part.cycle, part.mean.weight] for part in recent]}
            yield Piece(f"block/{kind}/{block}", means, weights)
        if strategy.directory.changed:
            strategy.directory.changed = False
            yield Piece("nodes", self._node_arrays(strategy.directory), {})

    @staticmethod
    def _node_arrays(directory: ClientDirectory) -> dict[str, Array]:
        """Return the known nodes and their profiles as arrays."""
        profiles = directory.profiles
        zones = "\n".join(profile.zone for profile in profiles.values())
        availability = [profile.availability for profile in profiles.values()]
        return {
            "known": np.array(list(profiles), np.uint64),
            "devices": np.array([profile.device for profile in profiles.values()], np.uint64),
            "profiles": np.array(availability).reshape(len(profiles), directory.blocks),
            "zones": np.frombuffer(zones.encode(), np.uint8),
            "refused": np.array(sorted(directory.refused), np.uint64),
            "tried": np.array(list(directory.tries.items()), np.uint64).reshape(-1, 2),
        }

    @staticmethod
    def _restore_nodes(directory: ClientDirectory, arrays: dict[str, Array]) -> None:
        """Restore the nodes that `_node_arrays` returned."""
        if not arrays:
            return
        zones = arrays["zones"].tobytes().decode().split("\n")
        columns = arrays["known"].tolist(), arrays["profiles"], zones, arrays["devices"].tolist()
        for node, profile, zone, device in zip(*columns, strict=False):
            directory.profiles[node] = ClientProfile(profile, zone, device)
        directory.refused = set(arrays["refused"].tolist())
        directory.tries = dict(arrays["tried"].tolist())

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
        state = read_sealed_json(path, FORMAT)
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
        self.files, self.length = state["files"], state["rounds_bytes"]
        strategy.directory.latest = {int(device): int(instant) for device, instant in state["latest"]}
        self._restore_models(strategy, state)
        self._restore_nodes(strategy.directory, self._read("nodes").arrays)
        self._add_earlier_rounds(result)
        return int(state["round"])

    def _restore_models(self, strategy: "PluralisticStrategy", state: dict[str, Any]) -> None:
        """Restore models, inner strategies, hedge and means."""
        server = strategy.server
        for name, one in strategy.inside.items():
            if f"model/{name}" in self.files:
                values = self._read_model(server, f"model/{name}")
                server.current[name] = ChainModel(record(values), values)
            load(one.strategy, state["insides"][name], self._read(f"inner/{name}").arrays)
            one.rounds = state["chain_rounds"][name]
        opened = self._read("open")
        if server.hedge_state is not None:
            stored = (opened.arrays[f"hedge/{field}"] for field in HedgeState._fields[1:])
            server.hedge_state = HedgeState(server.hedge_state.rule, *stored)
        for kind, averages in server.averages.items():
            visit, weight = opened.about[kind]
            averages.place = None if visit is None else (visit[0], visit[1])
            averages.open = Mean(opened.arrays[kind].copy(), weight)
            for block in range(len(averages.total)):
                if f"block/{kind}/{block}" in self.files:
                    self._restore_block(averages, block, self._read(f"block/{kind}/{block}"))
        for kind, lasts in server.last.items():
            for block in range(len(lasts)):
                lasts[block] = self._read_last(server, f"last/{kind}/{block}")
        if state["visit"] is not None:
            visit = (state["visit"][0], state["visit"][1])
            began = {kind: list(lasts) for kind, lasts in server.last.items()}
            for kind, lasts in began.items():
                lasts[visit[1]] = self._read_last(server, f"previous/{kind}")
            server.freeze(visit, began)

    @staticmethod
    def _restore_block(averages: BlockAverages, block: int, piece: Piece) -> None:
        """Restore the means of a block."""
        averages.total[block] = averages.store(block, 0, Mean(piece.arrays["total"], piece.about["total"]))
        for number, (cycle, rounds) in enumerate(piece.about["recent"]):
            mean = averages.store(block, 1 + number, Mean(piece.arrays[f"recent/{number}"], rounds))
            averages.recent[block].append(CycleMean(cycle, mean, 1 + number))

    def _read_model(self, server: "ServerState", piece: str) -> dict[str, Array]:
        """Return the arrays of a model in the order of the run."""
        arrays = self._read(piece).arrays
        return {name: arrays[name] for name in server.layout.names}

    def _read_last(self, server: "ServerState", piece: str) -> Any:
        """Return the per-block arrays of a stored last model; None if the folder has none."""
        return server.own(self._read_model(server, piece)) if piece in self.files else None

    def _read(self, name: str) -> Piece:
        """Return a piece; one without arrays if the folder has none."""
        file = self.files.get(name)
        if file is None:
            return Piece(name, {}, {})
        arrays, about = read_sealed(self.folder / file, FORMAT)
        piece = Piece(name, arrays, about)
        _check_numbers(piece, str(self.folder / file))
        return piece

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


def _check_numbers(piece: Piece, where: str) -> None:
    """Raise if a model or a mean has NaN; the state of an inner strategy may have it."""
    for key, value in piece.arrays.items():
        if value.dtype.kind == "f" and np.isnan(value).any() and not piece.name.startswith("inner/"):
            raise Unreadable(f"{where}: array {key!r} has NaN")


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


def _to_tuples(value: Any) -> Any:
    """Convert lists from JSON to tuples, recursively."""
    return tuple(map(_to_tuples, value)) if isinstance(value, list) else value


def _shorten(value: object) -> str:
    """Return a value as JSON of at most 120 characters, for messages."""
    text = json.dumps(value)
    return text if len(text) < 120 else text[:117] + "..."
