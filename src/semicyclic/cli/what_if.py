"""`semicyclic what-if`: read other models out of a finished run."""

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console

from semicyclic import reports, store, tables, training
from semicyclic.cli.output_dir import output_dir


def what_if(
    run: Annotated[Path, Parameter(help="The folder of a run.")],
    /,
    *,
    blocks: Annotated[
        list[int] | None,
        Parameter(consume_multiple=True, negative=(), help="Numbers of blocks, made of whole ones."),
    ] = None,
    read_out: Annotated[
        list[str] | None,
        Parameter(
            consume_multiple=True, negative=(), help="mean, last, last-cycle, tail, tail:5, fading, fading:5."
        ),
    ] = None,
    until: Annotated[int | None, Parameter(help="As of so many cycles before the end.")] = None,
    data: Annotated[
        list[str] | None,
        Parameter(consume_multiple=True, negative=(), help="Files with labels, to score the models on."),
    ] = None,
    out: Annotated[Path | None, Parameter(help="Folder for the models and results.json.")] = None,
    format: Annotated[
        Literal["csv", "jsonl", "parquet"] | None, Parameter(help="Where the files' names do not tell.")
    ] = None,
    encoding: Annotated[str, Parameter(help="Encoding of CSV and JSON lines.")] = "utf-8",
) -> None:
    """What if I had fewer blocks, or another read-out? Models from the log of a run, without its data.

    The log has what one chain was in every visit, as far back as --memory of the training went; so every mean
    of it, by any blocks that are made of whole ones, is there in seconds. With --data the models are scored.

    Example: semicyclic what-if late --blocks 6 --read-out tail --data next-month.parquet --out other
    """

    started = time.perf_counter()
    log = training.what_if.open_run(run)
    wanted = [
        training.what_if.ModelRequest(count, training.what_if.check_read_out(each), until)
        for count in (blocks if blocks else (None,))
        for each in (read_out or ["mean", "tail", "last-cycle", "last"])
    ]
    models = [training.what_if.model_for(log, each) for each in wanted]
    made = time.perf_counter() - started
    results: dict[str, Any] = {
        "run": log.job.method,
        "cycles_kept": log.cycles,
        "seconds": made,
        "models": [],
    }
    label = log.job.wish.label
    rows = (
        None
        if data is None
        else tables.load.read(data, like=models[0], label=label, format=format, encoding=encoding)
    )
    with output_dir(out) if out is not None else nullcontext():
        for each, model in zip(wanted, models, strict=True):
            held: dict[str, Any] = {"blocks": model.blocks, "read_out": each.read_out}
            held["never_visited"] = len(model.fallback)
            if rows is not None:
                held["scores"] = training.what_if.score_model(model, rows)
            if out is not None:
                held["file"] = f"{each.name}.safetensors"
                store.model_file.save(model, out / held["file"])
            results["models"].append(held)
        if out is not None:
            reports.output_files.write_json(out / "results.json", results)
    reports.what_if.print_report(Console(), results, out)
