"""A first pass over everything there is: a column for every feature, and scales of the whole."""

from dataclasses import replace

from semicyclic.data.dictionary import FirstPass
from semicyclic.data.features import Features
from semicyclic.data.inputs import Inputs, Mark
from semicyclic.data.tidied import tidied
from semicyclic.stream.job import Job
from semicyclic.stream.reading import Reading


def after_first_pass(job: Job, inputs: Inputs, opened: Reading) -> Reading:
    """What `opened` knows of the first rows, known of all of them.

    Rows with faults are passed over: the second pass names or counts them. Features that would need
    more columns than memory allows are hashed after all.
    """
    if inputs.follow or None in inputs.files:
        raise ValueError("--first-pass reads the input twice: it cannot be standard input, nor be followed")
    seen = FirstPass(opened.columns)
    for part in inputs.parts(Mark()):
        seen.add(tidied(opened.columns, part, inputs.name(part.file)).table)
    scales = seen.scales(job.bins)
    features = seen.features(scales)
    most = 1 << job.budget(opened.labels.loss.outputs).bits
    if features is None or features.width > most:
        features = Features(opened.columns, scales, opened.features.bits)
    return replace(opened, features=features)
