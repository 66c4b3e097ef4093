"""Every keyword of a call of this library's functions is one of the function's: also in `**options` and `make("name")`.

Type checkers do not see into dicts of keywords, nor behind names of registries. Names are looked up in the modules; of
a dict the keys are taken that its literals, `dict(...)` and assignments of items show.
"""

import ast
import functools
import importlib
import importlib.util
import inspect
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from seqdec import agents, commands, envs, policies
from seqdec.bo.surrogates import contract as surrogates
from seqdec.registry import Registry, load
from tests.test_packaging import MODULES, ROOT

INSTALLED = sorted(MODULES if importlib.util.find_spec("optuna") else set(MODULES) - {"seqdec.integrations.optuna"})
SCRIPTS = sorted(path for folder in ("benchmarks", "notebooks", "examples") for path in (ROOT / folder).rglob("*.py"))
MAKERS = {
    agents.make: agents.REGISTRY,
    envs.make: envs.REGISTRY,
    policies.make: policies.REGISTRY,
    surrogates.make: surrogates.REGISTRY,
}
"""Functions of a name, and where the name leads."""
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def keywords_of(function: Any) -> set[str] | None:
    """What a function takes by keyword; None where it takes anything."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return None
    found = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    rest = next((p for p in parameters if p.kind is p.VAR_KEYWORD), None)
    if rest is None:
        return found
    packed = typing.get_args(rest.annotation)
    return found | set(typing.get_type_hints(packed[0])) if packed and typing.is_typeddict(packed[0]) else None


class Calls(ast.NodeVisitor):
    """Collects faults of the calls in one file."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self.names = names
        self.scopes: list[ast.AST] = []
        self.faults: list[str] = []
        self.checked = 0

    def visit(self, node: ast.AST) -> None:
        """Visit a node and what is in it."""
        if isinstance(node, ast.Call):
            self.check(node)
        opens = isinstance(node, Function | ast.Module)
        self.scopes += [node] if opens else []
        self.generic_visit(node)
        self.scopes = self.scopes[:-1] if opens else self.scopes

    def check(self, call: ast.Call) -> None:
        """Compare the keywords of one call with the signature of what is called."""
        function, given = self.resolved(call.func), {name for word in call.keywords for name in self.keys_of(word)}
        if function is functools.partial or function is agents.from_filter:
            function = self.resolved(call.args[0]) if call.args else None
        elif isinstance(function, Registry) or function in MAKERS:
            function = self.entry(function if isinstance(function, Registry) else MAKERS[function], call.args[0])
        home = getattr(function, "__module__", None) or ""
        if callable(function) and home.startswith("seqdec") and (known := keywords_of(function)) is not None:
            self.checked += bool(given)
            name = getattr(function, "__qualname__", function)
            self.faults += [f"line {call.lineno}: {name} has no keyword {word}" for word in sorted(given - known)]

    def resolved(self, node: ast.AST) -> Any:
        """The object that an expression names; None where that is not known."""
        if isinstance(node, ast.Name):
            hidden = any(node.id in bound(scope) for scope in self.scopes if isinstance(scope, Function))
            return None if hidden else self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self.resolved(node.value)
            if isinstance(owner, Registry) and node.attr == "make":
                return owner
            return None if owner is None else getattr(owner, node.attr, None)
        if isinstance(node, ast.Subscript) and isinstance(registry := self.resolved(node.value), Registry):
            return self.entry(registry, node.slice)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("seqdec."):
            return load(node.value) if ":" in node.value else None
        return None

    def entry(self, registry: Registry[Any], name: ast.AST) -> Any:
        """The factory of a name that is written out."""
        known = isinstance(name, ast.Constant) and name.value in registry
        return registry[typing.cast(ast.Constant, name).value] if known else None

    def keys_of(self, word: ast.keyword) -> Iterator[str]:
        """The keywords that an argument stands for, as far as they are written out."""
        if word.arg is not None:
            yield word.arg
        else:
            yield from self.keys_in(word.value, 0)

    def keys_in(self, node: ast.AST, depth: int) -> Iterator[str]:
        """The keys of a dict."""
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is None:
                    yield from self.keys_in(value, depth)
                elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            yield from (*self.keys_in(node.left, depth), *self.keys_in(node.right, depth))
        elif isinstance(node, ast.IfExp):
            yield from (*self.keys_in(node.body, depth), *self.keys_in(node.orelse, depth))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
            yield from (name for word in node.keywords for name in self.keys_of(word))
        elif isinstance(node, ast.Name) and depth < 3:
            yield from self.keys_by_name(node.id, depth)

    def keys_by_name(self, name: str, depth: int) -> Iterator[str]:
        """Those of the dicts that are assigned to a name in the innermost scope that knows it."""
        scope = next((scope for scope in reversed(self.scopes) if name in bound(scope)), None)
        if scope is None or (isinstance(scope, Function) and name in parameters(scope)):
            return
        for node in ast.walk(scope):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) or node.value is None:
                continue
            for target in targets:
                if isinstance(target, ast.Name) and target.id == name:
                    yield from self.keys_in(node.value, depth + 1)
                elif isinstance(target, ast.Subscript) and ast.unparse(target.value) == name:
                    yield from (str(key.value) for key in [target.slice] if isinstance(key, ast.Constant))


@functools.cache
def bound(scope: ast.AST) -> frozenset[str]:
    """Names that a function or a module binds, other than by imports."""
    stored = {node.id for node in ast.walk(scope) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return frozenset(stored | (parameters(scope) if isinstance(scope, Function) else set()))


def parameters(function: Any) -> set[str]:
    """Names of the parameters of a function."""
    return {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}


def imported(tree: ast.AST) -> dict[str, Any]:
    """What the imports of this library in a file give, wherever they are."""
    names: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            source = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
            if (source or "").partition(".")[0] in ("seqdec", "functools"):
                try:
                    exec(ast.unparse(node), names)
                except ImportError:  # of an extra
                    continue
    return names


def calls_in(source: str, names: Mapping[str, Any]) -> Calls:
    """The calls of a source, compared."""
    tree = ast.parse(source)
    calls = Calls({**names, **imported(tree)})
    calls.visit(tree)
    return calls


@functools.cache
def calls_of(module: str) -> Calls:
    """Those of a module of the package."""
    return calls_in(MODULES[module].read_text(encoding="utf-8"), vars(importlib.import_module(module)))


def test_keywords_in_the_package_and_in_scripts() -> None:
    found = {module: calls_of(module).faults for module in INSTALLED}
    found |= {str(path): calls_in(path.read_text(encoding="utf-8"), {}).faults for path in SCRIPTS}
    assert {place: faults for place, faults in found.items() if faults} == {}


def test_keywords_of_the_experiments_tables() -> None:
    """Settings by the name of an agent or a surrogate."""
    from reproduction import bo as search
    from reproduction import tabular

    own = ("tuned", "paper")
    tables = [getattr(commands.EVERY[name], table, {}) for name in commands.EVERY for table in own]
    rows = [(agents.REGISTRY[name], settings) for table in tables for name, settings in table.items()]
    for table in (tabular._ALL, *tabular.TUNED.values()):
        for name, settings in table.items():
            factory = tabular.linear if name == "linear" else agents.REGISTRY[tabular._KINDS[name]]
            rows.append((factory, settings))
    for name, settings in search._PAPER.items():
        rows.append((surrogates.REGISTRY[search._SURROGATES.get(name, name)], settings))
    for function, settings in rows:
        known = keywords_of(function)
        assert known is not None and set(settings) <= known, (function, settings)
    assert len(rows) > 30


WRONG = """
from seqdec import agents, envs, filters
import functools, seqdec
filters.hilofi(network, likelihood, rank=3, is_last=f)
layers = dict(rank=3)
layers['is_last'] = 1
filters.lolofi(n, l, **layers, **{'rnk': 4})
functools.partial(filters.lrkf, rank_hidden=3)
seqdec.agents.make('lrkf', env, rank_last=3)
agents.REGISTRY['lofi'](env, rank_last=3)
envs.make('digits', horizn=3)
"""


def test_wrong_keywords_are_found_and_nothing_else() -> None:
    found = [fault.partition(" has no keyword ")[2] for fault in calls_in(WRONG, {}).faults]
    assert found == ["is_last", "is_last", "rank", "rnk", "rank_hidden", "rank_last", "rank_last", "horizn"]
    unknown = "def f(filters, **layers):\n    filters.hilofi(is_last=3)\n    seqdec.agents.hilofi(env, **layers)"
    assert calls_in(f"import seqdec\n{unknown}\nseqdec.agents.make(name, env, nonsense=3)", {}).faults == []
    assert sum(calls_of(module).checked for module in INSTALLED) > 150
