"""`semicyclic what-if`: compute other models from the log of a run."""

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from semicyclic import reports, specs, store, tables, training
from semicyclic.cli.options import Encoding, Format
from semicyclic.cli.output_dir import output_dir


def what_if(
    run: Annotated[Path, Parameter(help="Folder of a training run.")],
    /,
    *,
    blocks: Annotated[
        list[int] | None,
        Parameter(
            consume_multiple=True,
            negative=(),
            help="Block counts, divisors of the run's own: adjacent blocks are merged.",
        ),
    ] = None,
    read_out: Annotated[
        list[str] | None,
        Parameter(
            consume_multiple=True,
            negative=(),
            help=f"{specs.read_out_help()}. Default: mean, tail, last-cycle and last.",
        ),
    ] = None,
    until: Annotated[int | None, Parameter(help="Leave out this number of cycles at the end.")] = None,
    data: Annotated[
        list[str] | None,
        Parameter(consume_multiple=True, negative=(), help="Files with labels, for scoring the models."),
    ] = None,
    out: Annotated[Path | None, Parameter(help="Output folder for the models and results.json.")] = None,
    format: Format = None,
    encoding: Encoding = "utf-8",
) -> None:
    """Compute models with fewer blocks or other read-outs from a run's log, without its data.

    The log records one chain at every visit to a block, as far back as --memory of the training allowed.
    Averages of these records, also over merged blocks, take seconds. With --data, the models are also scored.

    Example: semicyclic what-if late --blocks 6 --read-out tail --data next-month.parquet --out other
    """

    with (
        reports.terminal.progress(Console(stderr=True)) as report_progress,
        output_dir(out) if out is not None else nullcontext(),
    ):
        started = time.perf_counter()
        report_progress(0.0, "reading the log")
        log = training.what_if.open_run(run)
        requests = [
            training.what_if.ModelRequest(count, specs.parse_read_out("read_out", name), until)
            for count in (blocks if blocks else (None,))
            for name in (read_out or ["mean", "tail", "last-cycle", "last"])
        ]
        models = [training.what_if.model_for(log, request) for request in requests]
        seconds = time.perf_counter() - started
        results: dict[str, Any] = {
            "run": log.config.method,
            "cycles_kept": len(training.what_if.cycles_of(log)),
            "seconds": seconds,
            "models": [],
        }
        label, rows = log.config.columns.label, None
        if data is not None:
            report_progress(0.3, "reading the rows to score")
            rows = tables.load.read(data, like=models[0], label=label, format=format, encoding=encoding)
        for number, (request, model) in enumerate(zip(requests, models, strict=True)):
            report_progress(0.5 + 0.5 * number / len(models), f"model {number + 1} of {len(models)}")
            entry: dict[str, Any] = {"blocks": model.blocks, "read_out": str(request.read_out)}
            entry["never_visited"] = len(model.fallback)
            if rows is not None:
                entry["scores"] = training.what_if.score_model(model, rows)
            if out is not None:
                entry["file"] = f"{request.name}.safetensors"
                store.model_file.save(model, out / entry["file"])
            results["models"].append(entry)
        if out is not None:
            reports.output_files.write_json(out / "results.json", results)
    reports.what_if.print_report(Console(), results, out)
