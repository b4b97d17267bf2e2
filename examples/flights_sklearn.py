# %% [markdown]
# # Late flights, by the hour, with scikit-learn
#
# Will a flight from New York arrive more than 15 minutes late? In the early morning one in ten does, in the
# evening one in three. This example compares five models on the same table, tested on days after their
# training data:
#
# - one `SGDClassifier` for all hours;
# - the same with the hour as a feature;
# - one `SGDClassifier` for each hour;
# - `SemiCyclicClassifier`: a model for each hour, from one pass;
# - both: `SemiCyclicClassifier` with the hour as a feature.
#
# Cells begin with `# %%`: open the file as a notebook, or run it as a script. It writes `flights.png`.

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
# The package includes the flights of 2013. `when` is the scheduled departure in New York local time. It is
# converted to epoch seconds, so that it fits into a sparse matrix next to the encoded airports.

# %%
flights = pd.read_parquet(str(files("semicyclic.datasets") / "flights.parquet")).dropna()
local = flights["when"].dt.tz_localize("America/New_York", ambiguous=True, nonexistent="shift_forward")
flights["epoch"] = local.astype("datetime64[s, UTC]").astype(np.int64)
flights["hour"] = flights["when"].dt.hour
late = flights.pop("late").to_numpy(bool)
hour = flights["hour"].to_numpy()
print(f"{len(flights):,} flights whose weather is known, {late.mean():.1%} of them late")

# %% [markdown]
# All models share the same preprocessing. The time is passed through as the last column, unscaled and
# unencoded; `SemiCyclicClassifier` removes it from the features.

# %%
WORDS = ["carrier", "origin", "dest"]
NUMBERS = ["distance", "temp", "humid", "wind_speed", "precip", "pressure", "visib"]


def preprocessor(*words: str, passed: tuple[str, ...] = ()) -> ColumnTransformer:
    """Encode categories, scale numbers, and pass some columns through."""
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
    """One classifier per hour that has both classes; other hours get the overall share of late flights."""

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> "OnePerHour":
        self.prepare = preprocessor().fit(X)
        cells, row_hour = self.prepare.transform(X).tocsr(), X["hour"].to_numpy()
        both_classes = [h for h in range(24) if len(set(y[row_hour == h])) == 2]
        self.models = {h: sgd().fit(cells[row_hour == h], y[row_hour == h]) for h in both_classes}
        self.share = y.mean()
        return self

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        cells, row_hour = self.prepare.transform(X).tocsr(), X["hour"].to_numpy()
        out = np.tile([1 - self.share, self.share], (len(X), 1))
        for h, model in self.models.items():
            if (row_hour == h).any():
                out[row_hour == h] = model.predict_proba(cells[row_hour == h])
        return out


# Flights start at 5:00; the few that leave after midnight belong to the last block.
hours_of_day = Schedule.daily(edges=list(range(5, 24)), zone="America/New_York")
# Each model is used for a month, so it trains on rows shuffled within their hours and averages all iterates.
# The default, method="auto", follows the last weeks and is meant to be fitted again every week.
hourly = SemiCyclicClassifier(time_column=-1, schedule=hours_of_day, method="hedged", random_state=0)
models = {
    "one SGDClassifier": make_pipeline(preprocessor(), sgd()),
    "the hour as a feature": make_pipeline(preprocessor("hour"), sgd()),
    "one SGDClassifier per hour": OnePerHour(),
    "SemiCyclicClassifier": make_pipeline(preprocessor(passed=("epoch",)), hourly),
    "both": make_pipeline(preprocessor("hour", passed=("epoch",)), hourly),
}

# %% [markdown]
# Walk-forward evaluation: train until some day, test on the following thirty days. The label of a flight is
# known some hours after departure, so the last six hours before each test period are left out.

# %%
splits = CycleSplit(3, time_column="epoch", zone="America/New_York", test_cycles=30, gap="6h")
probability = {name: np.full(len(flights), np.nan) for name in models}
seconds = dict.fromkeys(models, 0.0)
latest = {}
with np.errstate(over="ignore"):
    for train, test in splits.split(flights):
        for name, estimator in models.items():
            begin = time.perf_counter()
            fitted = (OnePerHour() if isinstance(estimator, OnePerHour) else clone(estimator)).fit(
                flights.iloc[train], late[train]
            )
            probability[name][test] = fitted.predict_proba(flights.iloc[test])[:, 1]
            seconds[name] += time.perf_counter() - begin
            latest[name] = fitted

tested = np.isfinite(probability["SemiCyclicClassifier"])
loss = {name: log_loss(late[tested], predicted[tested]) for name, predicted in probability.items()}
for name in models:
    print(f"{name:28} log loss {loss[name]:.4f}   {seconds[name]:5.1f} s")

# %% [markdown]
# The log loss of the other models relative to the one model, by hour:

# %%
hours = [h for h in range(24) if (tested & (hour == h)).sum() >= 200]


def by_hour(name: str) -> np.ndarray:
    """Log loss of each hour's flights."""
    rows_of_hours = [tested & (hour == h) for h in hours]
    return np.array(
        [log_loss(late[rows], probability[name][rows], labels=[False, True]) for rows in rows_of_hours]
    )


figure, axes = plt.subplots(figsize=(7.2, 4.0), layout="constrained")
gain = {name: by_hour(name) - by_hour("one SGDClassifier") for name in list(models)[1:4]}
limit = 1.5 * max(np.abs(gain["the hour as a feature"]).max(), np.abs(gain["SemiCyclicClassifier"]).max())
for (name, values), colour in zip(gain.items(), ["#b07d12", "#7a7f87", "#1f6fb2"], strict=True):
    axes.plot(hours, values.clip(-limit, limit), "o-", color=colour, ms=4, label=name)
    # Label values outside the axis range with text; a wider range would flatten all other curves.
    for at, value in zip(hours, values, strict=True):
        if value > limit:
            where = {"textcoords": "offset points", "xytext": (0, 5), "ha": "center", "fontsize": 8}
            axes.annotate(f"{value:+.1f}", (at, limit), color=colour, **where)
axes.axhline(0, color="black", lw=0.8)
axes.set_ylim(-limit, 1.15 * limit)
axes.set_xticks(hours)
axes.set_xlabel("scheduled hour of departure, New York")
axes.set_ylabel("log loss, less that of one model")
axes.set_title(
    "Late flights of the last 90 days: below 0 is better than one model for all hours", fontsize=10
)
axes.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.45, 0.99))
figure.savefig("flights.png", dpi=120)

# %% [markdown]
# The hour as a feature does as well here as a model for each hour: the hours of these flights differ mostly
# in the share of late flights, which one number per hour captures. `SemiCyclicClassifier` needs no such
# feature, and it also captures *effects* of features that change with the hour, which an hour feature cannot.
# A classifier for each hour captures them too, but trains on the rows of its hour only, which hurts hours
# with few flights. Late in the evening, when flights are few, the feature is ahead of the models as well.
# Both can be combined.
#
# The features on which the models of two hours differ most, and the accuracy of the model of each hour:

# %%
prepare, model = latest["SemiCyclicClassifier"]
names = prepare.get_feature_names_out()[:-1]
labels = model.blocks_.tolist()
morning, evening = (model.coef_[labels.index(label), 0] for label in ("08:00-09:00", "18:00-19:00"))
for column in np.argsort(-np.abs(evening - morning))[:5]:
    print(f"{names[column]:24} {morning[column]:+.2f} at 8:00, {evening[column]:+.2f} at 18:00")
by_block = model.score_by_block(prepare.transform(flights.iloc[test]), late[test])
print({label: round(score, 3) for label, score in by_block.items()})
