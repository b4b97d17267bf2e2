# %% [markdown]
# # Late flights, by the hour, with scikit-learn
#
# Will a flight from New York arrive more than a quarter of an hour late? In the early morning one in ten
# does, in the evening one in three. Five ways to tell it from the same table, judged on days that came after
# those they had learnt from:
#
# - one `SGDClassifier` for all hours;
# - the same with the hour as a feature;
# - one `SGDClassifier` for each hour;
# - `SemiCyclicClassifier`: a model for each hour, from one pass;
# - both: the same with the hour as a feature.
#
# Cells begin with `# %%`: open the file as a notebook, or run it as a script. It draws `flights.png`.

# %%
import time
from importlib.resources import files

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from semicyclic import CycleSplit, Schedule, SemiCyclicClassifier

# %% [markdown]
# The flights of 2013 come with the package. `when` is the scheduled departure on the clocks of New York; it
# is made epoch seconds here, so that it fits into a sparse matrix beside the encoded airports.

# %%
flights = pd.read_parquet(str(files("semicyclic.datasets") / "flights.parquet")).dropna()
local = flights["when"].dt.tz_localize("America/New_York", ambiguous=True, nonexistent="shift_forward")
flights["epoch"] = local.astype("datetime64[s, UTC]").astype(np.int64)
flights["hour"] = flights["when"].dt.hour
late = flights.pop("late").to_numpy(bool)
hour = flights["hour"].to_numpy()
print(f"{len(flights):,} flights whose weather is known, {late.mean():.1%} of them late")

# %% [markdown]
# One preparation for all. The time is passed through as the last column, which `SemiCyclicClassifier` takes
# off before it looks at the features: no scaler and no encoder gets to see it.

# %%
WORDS = ["carrier", "origin", "dest"]
NUMBERS = ["distance", "temp", "humid", "wind_speed", "precip", "pressure", "visib"]


def prepared(*words: str, passed: tuple[str, ...] = ()) -> ColumnTransformer:
    """Words encoded, numbers scaled, some columns passed through."""
    return ColumnTransformer(
        [
            ("words", OneHotEncoder(handle_unknown="ignore"), [*WORDS, *words]),
            ("numbers", StandardScaler(), NUMBERS),
            ("passed", "passthrough", list(passed)),
        ],
        sparse_threshold=1.0,
    )


def sgd() -> SGDClassifier:
    return SGDClassifier(loss="log_loss", average=True, random_state=0)


class OnePerHour:
    """A classifier for every hour that has flights of both kinds; else how many are late at all."""

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> "OnePerHour":
        self.prepare = prepared().fit(X)
        cells, own = self.prepare.transform(X).tocsr(), X["hour"].to_numpy()
        both = [each for each in range(24) if len(set(y[own == each])) == 2]
        self.models = {each: sgd().fit(cells[own == each], y[own == each]) for each in both}
        self.share = y.mean()
        return self

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        cells, own = self.prepare.transform(X).tocsr(), X["hour"].to_numpy()
        out = np.tile([1 - self.share, self.share], (len(X), 1))
        for each, model in self.models.items():
            if (own == each).any():
                out[own == each] = model.predict_proba(cells[own == each])
        return out


# Flights leave from 5 in the morning on; what little leaves after midnight belongs to the last block.
hours_of_day = Schedule.daily(edges=list(range(5, 24)), zone="America/New_York")
# A model that is to last for a month: rows shuffled within their hours, and the mean of all. The default,
# method="auto", chooses what is best for the next day, and would be made anew every night.
hourly = SemiCyclicClassifier(time_column=-1, schedule=hours_of_day, method="hedged", random_state=0)
ways = {
    "one SGDClassifier": make_pipeline(prepared(), sgd()),
    "the hour as a feature": make_pipeline(prepared("hour"), sgd()),
    "one SGDClassifier per hour": OnePerHour(),
    "SemiCyclicClassifier": make_pipeline(prepared(passed=("epoch",)), hourly),
    "both": make_pipeline(prepared("hour", passed=("epoch",)), hourly),
}

# %% [markdown]
# Walk forward: learn until some day, be judged on the thirty days after it. Whether a flight is late is known
# some hours after it left, so the last six hours before a test are left out.

# %%
splits = CycleSplit(3, time_column="epoch", zone="America/New_York", test_cycles=30, gap="6h")
chance = {name: np.full(len(flights), np.nan) for name in ways}
seconds = dict.fromkeys(ways, 0.0)
latest = {}
with np.errstate(over="ignore"):
    for train, test in splits.split(flights):
        for name, way in ways.items():
            begin = time.perf_counter()
            fitted = (OnePerHour() if isinstance(way, OnePerHour) else clone(way)).fit(
                flights.iloc[train], late[train]
            )
            chance[name][test] = fitted.predict_proba(flights.iloc[test])[:, 1]
            seconds[name] += time.perf_counter() - begin
            latest[name] = fitted

judged = np.isfinite(chance["SemiCyclicClassifier"])
loss = {name: log_loss(late[judged], each[judged]) for name, each in chance.items()}
for name in ways:
    print(f"{name:28} log loss {loss[name]:.4f}   {seconds[name]:5.1f} s")

# %% [markdown]
# By the hour: how much better than the one model each of the others is.

# %%
hours = [each for each in range(24) if (judged & (hour == each)).sum() >= 200]


def by_hour(name: str) -> np.ndarray:
    """The log loss of each hour's flights."""
    own = [judged & (hour == each) for each in hours]
    return np.array([log_loss(late[rows], chance[name][rows], labels=[False, True]) for rows in own])


figure, axes = plt.subplots(figsize=(7.2, 4.0), layout="constrained")
gain = {name: by_hour(name) - by_hour("one SGDClassifier") for name in list(ways)[1:4]}
most = 1.5 * max(np.abs(gain["the hour as a feature"]).max(), np.abs(gain["SemiCyclicClassifier"]).max())
for (name, each), colour in zip(gain.items(), ["#b07d12", "#7a7f87", "#1f6fb2"], strict=True):
    axes.plot(hours, each.clip(-most, most), "o-", color=colour, ms=4, label=name)
    # What lies beyond is told in words, or all else would be one line.
    for at, value in zip(hours, each, strict=True):
        if value > most:
            where = {"textcoords": "offset points", "xytext": (0, 5), "ha": "center", "fontsize": 8}
            axes.annotate(f"{value:+.1f}", (at, most), color=colour, **where)
axes.axhline(0, color="black", lw=0.8)
axes.set_ylim(-most, 1.15 * most)
axes.set_xticks(hours)
axes.set_xlabel("scheduled hour of departure, New York")
axes.set_ylabel("log loss, less that of one model")
axes.set_title(
    "Late flights of the last 90 days: below 0 is better than one model for all hours", fontsize=10
)
axes.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.45, 0.99))
figure.savefig("flights.png", dpi=120)

# %% [markdown]
# The hour as a feature does as well here as a model for each hour: what differs between the hours of these
# flights is mostly how many are late, and one number an hour tells that. `SemiCyclicClassifier` needs no such
# feature, and also notices where the *effects* of features change with the hour, which a feature cannot. A
# classifier for each hour notices too, but learns each hour from its own rows only, and hours with few
# flights pay for it. Late in the evening, where flights are few, the feature is ahead of the models as well;
# and nothing keeps you from doing both.
#
# What the models of two hours disagree on, and how each hour's model does in the others:

# %%
prepare, model = latest["SemiCyclicClassifier"]
names = prepare.get_feature_names_out()[:-1]
labels = model.blocks_.tolist()
morning, evening = (model.coef_[labels.index(each), 0] for each in ("08:00-09:00", "18:00-19:00"))
for each in np.argsort(-np.abs(evening - morning))[:5]:
    print(f"{names[each]:24} {morning[each]:+.2f} at 8:00, {evening[each]:+.2f} at 18:00")
by_block = model.score_by_block(prepare.transform(flights.iloc[test]), late[test])
print({label: round(score, 3) for label, score in by_block.items()})
