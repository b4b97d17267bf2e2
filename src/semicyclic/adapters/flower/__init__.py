"""Flower adapter: `PluralisticStrategy` wraps any Flower strategy and keeps one model per block.

strategy = PluralisticStrategy(FedAvg(), Schedule.daily(6))
strategy.start(grid, arrays, num_rounds=100)
strategy.mean().save("models.safetensors")
"""

import os

# Flower reads these variables on import. Values that the user has already set are kept.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION", "1")

try:
    import flwr  # noqa: F401
except ImportError:
    raise ImportError(
        "federated training needs Flower, which is not installed: pip install 'semicyclic[flower]'"
    ) from None

from semicyclic.adapters.flower.averages import Storage
from semicyclic.adapters.flower.block_models import BlockModels
from semicyclic.adapters.flower.chains import Chains
from semicyclic.adapters.flower.client_selection import Selection
from semicyclic.adapters.flower.clock import BlockClock, FastClock, RoundClock, WallClock
from semicyclic.adapters.flower.clocked_strategy import ClockedStrategy
from semicyclic.adapters.flower.in_process_grid import InProcessGrid
from semicyclic.adapters.flower.round_results import BlockResult
from semicyclic.adapters.flower.strategy import PluralisticStrategy

__all__ = [
    "BlockClock",
    "BlockModels",
    "BlockResult",
    "Chains",
    "FastClock",
    "InProcessGrid",
    "PluralisticStrategy",
    "RoundClock",
    "Selection",
    "Storage",
    "ClockedStrategy",
    "WallClock",
]
