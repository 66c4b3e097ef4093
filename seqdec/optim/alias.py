"""Optimizers made from directions: `x` from `scale_by_x`, with a learning rate, weight decay and parameter groups."""

import functools
import inspect
import re
import sys
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, ParamSpec, Protocol, overload

import jax
import optax
from jax.typing import ArrayLike
from optax import GradientTransformationExtraArgs, ScalarOrSchedule

from seqdec import checks
from seqdec.optim.common import Mask, mask_tree, promoting, widened, zeros_like_state
from seqdec.optim.groups import Matrices, is_matrix
from seqdec.optim.injection import injectable

P = ParamSpec("P")


class Optimizer(Protocol[P]):
    """A direction with a learning rate, and the settings of the direction by keyword."""

    def __call__(
        self, learning_rate: ScalarOrSchedule, *args: P.args, **kwargs: P.kwargs
    ) -> GradientTransformationExtraArgs:
        """The transformation that takes the place of `optax.adamw(learning_rate)`."""
        ...


class DecayedOptimizer(Protocol[P]):
    """An `Optimizer` that takes `weight_decay` too.

    The type system cannot add a keyword to P, hence two overloads: settings of the direction are checked in calls
    without `weight_decay`.
    """

    @overload
    def __call__(
        self, learning_rate: ScalarOrSchedule, *args: P.args, **kwargs: P.kwargs
    ) -> GradientTransformationExtraArgs: ...
    @overload
    def __call__(
        self, learning_rate: ScalarOrSchedule, *, weight_decay: ArrayLike, mask: Mask | None = ..., **direction: object
    ) -> GradientTransformationExtraArgs: ...


class MatrixOptimizer(Protocol[P]):
    """An `Optimizer` that takes the settings of `routed` too.

    The type system cannot add keywords to P, hence one overload for each of them that is given: settings of the
    direction are checked in calls with none.
    """

    @overload
    def __call__(
        self, learning_rate: ScalarOrSchedule, *args: P.args, **kwargs: P.kwargs
    ) -> GradientTransformationExtraArgs: ...
    @overload
    def __call__(
        self,
        learning_rate: ScalarOrSchedule,
        *,
        weight_decay: ArrayLike,
        mask: Mask | None = ...,
        adam_ratio: ArrayLike = ...,
        **direction: object,
    ) -> GradientTransformationExtraArgs: ...
    @overload
    def __call__(
        self, learning_rate: ScalarOrSchedule, *, adam_ratio: ArrayLike, **direction: object
    ) -> GradientTransformationExtraArgs: ...


def with_learning_rate(
    direction: Callable[P, GradientTransformationExtraArgs], summary: str, *, family: str | None = None
) -> Optimizer[P]:
    """The optimizer that steps along a direction.

    Args:
        direction: `scale_by_x`; the settings of `x` are its arguments.
        summary: docstring of `x` before the arguments, which are those of `direction`.
        family: what the docstring ends with, where a family of methods has formulas and a source in common.
    """
    return _assembled(direction, summary, _stepped, family=family)


def with_weight_decay(
    direction: Callable[P, GradientTransformationExtraArgs], summary: str, *, coupled: bool = False
) -> DecayedOptimizer[P]:
    """As `with_learning_rate`, with weight decay: decoupled, or `coupled`, that is, added to the gradient."""
    return _assembled(direction, summary, _coupled if coupled else _decoupled)


def for_matrices(
    direction: Callable[P, GradientTransformationExtraArgs],
    summary: str,
    *,
    adam_ratio: float = 0.05,
    name: str | None = None,
    fixed: Mapping[str, Any] | None = None,
) -> MatrixOptimizer[P]:
    """As `with_learning_rate`, for hidden matrices, with Adam for all other parameters; see `routed`.

    Args:
        direction: `scale_by_x`, for parameters of two axes or more.
        summary: docstring of `x` before the arguments.
        adam_ratio: default of the argument of this name.
        name: of the optimizer; None is that of `direction` without "scale_by_".
        fixed: settings of `direction` that are not settings of the optimizer.
    """
    assemble = functools.partial(routed, adam_ratio=adam_ratio)
    return _assembled(direction, summary, assemble, name, fixed)


def is_optimizer(value: Any) -> bool:
    """Whether a value was made by one of the functions above."""
    return hasattr(value, "direction")


def _assembled(
    direction: Callable[..., GradientTransformationExtraArgs],
    summary: str,
    assemble: Callable[..., GradientTransformationExtraArgs],
    name: str | None = None,
    fixed: Mapping[str, Any] | None = None,
    family: str | None = None,
) -> Callable[..., GradientTransformationExtraArgs]:
    """(learning_rate, settings) -> assemble(direction(settings), learning_rate, settings).

    Settings are those of `direction` without `fixed`, and those of `assemble`; a setting of both goes to both. The
    function has the signature and the docstring that it would have if it were written out.
    """
    fixed = fixed or {}
    signature = inspect.signature(direction)
    own = [value.replace(kind=inspect.Parameter.KEYWORD_ONLY) for value in signature.parameters.values()]
    _, rate, *extras = inspect.signature(assemble).parameters.values()

    def optimizer(learning_rate, **settings):
        checks.rate("learning_rate", learning_rate)
        tail = {extra.name: settings[extra.name] for extra in extras if extra.name in settings}
        direct = {key: value for key, value in settings.items() if key not in tail or key in signature.parameters}
        return assemble(direction(**direct, **fixed), learning_rate, **tail)

    optimizer.__name__ = optimizer.__qualname__ = name or direction.__name__.lstrip("_").removeprefix("scale_by_")
    optimizer.__module__ = direction.__module__
    optimizer.__doc__ = "\n".join([_docstring(summary, direction, assemble, fixed), *_method(direction, family)])
    shared = {extra.name for extra in extras}
    parameters = [rate, *(value for value in own if value.name not in {*fixed, *shared}), *extras]
    finished = injectable(optimizer, inspect.Signature(parameters, return_annotation=signature.return_annotation))
    vars(finished)["direction"] = direction
    return finished


def _docstring(summary: str, direction: Callable, assemble: Callable, fixed: Collection[str]) -> str:
    """`summary` and the arguments of both functions, from their docstrings."""
    own, tail = _documented(direction), _documented(getattr(assemble, "func", assemble))
    entries = {"learning_rate": tail.pop("learning_rate", ""), **own, **tail}
    lines = [line for names, line in entries.items() if names not in (*fixed, "transform")]
    errors = ["Raises:", "    ValueError: a setting is out of its range.", ""]
    return "\n".join([summary, "", "Args:", *lines, "", *errors])


def _method(direction: Callable, family: str | None) -> list[str]:
    """Formulas and source: the head of the module, what the direction adds to it, and the text of the family."""
    details = inspect.cleandoc(direction.__doc__ or "").partition("\n")[2].partition("Args:\n")[0]
    texts = (sys.modules[direction.__module__].__doc__, details, family)
    return [text.strip("\n").rstrip() + "\n" for text in texts if text and text.strip()]


def _documented(function: Callable) -> dict[str, str]:
    """The entries of the "Args:" section of a docstring, by the names that they describe; {} without docstrings."""
    section = inspect.cleandoc(function.__doc__ or "").partition("Args:\n")[2].partition("\n\n")[0]
    entries = [entry for entry in re.split(r"\n(?=    \S)", section) if entry]
    return {entry.split(":")[0].strip(): entry for entry in entries}


def _rate(learning_rate: ScalarOrSchedule) -> GradientTransformationExtraArgs:
    """Minus the learning rate; schedules of optax too divide floats by counts."""
    return promoting(optax.scale_by_learning_rate(learning_rate))


def _decay(weight_decay: Any, mask: Mask | None) -> GradientTransformationExtraArgs:
    """Plus a share of the parameters, of those that the mask names; a Python 0 needs no parameters."""
    checks.number("weight_decay", weight_decay)
    if isinstance(weight_decay, int | float) and not weight_decay:
        return optax.with_extra_args_support(optax.identity())
    named = None if mask is None else lambda params: mask_tree(mask, params)
    return promoting(optax.add_decayed_weights(weight_decay, named))


def _wide(transform: optax.GradientTransformation) -> GradientTransformationExtraArgs:
    """A transformation of optax with state and arithmetic as those of the methods here, in float32 at least."""
    inner = promoting(transform)

    def update(updates, state, params=None, **extra):
        new, state = inner.update(widened(updates), state, params, **extra)
        return jax.tree.map(lambda value, old: value.astype(old.dtype), new, updates), state

    return GradientTransformationExtraArgs(lambda params: inner.init(zeros_like_state(params)), update)


def _stepped(
    transform: optax.GradientTransformation, learning_rate: ScalarOrSchedule
) -> GradientTransformationExtraArgs:
    """The direction times minus the learning rate.

    Args:
        transform: the direction.
        learning_rate: a number or a schedule.
    """
    return optax.chain(transform, _rate(learning_rate))


def _decoupled(
    transform: optax.GradientTransformation,
    learning_rate: ScalarOrSchedule,
    *,
    weight_decay: Any = 0.0,
    mask: Mask | None = None,
) -> GradientTransformationExtraArgs:
    """The direction and a share of the parameters, times minus the learning rate.

    Args:
        transform: the direction.
        learning_rate: a number or a schedule.
        weight_decay: decoupled: this share of the parameters, times the learning rate, is subtracted in every step.
        mask: which parameters decay, as in `optax.adamw`: a tree of bools like the parameters, or a function that
            returns such a tree; None: all, including biases and norms.
    """
    return optax.chain(transform, _decay(weight_decay, mask), _rate(learning_rate))


def _coupled(
    transform: optax.GradientTransformation,
    learning_rate: ScalarOrSchedule,
    *,
    weight_decay: Any = 0.0,
    mask: Mask | None = None,
) -> GradientTransformationExtraArgs:
    """The direction of the gradient of the loss with an L2 penalty, times minus the learning rate.

    Args:
        transform: the direction.
        learning_rate: a number or a schedule.
        weight_decay: of an L2 penalty: this share of the parameters is added to the gradient.
        mask: which parameters decay, as in `optax.adamw`: a tree of bools like the parameters, or a function that
            returns such a tree; None: all, including biases and norms.
    """
    return optax.chain(_decay(weight_decay, mask), transform, _rate(learning_rate))


def routed(
    transform: optax.GradientTransformation,
    learning_rate: ScalarOrSchedule,
    *,
    weight_decay: Any = 0.0,
    mask: Mask | None = None,
    adam_ratio: Any = 0.05,
    matrices: Matrices | None = None,
) -> GradientTransformationExtraArgs:
    """A direction for matrices, Adam for all other parameters; both with decoupled weight decay.

    Args:
        transform: the direction of the matrices.
        learning_rate: a number or a schedule.
        weight_decay: decoupled: this share of the parameters, times the learning rate of their group, is subtracted in
            every step.
        mask: which parameters decay, as in `optax.adamw`: a tree of bools like the parameters, or a function that
            returns such a tree; None: all, including biases and norms.
        adam_ratio: Adam's learning rate as a multiple of `learning_rate`.
        matrices: which parameters are matrices, and by which of their axes: a tree like the parameters, or a function
            that returns such a tree, with the leaves True, False or `optax.contrib.MuonDimensionNumbers`; None: as in
            `seqdec.optim.matrix_axes`.
    """
    checks.number("adam_ratio", adam_ratio)

    def labels(params):
        return jax.tree.map(lambda matrix: "matrix" if matrix else "adam", is_matrix(params, matrices))

    def others(params):
        return jax.tree.map(lambda label: label == "adam", labels(params))

    groups: dict[Hashable, optax.GradientTransformation] = {"matrix": transform, "adam": _wide(optax.scale_by_adam())}
    ratio = optax.masked(promoting(optax.scale(adam_ratio)), others)
    return optax.chain(optax.partition(groups, labels), _decay(weight_decay, mask), _rate(learning_rate), ratio)
