"""The command `seqdec`.

Exit codes: 0 all well; 1 something failed; 2 the command was misspelt; 130 Ctrl-C, with what was done saved.
"""

import difflib
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import tyro

from seqdec.experiments import bandit, bench, bo, evaluation, kuairec, optimizers, report, tabular
from seqdec.persistence import check_writable
from seqdec.results import Run
from seqdec.runtime import use_all_cores

_FAILED, _MISSPELT, _INTERRUPTED = 1, 2, 130


@dataclass(frozen=True)
class RunCommand:
    """Run an experiment: prints a table, fills a folder with runs, pictures and a summary."""

    experiment: (
        Annotated[bandit.Digits, tyro.conf.subcommand("digits")]
        | Annotated[bandit.MNIST, tyro.conf.subcommand("mnist")]
        | Annotated[bandit.Classify, tyro.conf.subcommand("classify")]
        | Annotated[kuairec.KuaiRec, tyro.conf.subcommand("kuairec")]
        | Annotated[bo.Optimization, tyro.conf.subcommand("bo")]
        | Annotated[optimizers.Optimizers, tyro.conf.subcommand("optimizers")]
        | Annotated[tabular.Tabular, tyro.conf.subcommand("tabular")]
    )


@dataclass(frozen=True)
class ListCommand:
    """List agents, policies, environments and gymnasium ids."""


@dataclass(frozen=True)
class ReportCommand:
    """Rebuild table and pictures from the runs saved in a folder."""

    directory: tyro.conf.Positional[Path]
    """Folder that `seqdec run` filled."""


@dataclass(frozen=True)
class BenchCommand:
    """Measure time and memory on this machine: prints a table, fills a folder with it and a picture."""

    what: tyro.conf.Positional[Literal["filters"]]
    """filters: the filters against their algorithm boxes as printed."""
    options: bench.Filters


@dataclass(frozen=True)
class OpeCommand:
    """Value a policy from the log of another: prints estimates, fills a folder with table and picture."""

    log: tyro.conf.Positional[str]
    """Parquet or CSV file with the columns timestamp, action, reward, propensity, context_0, ..., or open-bandit."""
    options: evaluation.Evaluation


Command = (
    Annotated[RunCommand, tyro.conf.subcommand("run")]
    | Annotated[OpeCommand, tyro.conf.subcommand("ope")]
    | Annotated[BenchCommand, tyro.conf.subcommand("bench")]
    | Annotated[ListCommand, tyro.conf.subcommand("list")]
    | Annotated[ReportCommand, tyro.conf.subcommand("report")]
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: this process's) and return the exit code."""
    use_all_cores()
    try:
        command = tyro.cli(
            Command,
            prog="seqdec",
            description="Sequential decisions with Bayesian neural filters.",
            args=argv,
            config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
        )
    except SystemExit as stop:  # help was asked for, or the command makes no sense; tyro has said what there is to say
        _suggest(sys.argv[1:] if argv is None else argv)
        return stop.code if isinstance(stop.code, int) else 0
    try:
        if isinstance(command, RunCommand):
            experiment = command.experiment
            if isinstance(experiment, bo.Optimization):
                return _optimize(experiment)
            if isinstance(experiment, tabular.Tabular):
                return _tabulate(experiment)
            return _compare(experiment) if isinstance(experiment, optimizers.Optimizers) else _run(experiment)
        if isinstance(command, OpeCommand):
            return _evaluate(command.log, command.options)
        if isinstance(command, BenchCommand):
            return _bench(command.options)
        if isinstance(command, ReportCommand):
            return _report(command.directory)
        return _list()
    except KeyboardInterrupt:
        return _complain("interrupted", _INTERRUPTED)
    except Exception as error:  # a user of the command line is told what went wrong, not where in the code
        return _complain(error, _FAILED)


def _suggest(argv: Sequence[str]) -> None:
    """Tyro lists the experiments when one is misspelt, but does not say which was meant."""
    known = ("digits", "mnist", "classify", "kuairec", "tabular", "bo", "optimizers")
    if len(argv) > 1 and argv[0] == "run" and argv[1] not in known:
        for close in difflib.get_close_matches(argv[1], known, 1):
            print(f"seqdec: unknown experiment {argv[1]!r}: did you mean {close!r}?", file=sys.stderr)


def _run(options: bandit.Options) -> int:
    """Run an experiment; whatever ends it, the runs done by then are saved and reported."""
    days = None
    try:
        if isinstance(options, kuairec.KuaiRec):
            options, env, team, days = kuairec.build(options)
        else:
            env, team = bandit.build(options)
    except (ValueError, TypeError) as error:
        return _complain(error, _MISSPELT)
    report.open_folder(options.out)
    if days is not None:
        kuairec.save_days(options.out, days)
    runs: dict[str, Run] = {}
    code = 0
    try:
        for name, run in bandit.play(options, env, team, progress=None):
            report.save_run(options.out, name, run, options.name, asdict(options), list(runs))
            runs[name] = run
            code = _complain("interrupted", _INTERRUPTED) if run.interrupted else 0
    except KeyboardInterrupt:
        code = _complain("interrupted", _INTERRUPTED)
    except Exception as error:  # the agents before this one have done their work, which is reported below
        code = _complain(error, _FAILED)
    if runs:
        print(report.write_report(options.out, runs, options.name))
        print(f"\nRuns, summary.csv and pictures are in {options.out}")
    return code


def _optimize(options: bo.Optimization) -> int:
    """Optimise; whatever ends it, the runs done by then are saved and reported."""
    try:
        bo.check(options)
    except ValueError as error:
        return _complain(error, _MISSPELT)
    report.open_folder(options.out)
    tables, code = [], 0
    try:
        for table in bo.play(options, progress=sys.stderr.isatty()):
            tables.append(table)
            bo.save(pd.concat(tables, ignore_index=True), options)
    except KeyboardInterrupt:
        code = _complain("interrupted", _INTERRUPTED)
    except Exception as error:  # the runs before this one have done their work, which is reported below
        code = _complain(error, _FAILED)
    if tables:
        print(bo.write_report(options.out))
        print(f"\nTrials, summary.csv and pictures are in {options.out}")
    return code


def _compare(options: optimizers.Optimizers) -> int:
    """Compare optimizers; what is done when Ctrl-C comes is reported."""
    try:
        optimizers.check(options)
    except ValueError as error:
        return _complain(error, _MISSPELT)
    check_writable(options.out)
    curves, interrupted = optimizers.compare(options, progress=sys.stderr.isatty())
    print(optimizers.write(curves, options.out))
    print(f"Curves, table and pictures are in {options.out}")
    return _complain("interrupted", _INTERRUPTED) if interrupted else 0


def _tabulate(options: tabular.Tabular) -> int:
    """Run the tables; whatever ends it, the runs done by then are saved and reported."""
    try:
        tabular.check(options)
    except ValueError as error:
        return _complain(error, _MISSPELT)
    report.open_folder(options.out)
    done: dict[str, list[str]] = {}
    code = 0
    try:
        for table, name, run in tabular.play(options, progress=None):
            tabular.save(options, table, name, run, done.setdefault(table, []))
            done[table].append(name)
            code = _complain("interrupted", _INTERRUPTED) if run.interrupted else 0
    except KeyboardInterrupt:
        code = _complain("interrupted", _INTERRUPTED)
    except Exception as error:  # the agents before this one have done their work, which is reported below
        code = _complain(error, _FAILED)
    if done:
        print(tabular.write_report(options.out))
        print(f"\nRuns, tables and pictures are in {options.out}")
    return code


def _evaluate(log: str, options: evaluation.Evaluation) -> int:
    """Value a policy, save and print."""
    try:
        evaluation.check(options)
    except ValueError as error:
        return _complain(error, _MISSPELT)
    report.open_folder(options.out)
    evaluation.save(evaluation.evaluate(log, options), log, options)
    print(evaluation.write_report(options.out))
    print(f"\nTable and picture are in {options.out}")
    return 0


def _bench(options: bench.Filters) -> int:
    """Measure, save and print."""
    try:
        bench.check(options)
    except ValueError as error:
        return _complain(error, _MISSPELT)
    check_writable(options.out)
    table, interrupted = bench.measure(options, progress=sys.stderr.isatty())
    print(bench.write(table, options.out))
    print(f"Table and picture are in {options.out}")
    return _complain("interrupted", _INTERRUPTED) if interrupted else 0


def _report(directory: Path) -> int:
    """Rebuild the report of a saved experiment."""
    if (directory / optimizers.CURVES).is_file():
        print(optimizers.rebuild(directory))
        return 0
    manifest = report.read_manifest(directory)
    if manifest["experiment"] == bo.Optimization.name:
        print(bo.write_report(directory))
        return 0
    if manifest["experiment"] == tabular.Tabular.name:
        print(tabular.write_report(directory))
        return 0
    if manifest["experiment"] == evaluation.Evaluation.name:
        print(evaluation.write_report(directory))
        return 0
    print(report.write_report(directory, report.load_runs(directory), manifest["experiment"]))
    return 0


def _complain(reason: object, code: int) -> int:
    """Say in one line, on standard error, what is wrong; returns `code`."""
    text = str(reason).strip() or type(reason).__name__
    print(f"seqdec: {text.splitlines()[0]}", file=sys.stderr)
    return code


def _list() -> int:
    """Print every name that can be asked for, with a line on each."""
    for title, entries in bandit.catalogue().items():
        width = max(len(name) for name in entries)
        print(f"{title}:", *(f"  {name:{width}}  {line}" for name, line in entries.items()), "", sep="\n")
    return 0
