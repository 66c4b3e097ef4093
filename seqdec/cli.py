"""The command `seqdec`.

Exit codes: 0: success; 1: failure; 2: usage error; 130: interrupted by Ctrl-C, with the finished runs saved; 141: the
reader of standard output, such as `head`, has ended.
"""

import argparse
import inspect
import os
import signal
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import gymnasium
import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from seqdec import agents, commands, envs, pages, policies
from seqdec.commands.base import Experiment, description, preset
from seqdec.commands.folder import CHECKPOINT, finish, opened, read_manifest, reporting, resumed, write_manifest
from seqdec.persistence import located, version
from seqdec.plugins import named_by, trusting
from seqdec.registry import Registry
from seqdec.runtime import compilation_cache, use_all_cores

_FAILED, _USAGE, _INTERRUPTED, _UNREAD = 1, 2, 130, 141
_DEFAULT = object()
_DESCRIPTION = """Sequential decisions with Bayesian neural filters.

--version prints the version."""
_EVERYWHERE = """Every command takes --compilation-cache [DIR]: keep compiled programs in DIR (default: the user's cache
folder), so that a later command loads instead of compiling them. --resume DIR, in place of a command's other options,
continues the experiment in DIR after any interruption, with the same result as an uninterrupted run. --trust lets the
files and folders that a command reads name "module:function", which imports and runs code."""


@dataclass(frozen=True)
class Run:
    """Run an experiment; print a table, and save runs, figures and a summary in a folder.

    The papers' experiments are available in a clone of the source, as the working directory.
    """


@dataclass(frozen=True)
class List:
    """List experiments, agents, policies, environments and gymnasium ids."""


@dataclass(frozen=True)
class Report:
    """Rebuild table and figures from the runs saved in a folder."""

    directory: tyro.conf.Positional[Path]
    """Results folder of `seqdec run` or another command."""
    html: Path | None = None
    """Also write one page of HTML with tables, figures, options and versions to this file."""
    format: Literal["svg", "pdf"] | None = None
    """Also write the figures in this format, for papers."""
    latex: bool = False
    """Print the tables in LaTeX, with the rules of the package booktabs."""


_RULES = ConstructorRegistry()


@_RULES.primitive_rule
def _path(option: PrimitiveTypeInfo) -> "PrimitiveConstructorSpec[Path] | None":
    """The Path of "" is the working directory; here it is an error."""
    if option.type is not Path:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="PATH",
        instance_from_str=lambda texts: located(texts[0]),
        is_instance=lambda value: isinstance(value, Path),
        str_from_instance=lambda path: [str(path)],
    )


COMMANDS: Registry[Any] = Registry(
    "command",
    {"run": Run},
    commands.COMMANDS,
    {
        "list": List,
        "report": Report,
        "serve": "seqdec.commands.serve:Serve",
        "store": "seqdec.commands.store:Store",
    },
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv`, by default this process's; returns the exit code."""
    try:
        code = _execute(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError as error:
        return _UNREAD if isinstance(_output_error(), BrokenPipeError) else _complain(error, _FAILED)
    except KeyboardInterrupt:
        return _complain("interrupted", _INTERRUPTED)
    except Exception as error:  # users of the command line get a message instead of a traceback
        return _complain(error, _FAILED)


def _execute(argv: Sequence[str]) -> int:
    arguments, known = _split_global_options(argv)
    if known.version:
        print(f"seqdec {version('seqdec')}")
        return 0
    with ExitStack() as scopes:
        if known.trust:
            scopes.enter_context(trusting())
        if known.resume is not None:
            scopes.enter_context(named_by(Path(known.resume)))
        return _called(arguments, known)


def _called(arguments: list[str], known: argparse.Namespace) -> int:
    try:
        if isinstance(known.compilation_cache, str):
            located(known.compilation_cache)  # refuses what cannot be a path
        command = _parse(arguments) if known.resume is None else _resumed(arguments, located(known.resume))
    except ValueError as error:
        return _complain(error, _USAGE)
    except SystemExit as stop:  # tyro has printed the help or the usage error
        return stop.code if isinstance(stop.code, int) else 0
    if hasattr(command, "execute"):
        return _serve(command, known.trust)
    use_all_cores()
    if known.compilation_cache is not None:
        compilation_cache(None if known.compilation_cache is _DEFAULT else known.compilation_cache)
    if isinstance(command, List):
        return _list()
    if isinstance(command, Report):
        return _report(command)
    return _run(command, resuming=known.resume is not None)


def _split_global_options(argv: Sequence[str]) -> tuple[list[str], argparse.Namespace]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--compilation-cache", nargs="?", const=_DEFAULT, metavar="DIR")
    parser.add_argument("--resume", metavar="DIR")
    parser.add_argument("--trust", action="store_true")
    parser.add_argument("--version", action="store_true")
    known, arguments = parser.parse_known_args(list(argv))
    return arguments, known


def _resumed(arguments: list[str], folder: Path) -> Experiment:
    """Raises ValueError for a command with other options."""
    try:
        name = read_manifest(folder)["experiment"]
    except FileNotFoundError as error:
        raise ValueError(str(error)) from error
    if arguments not in ([], ["run"], ["run", name], [name]):
        raise ValueError(
            f"--resume continues the {name} in {folder} with its original options; "
            f"leave out {' '.join(arguments[1:] or arguments)!r}"
        )
    return resumed(commands.EVERY[name], folder)  # pyright: ignore[reportArgumentType] (a class)


def _parse(arguments: list[str]) -> Any:
    """Raises ValueError for an unknown name, SystemExit after help or wrong options."""
    entry: Any = COMMANDS
    program = "seqdec"
    while isinstance(entry, Registry) and arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        entry, program = entry[name], f"{program} {name}"
        entry = commands.REGISTRY if entry is Run else entry
    text = description(entry) if hasattr(entry, "quick_options") else inspect.getdoc(entry)
    if isinstance(entry, Registry):
        if not {"-h", "--help"} & set(arguments):
            raise ValueError(
                f"{program} needs the name of {entry.kind}; known: {', '.join(entry)}; see {program} --help"
            )
        text = _DESCRIPTION if entry is COMMANDS else Run.__doc__
        entry = Union[tuple(_subcommands(entry))]  # noqa: UP007 (made of a list)
    config = (tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes, tyro.conf.DisallowNone)

    text = f"{text}\n\n{_EVERYWHERE}"

    def parsed(**default: Any) -> Any:
        with _RULES:
            return tyro.cli(entry, prog=program, description=text, args=arguments, config=config, **default)

    options = parsed()
    changed = preset(options)
    return parsed(default=type(options)(**changed)) if changed else options


def _subcommands(registry: Registry[Any]) -> Iterator[Any]:
    """Options of all commands or experiments, without plug-ins that do not load."""
    for name in registry:
        with suppress(ValueError):
            yield Annotated[registry[name], tyro.conf.subcommand(name)]


def _run(experiment: Experiment, resuming: bool = False) -> int:
    """Parts finished before an error or Ctrl-C are saved and reported."""
    try:
        plan = experiment.check()
    except (ValueError, TypeError) as error:
        return _complain(error, _USAGE)
    with opened(experiment.out):
        return _play(experiment, plan, resuming)


def _play(experiment: Experiment, plan: Any, resuming: bool) -> int:
    if resuming:
        parts = experiment.restore()
    else:
        parts = []
        (experiment.out / CHECKPOINT).unlink(missing_ok=True)  # of an earlier command, which the manifest still names
        write_manifest(experiment.out, experiment, command=uuid.uuid4().hex)
    saved, code = len(parts), 0
    try:
        for part in experiment.play(plan, tuple(parts)):
            with _uninterrupted():
                parts.append(part)
                experiment.save(parts)
                saved += 1
        finish(experiment.out)
    except KeyboardInterrupt:
        code = _complain("interrupted", _INTERRUPTED)
    except Exception as error:  # the parts saved before are reported
        code = _complain(error, _FAILED)
    if saved:
        print(experiment.report(experiment.out))
        print(f"\nResults, tables and figures are in {experiment.out}")
    return code


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C takes effect at the end."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    arrived: list[Any] = []
    signal.signal(signal.SIGINT, lambda *arguments: arrived.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    for arguments in arrived[:1]:
        handler(*arguments)


def _report(asked: Report) -> int:
    from seqdec.commands import page

    folder, file = located(asked.directory), None if asked.html is None else located(asked.html)
    if file is not None:
        try:
            pages.check_name(file)
        except ValueError as error:
            return _complain(error, _USAGE)
    with named_by(folder), reporting(*([] if asked.format is None else [asked.format])) as reported:
        try:
            kind: Any = commands.EVERY[read_manifest(folder)["experiment"]]
        except FileNotFoundError as error:
            return _complain(error, _USAGE)
        text = kind.report(folder)
    print(page.latex(folder, reported) if asked.latex else text)
    if file is not None:
        page.write(file, folder, text, reported)
        print(f"\nThe page is {file}", file=sys.stderr)
    return 0


def _serve(command: Any, trust: bool) -> int:
    try:
        command.execute(trust=trust)
    except (ValueError, FileNotFoundError, FileExistsError) as error:
        return _complain(error, _USAGE)
    return 0


def _list() -> int:
    for title, entries in _named().items():
        width = max(len(name) for name in entries)
        print(f"{title}:", *(f"  {name:{width}}  {line}" for name, line in entries.items()), "", sep="\n")
    return 0


def _named() -> dict[str, dict[str, str]]:
    """Kind -> name -> a line of description, with the package of names from outside."""
    kinds: dict[str, Registry[Any]] = {
        "experiments": commands.EVERY,
        "agents": agents.REGISTRY,
        "policies": policies.REGISTRY,
        "environments": envs.REGISTRY,
    }
    found = {
        kind: {name: _line(one, name) for name in (one if one is commands.EVERY else one.names())}
        for kind, one in kinds.items()
    }
    ids = [spec for spec in gymnasium.registry.values() if spec.id.startswith("seqdec/")]
    found["gymnasium ids"] = {spec.id: found["environments"][spec.kwargs["name"]] for spec in ids}
    found["without effect"] = {name: why for one in kinds.values() for name, why in one.ignored().items()}
    return {kind: names for kind, names in found.items() if names}


def _line(registry: Registry[Any], name: str) -> str:
    """What a name stands for, or why it is unusable."""
    if name in registry.own():
        return registry.describe(name)
    try:
        return f"{registry.describe(name)} ({registry.origin(name)})"
    except ValueError as error:
        return f"CANNOT BE USED: {error}"


def _output_error() -> OSError | None:
    """The error of writing to standard output, or None."""
    try:
        print(flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


def _complain(reason: object, code: int) -> int:
    """Print a line on standard error; returns `code`."""
    text = str(reason).strip() or type(reason).__name__
    if isinstance(reason, OSError) and reason.errno is not None and reason.filename is None and _output_error():
        text = f"cannot write to standard output: {reason.strerror}; redirect it to another place"
    with suppress(OSError):  # the exit code says it too
        print(f"seqdec: {text.splitlines()[0]}", file=sys.stderr)
    return code
