"""Every command with its defaults, and with every value of every option that has a choice; sizes are small.

The cases come from the fields of the options and from their `choices`: a new option and a new name take part. Programs
are traced and not compiled, with results of the right shapes that are made up; one run of each command is compiled.
"""

import functools
import importlib.util
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from flax import linen as nn
from gymnasium import spaces
from matplotlib.figure import Figure

import seqdec
from reproduction import bo, cifar, in_between, kuairec, optimizers, tasks
from reproduction.classify import Classify
from reproduction.images import MNIST
from seqdec import agents, cli, commands, models, ope
from seqdec.bo import model as surrogate_programs
from seqdec.bo.search import ascent
from seqdec.commands import bandits, bench, tune
from seqdec.commands.digits import Digits
from seqdec.commands.sweep import Sweep
from seqdec.core import Spaces
from seqdec.data import Dataset, load_mnist, synthetic_kuairec, write_kuairec
from seqdec.envs import _classification
from seqdec.loop import device
from seqdec.ope import learning

POSITIONAL = {
    "tune": {"experiment": "digits"},
    "ope": {"log": "log.parquet"},
    "bench": {"what": "filters"},
    "monitor": {"folder": "service"},
    "sweep": {"config": "sweep.toml"},
}
"""Arguments without a name, by the field that they fill."""
SMALL: dict[str, Any] = {
    "batch": 2,
    "budget": 2,
    "period": 10,
    "periods": 2,
    "ranks": "2",
    "rates": 1,
    "repeats": 1,
    "samples": 4,
    "seeds": 1,
    "sizes": "0",
    "steps": 20,
}
"""Sizes of options by name."""
FREE: dict[str, list[str]] = {
    "address": [],
    "anytime": [],
    "config": [],
    "context": ["context_0,context_1"],
    "data": ["csv"],
    "folder": [],
    "decays": ["0,0.1"],
    "estimators": ["auto, snips, dr(shrinkage=slope)"],
    "groups": ["action"],
    "log": [],
    "out": [],
    "propensity": ["estimated"],
    "ranks": ["1,2"],
    "reward_range": [],
    "settings": ["settings.json"],
    "time": ["timestamp"],
    "window": ["5"],
}
"""Values of texts and paths that are no choice; an address needs a cluster, a sequence rewards in a range."""
JOINED = ("logs", "error_bounds")
"""Flags that are tried together with other options."""
SPACE = {"kuairec": "ids"}
"""What the agents of a bandit act on, if not on contexts."""


def filled(leaf: Any) -> Any:
    """An array of a shape and dtype, without memory: floats add up to one along the last axis."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(0), leaf.shape)
    if jnp.issubdtype(leaf.dtype, jnp.floating):
        return np.broadcast_to(leaf.dtype.type(1 / max((1, *leaf.shape[-1:]))), leaf.shape)
    return np.broadcast_to(leaf.dtype.type(0), leaf.shape)


class Program:
    """A function that is traced when it is first called with arguments of some shapes."""

    def __init__(self, function: Any, static: int = 0) -> None:
        self._function, self._static, self._results = function, static, {}

    def __call__(self, *arguments: Any) -> Any:
        return jax.tree.map(filled, self._traced(*arguments))

    def _traced(self, *arguments: Any) -> Any:
        static, rest = arguments[: self._static], arguments[self._static :]
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), jnp.result_type(leaf)), rest)
        leaves, structure = jax.tree.flatten(shapes)
        key = (*static, structure, *((leaf.shape, leaf.dtype) for leaf in leaves))
        if key not in self._results:
            self._results[key] = jax.eval_shape(functools.partial(self._function, *static), *shapes)
        return self._results[key]

    def lower(self, *arguments: Any) -> "Program":
        self._traced(*arguments)
        return self

    def compile(self, options: Any = None) -> "Program":
        return self

    def memory_analysis(self) -> Any:
        sizes = ("argument", "output", "temp", "alias")
        return SimpleNamespace(**{f"{name}_size_in_bytes": 0 for name in sizes})


class Tracing:
    """`jax`, whose `jit` does not compile."""

    def __getattr__(self, name: str) -> Any:
        return getattr(jax, name)

    @staticmethod
    def jit(function: Any, **options: Any) -> Program:
        return Program(function)


def programs(agent: Any, env: Any, names: Any, keys: Any, params: Any, mesh: Any, tell: Any) -> Any:
    """Those of a run, traced."""
    start = Program(jax.vmap(functools.partial(device._start, agent, env), (0, None)))

    @functools.cache
    def advance(length: int) -> Program:
        return Program(jax.vmap(functools.partial(device._advance, agent, env, names, length), (0, None)))

    state = start(keys, params)
    return device._Programs(
        start, advance, jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), state)
    )


@pytest.fixture(scope="module")
def few_images(image_files: Path) -> Dataset:
    """The first images of MNIST."""
    whole = load_mnist(image_files / "mnist")
    return Dataset(*(part._replace(images=part.images[:100], labels=part.labels[:100]) for part in whole))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a service that has decided a few times."""
    folder = tmp_path_factory.mktemp("service")
    site = Spaces(spaces.Box(-1, 1, (2,)), spaces.Discrete(2))
    with seqdec.OnlineAgent("random", site, seed=0, folder=folder) as service:
        for reward in (0.0, 1.0, 1.0):
            service.learn(service.decide([0.5, -0.5]).token, reward)
    return folder


@pytest.fixture
def place(few_images: Dataset, served: Path, image_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the files that the cases name; networks and logs are small."""
    monkeypatch.chdir(tmp_path)
    # Settings that are stored with an experiment and those given to it are of this form.
    Path("settings.json").write_text('{"format": "seqdec settings 1", "experiment": "NAME", "agents": {}}')
    Path("sweep.toml").write_text(
        "steps = 4\nseeds = 2\n[environments]\nbernoulli = {}\n[agents]\n" + "linear = {}\nrandom = {}\n"
    )
    shutil.copytree(served, "service")
    rng, rows = np.random.default_rng(0), 12
    log = ope.make_log(
        context=rng.normal(size=(rows, 2)),
        action=np.arange(rows) % 3,
        reward=rng.normal(size=rows),
        propensity=np.full(rows, 1 / 3),
    )
    log.save("log.parquet")
    log.to_pandas().to_csv("log.csv", index=False)
    pd.DataFrame(np.full((rows, 3), 1 / 3), columns=[f"probability_{i}" for i in range(3)]).to_csv(
        "policy.csv", index=False
    )
    write_kuairec("csv", users=4, videos=40, seed=0)
    Path("csv", "big_matrix.csv").write_bytes(Path("csv", "small_matrix.csv").read_bytes())
    monkeypatch.setattr(kuairec, "synthetic_kuairec", lambda: synthetic_kuairec(users=4, videos=40))
    for module in (_classification, tasks):
        for loader in {"load_mnist", "load_fashion_mnist"} & set(vars(module)):
            monkeypatch.setattr(module, loader, lambda *root: few_images)
    tiny = models.MLP(10, (12,))
    for kind in (Digits, MNIST, Classify):
        monkeypatch.setattr(kind, "model", tiny)
    monkeypatch.setattr(models, "LeNet5", lambda out: models.MLP(out, (12,)))
    monkeypatch.setattr(tasks, "ResNet", lambda: models.MLP(10, ()))

    def network(size: int, *_: Any, **options: Any) -> nn.Module:
        return nn.Sequential([nn.Embed(size, 2), nn.Dense(size)])

    monkeypatch.setattr(tasks, "Transformer", network)
    monkeypatch.setattr(tasks, "Recurrent", network)
    for name in cifar.NETWORKS:
        monkeypatch.setitem(cifar.NETWORKS, name, tiny)
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **options: Path(path).touch())
    monkeypatch.setattr(bench, "_LONG", 0.0)
    monkeypatch.setattr(bench, "copy_bandwidth", lambda: 1e9)
    for name in bo.PROBLEMS:
        monkeypatch.setitem(bo.PROBLEMS, name, bo.PROBLEMS["branin"])
    return tmp_path


@pytest.fixture
def traced(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`place`, where programs are traced."""
    monkeypatch.setattr(device, "_programs", programs)
    monkeypatch.setattr(Sweep, "executor", lambda self: ThreadPoolExecutor(1))
    for module in (bench, in_between, learning, optimizers, tune):
        monkeypatch.setattr(module, "jax", Tracing())
    for module, name in ((ascent, "climb"), (ascent, "score"), (surrogate_programs, "means_of")):
        monkeypatch.setattr(module, name, Program(getattr(module, name).__wrapped__, static=1))
    return place


def command(name: str, *positional: str) -> list[str]:
    """The words before the options."""
    if name not in commands.COMMANDS:
        return ["run", name]
    return [name, *(positional or POSITIONAL[name].values())]


def flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def sizes(name: str, given: tuple[str, ...] | list[str] = ()) -> list[str]:
    """The options that make a command small, but for those that are given."""
    others = {"ranks"} if name in ("classify", "cifar") else set()  # these run with their default
    known = [field.name for field in fields(commands.EVERY[name]) if field.name in SMALL.keys() - others]  # pyright: ignore
    return [part for one in known if flag(one) not in given for part in (flag(one), str(size(name, one)))]


def size(name: str, option: str) -> Any:
    """The small size of an option; None for what is not a size."""
    return 40 if (name, option) == ("optimizers", "steps") else SMALL.get(option)


def done(arguments: list[str], capsys: Any) -> str:
    """What a command prints, which must end well."""
    code = cli.main(arguments)
    out, err = capsys.readouterr()
    assert code == 0 and "seqdec: " not in err, f"seqdec {' '.join(arguments)}: {err}"
    return out


def values_of(name: str, option: str) -> Iterator[str]:
    """The values to try: every name that is not a default, all in one where an option takes several."""
    kind: Any = commands.EVERY[name]
    choice = kind.choices[option]
    known, default = list(choice.known), str(getattr(kind, option, "")).split(",")
    if (name, option) == ("in-between", "filters"):
        known = [one if one == "vbll" else f"{one}:2" for one in known]
    elif (name, option) == ("bo", "methods"):
        known.append("lrkf:2+ucb")
    elif (name, option) == ("digits", "agents"):
        yield ",".join(filter(None, map(composed, known)))
    if choice is bandits.Options.choices.get(option):
        known = list(shared(name, option))
    known = [one for one in known if one not in default]
    if known:
        yield from [",".join(known)] if choice.several else known


def shared(name: str, option: str) -> Iterator[str]:
    """The values of an option that all bandits have, dealt out to those whose agents act on the same kind of space."""
    kinds = [one for one in commands.REGISTRY if issubclass(commands.EVERY[one], bandits.Options)]  # pyright: ignore
    space = SPACE.get(name, "contexts")
    peers = [one for one in kinds if SPACE.get(one, "contexts") == space or option != "agents"]
    for index, value in enumerate(bandits.Options.choices[option].known):
        fits = option != "agents" or space in agents.capabilities(value).spaces
        if fits and index % len(peers) == peers.index(name):
            yield value


def composed(kind: str) -> str:
    """The agent of a filter with a policy and rehearsal, and a rank if it has one; "" for others."""
    own = agents.capabilities(kind)
    return f"{kind}{':2' if own.rank else ''}+greedy.rehearsal" if own.rehearses else ""


def lines(name: str) -> Iterator[list[str]]:
    """The options of every line that tries a command: each value of each choice, each flag, and all others together."""
    kind: Any = commands.EVERY[name]
    hints, together = get_type_hints(kind), []
    for field in fields(kind):
        if name == "ope" and field.name in ("backend", "workers"):  # of folders: tests/test_ope_partitions.py
            continue
        option, hint = flag(field.name), hints[field.name]
        before = [] if field.name in POSITIONAL.get(name, {}) else [option]
        if field.name in kind.choices:
            yield from ([*before, value] for value in values_of(name, field.name))
        elif field.name in FREE and get_origin(hint) is not tuple:
            together += [part for value in FREE[field.name] for part in (option, value)]
        elif bool in {hint, *get_args(hint)} and field.name not in JOINED:
            yield [f"--no-{option[2:]}" if field.default else option]
        elif field.default is None or field.default is False:
            number = size(name, field.name) or (3 if int in get_args(hint) else 0.5)
            together += [option] if field.default is False else [option, str(number)]
    yield together


def with_others(name: str, line: list[str]) -> list[str]:
    """A line with what its options belong to, and one agent where agents are not what it tries."""
    others: list[str] = []
    if issubclass(commands.EVERY[name], bandits.Options):  # pyright: ignore[reportArgumentType] (a class)
        others = ["--agents", "hilofi" if "--error-bounds" in line else "lrkf"]
    elif name == "in-between":
        others = ["--filters", "hilofi:1"]
    elif name == "tabular":
        others = ["--tables", "mushroom"] if "--agents" in line else ["--agents", "linear"]
    elif name == "bo":
        others = ["--methods", "random"] if "--functions" in line else ["--functions", "branin"]
    elif name == "optimizers":
        others = ["--optimizers", "sgd"]
    elif name == "tune":
        others = ["--agent", "adamw"]
    elif name == "bench":
        others = ["--filters", "lrkf"]
    given = [*line, *(others if others and others[0] not in line else [])]
    return [*given, "--data", "csv"] if "--matrix" in line else given


def words(name: str, line: list[str]) -> list[str]:
    """The whole command."""
    positional = line[:1] if line and not line[0].startswith("--") else []
    given = with_others(name, line[len(positional) :])
    if "bts" in line:
        positional = ["open-bandit"]
    return [*command(name, *positional), *given, *sizes(name, given), "--out", "out"]


CASES = [(name, line) for name in commands.EVERY for line in lines(name)]


@pytest.mark.sampled(28)
@pytest.mark.parametrize(("name", "line"), CASES, ids=[" ".join([name, *line])[:60] for name, line in CASES])
def test_every_value_of_every_option(name: str, line: list[str], traced: Path, capsys: Any) -> None:
    if "ray" in line and importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    Path("settings.json").write_text(Path("settings.json").read_text().replace("NAME", name))
    code = cli.main(words(name, line))
    err = capsys.readouterr().err
    if name == "tune" and code:  # the one command that does not fit all experiments and agents
        assert code == 2 and ("is not a bandit" in err or "has no settings" in err), err
    else:
        assert code == 0 and "seqdec: " not in err, f"seqdec {' '.join(words(name, line))}: {err}"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", commands.EVERY)
def test_the_defaults_of_every_command(name: str, traced: Path, capsys: Any) -> None:
    needed = ["--agent", "adamw"] if name == "tune" else []
    printed = done([*command(name), *needed, *sizes(name), "--out", "out"], capsys)
    assert done(["report", "out"], capsys).strip() == printed.split("\n\nResults")[0].strip()
    if name in commands.REGISTRY:  # the other commands begin again, or are done
        assert done(["run", "--resume", "out"], capsys).strip() == printed.strip()


def test_a_sweep_plays_every_seed(traced: Path, capsys: Any) -> None:
    done([*command("sweep"), "--out", "out"], capsys)
    assert pd.read_parquet("out/sweep.parquet")[["agent", "seed"]].value_counts().to_dict() == {
        (agent, seed): 1 for agent in ("linear", "random") for seed in (0, 1)
    }
