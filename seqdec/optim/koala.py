r"""KOALA: stochastic optimization as Kalman filtering of the loss.

The parameters theta are a random walk with covariance q I per step, and the loss L at a minibatch is one observation of
them with noise variance R, whose target is (1 - eta) L: the innovation is -eta L. With the gradient H (a row) and the
covariance P, one step is theta <- theta - eta L (P + q I) H^T / S with S = H (P + q I) H^T + R. The family differs in
what it keeps of P:

* `koala_v`: P = p I, a scalar;
* `koala_m`: a 2 x 2 covariance of position and velocity, the same for every coordinate;
* `koala_plus_plus`: the row v = H P that the update needs, and the least matrix that agrees with the last one.

Every method takes the loss as optax's extra argument: `update(grads, state, params, value=loss)`, and, if it likes, the
variance of the loss over the minibatch as `value_variance=`, which `noise=None` then tracks in place of the squared
loss. `optax.MultiSteps` hands on the loss of its last minibatch (by `update`; its `gradient_transformation()` drops
extra arguments).

In all of them `per_tensor` computes the scalars of every parameter array from that array alone, with the full loss as
its innovation, which is how the authors ran their experiments; False treats the parameters as one vector, as their text
does. Weight decay w is coupled: H + w theta^T and L + w |theta|^2 / 2 stand for gradient and loss, tensor by tensor.
Where the gradient of a tensor (or, without `per_tensor`, the whole gradient) has a norm below 1e-9, it is left alone in
that step, state included. NaN gradients or losses make NaN parameters, as with optax's own methods; wrap in
`optax.apply_if_finite`.

Sources: Davtyan, Sameni, Cerkezi, Meishvili, Bielski, Favaro, "KOALA: A Kalman Optimization Algorithm with Loss
Adaptivity", 2022; Xia, Davtyan, Favaro, "KOALA++: Efficient Kalman-Based Optimization of Neural Networks with
Gradient-Covariance Products", 2025.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from optax import ScalarOrSchedule

from seqdec.core import Array, PyTree
from seqdec.optim.common import accumulator, check_number

_LEAST_NORM = 1e-9


class _Observation(NamedTuple):
    """Gradient and loss of a step, tensor by tensor; `rows` and what is computed from them are in float32 at least."""

    rows: list[Array]
    """H of each tensor"""
    loss: Array
    """(s,) loss; s is the number of tensors, or 1 for the parameters as one vector"""
    square: Array
    """(s,) |H|^2"""
    seen: Array
    """(s,) bool: the gradient is not vanishing"""


def _dots(per_tensor: bool, left: list[Array], right: list[Array]) -> Array:
    """(s,) inner products, tensor by tensor or in all."""
    if not left:
        return jnp.zeros(0)
    dots = jnp.stack([jnp.vdot(a, b) for a, b in zip(left, right, strict=True)])
    return dots if per_tensor else jnp.sum(dots, keepdims=True)


def _observe(per_tensor: bool, updates: PyTree, params: PyTree | None, value: Any, weight_decay: Any) -> _Observation:
    """The observation of a step, with its weight decay."""
    if value is None:
        raise ValueError(
            "KOALA filters the loss, which it was not given: call update(grads, state, params, value=loss), with "
            "loss, grads = jax.value_and_grad(loss_fn)(params)"
        )
    rows = [leaf.astype(accumulator(leaf)) for leaf in jax.tree.leaves(updates)]
    loss = jnp.asarray(value, jnp.result_type(jnp.float32, *rows))
    if loss.ndim:
        raise ValueError(f"value must be the scalar loss; got shape {loss.shape}. Take the mean over the minibatch")
    if not isinstance(weight_decay, int | float) or weight_decay:
        if params is None:
            raise ValueError("weight decay needs the parameters: call update(grads, state, params, value=loss)")
        weights = [leaf.astype(row.dtype) for leaf, row in zip(jax.tree.leaves(params), rows, strict=True)]
        rows = [row + weight_decay * weight for row, weight in zip(rows, weights, strict=True)]
        loss = loss + 0.5 * weight_decay * _dots(per_tensor, weights, weights)
    square = _dots(per_tensor, rows, rows)
    # Written so that NaN counts as seen, and shows.
    return _Observation(rows, jnp.broadcast_to(loss, square.shape), square, ~(square <= _LEAST_NORM**2))


def _track(tracked: Array, noise: float | None, decay: Any, value: Any, value_variance: Any) -> Array:
    """The observation variance R of this step: fixed, or a moving average of the variance or square of the loss."""
    if noise is not None:
        return jnp.asarray(noise, tracked.dtype)
    statistic = jnp.square(value) if value_variance is None else value_variance
    return decay * tracked + (1 - decay) * jnp.asarray(statistic, tracked.dtype)


def _like(updates: PyTree, rows: list[Array]) -> PyTree:
    """Rows as a tree like the updates, in their dtypes."""
    leaves, structure = jax.tree.flatten(updates)
    return structure.unflatten([row.astype(leaf.dtype) for row, leaf in zip(rows, leaves, strict=True)])


def _each(scalars: Array, rows: list[Array]) -> list[Array]:
    """The scalar of each tensor."""
    return [scalars[index if len(scalars) > 1 else 0] for index in range(len(rows))]


def _scaled(scalars: Array, rows: list[Array]) -> list[Array]:
    """Each tensor times its scalar."""
    return [scalar * row for scalar, row in zip(_each(scalars, rows), rows, strict=True)]


def _check(initial_variance: Any, process_noise: Any, noise: Any, noise_decay: Any, weight_decay: Any) -> None:
    check_number("initial_variance", initial_variance, above=True)
    check_number("process_noise", process_noise)
    if noise is not None:
        check_number("noise", noise)
    check_number("noise_decay", noise_decay, 0, 1)
    check_number("weight_decay", weight_decay)


def _zeros(params: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, accumulator(leaf)), params)


def _scalar(value: Any, params: PyTree) -> Array:
    """A number of the state, in the widest dtype of the state of the parameters."""
    return jnp.asarray(value, jnp.result_type(jnp.float32, *map(accumulator, jax.tree.leaves(params))))


class ScaleByKoalaVState(NamedTuple):
    """Two numbers."""

    variance: Array
    """() p"""
    noise: Array
    """() R"""


def scale_by_koala_v(
    *,
    initial_variance: Any = 0.1,
    process_noise: Any = 1.0,
    noise: Any = None,
    noise_decay: Any = 0.9,
    initial_noise: Any = 1.0,
    weight_decay: Any = 0.0,
    per_tensor: bool = True,
) -> optax.GradientTransformationExtraArgs:
    r"""KOALA with a scalar covariance p I.

        p' = p + q      S_l = p' |H_l|^2 + R      u_l = L p' H_l / S_l      p <- p' - p'^2 max_l(|H_l|^2 / S_l)

    over the tensors l; with one tensor the last line is p R / S. Memory: 2 numbers. Work: one pass over the gradient
    for the norms and one for the step. The returned direction is not negated.

    Args:
        initial_variance: p_0.
        process_noise: q, variance that every parameter gains per step.
        noise: R, observation variance of the loss; None tracks it.
        noise_decay: of the moving average that tracks R.
        initial_noise: where that average starts.
        weight_decay: coupled; see the head of this file.
        per_tensor: scalars per parameter array; see the head of this file.

    Raises:
        ValueError: a setting is out of its range; in `update`, `value=` is missing or no scalar.
    """
    _check(initial_variance, process_noise, noise, noise_decay, weight_decay)

    def init(params):
        return ScaleByKoalaVState(_scalar(initial_variance, params), _scalar(initial_noise, params))

    def update(updates, state, params=None, *, value=None, value_variance=None, **extra):
        del extra
        seen = _observe(per_tensor, updates, params, value, weight_decay)
        noise_now = _track(state.noise, noise, noise_decay, value, value_variance)
        predicted = state.variance + process_noise
        innovation_variance = predicted * seen.square + noise_now
        gain = jnp.where(seen.seen, predicted / innovation_variance, 0)
        information = jnp.max(jnp.where(seen.seen, seen.square / innovation_variance, 0), initial=0)
        variance = predicted - predicted**2 * information
        kept = ScaleByKoalaVState(variance.astype(state.variance.dtype), noise_now)
        return _like(updates, _scaled(seen.loss * gain, seen.rows)), kept

    return optax.GradientTransformationExtraArgs(init, update)


class ScaleByKoalaMState(NamedTuple):
    """One copy of the parameters and four numbers."""

    velocity: PyTree
    """minus the velocity over the learning rate"""
    covariance: Array
    """(2, 2) of position and velocity, after the last update"""
    noise: Array
    """() R"""


def scale_by_koala_m(
    *,
    decay: Any = 0.9,
    initial_variance: Any = 0.1,
    process_noise: Any = 0.01,
    velocity_noise: Any = 0.01,
    noise: Any = None,
    noise_decay: Any = 0.9,
    initial_noise: Any = 1.0,
    weight_decay: Any = 0.0,
    per_tensor: bool = True,
) -> optax.GradientTransformationExtraArgs:
    r"""KOALA with position and velocity: theta' = theta + p, p' = kappa p, covariance (2 x 2) (x) I.

    The filter predicts first and takes the gradient at the prediction. An optax update ends where the next gradient is
    taken, so here the order is turned round: correct with the gradient, then predict. With F = [[1, 1], [0, kappa]],

        P <- F P F^T + diag(q_theta, q_p)       S_l = P_11 |H_l|^2 + R
        w_l <- kappa w_l + L P_21 H_l / S_l     u_l = L P_11 H_l / S_l + w_l
        P <- P - max_l(|H_l|^2 / S_l) P e_1 e_1^T P

    where w is minus the velocity over the learning rate. The parameters that the training loop holds are therefore the
    predicted ones; theta after the correction is params + learning_rate * state.velocity. As in `optax.trace`, a
    changing learning rate scales the whole velocity. Memory: one copy of the parameters. The authors' code estimates
    q_theta from the motion of the parameters, at the price of another copy; here it is a number.

    Args:
        decay: kappa of the velocity.
        initial_variance: of position and of velocity.
        process_noise: q_theta per step.
        velocity_noise: q_p per step.
        noise, noise_decay, initial_noise, weight_decay, per_tensor: as in `scale_by_koala_v`.

    Raises:
        ValueError: as `scale_by_koala_v`.
    """
    _check(initial_variance, process_noise, noise, noise_decay, weight_decay)
    check_number("velocity_noise", velocity_noise)
    check_number("decay", decay, 0, 1)

    def init(params):
        variance = _scalar(initial_variance, params)
        return ScaleByKoalaMState(
            _zeros(params), variance * jnp.eye(2, dtype=variance.dtype), _scalar(initial_noise, params)
        )

    def update(updates, state, params=None, *, value=None, value_variance=None, **extra):
        del extra
        seen = _observe(per_tensor, updates, params, value, weight_decay)
        noise_now = _track(state.noise, noise, noise_decay, value, value_variance)
        (p_tt, p_tv), (_, p_vv) = state.covariance
        predicted = [p_tt + 2 * p_tv + p_vv + process_noise, decay * (p_tv + p_vv), decay**2 * p_vv + velocity_noise]
        covariance = jnp.stack(predicted)[jnp.array([[0, 1], [1, 2]])]
        innovation_variance = covariance[0, 0] * seen.square + noise_now
        gains = jnp.where(seen.seen, seen.loss / innovation_variance, 0)
        velocity = [
            decay * w + push
            for w, push in zip(
                jax.tree.leaves(state.velocity), _scaled(covariance[1, 0] * gains, seen.rows), strict=True
            )
        ]
        steps = _scaled(covariance[0, 0] * gains, seen.rows)
        information = jnp.max(jnp.where(seen.seen, seen.square / innovation_variance, 0), initial=0)
        covariance = covariance - information * jnp.outer(covariance[:, 0], covariance[0])
        moved = [step + w for step, w in zip(steps, velocity, strict=True)]
        structure = jax.tree.structure(state.velocity)
        kept = ScaleByKoalaMState(structure.unflatten(velocity), covariance.astype(state.covariance.dtype), noise_now)
        return _like(updates, moved), kept

    return optax.GradientTransformationExtraArgs(init, update)


class ScaleByKoalaPlusPlusState(NamedTuple):
    """Two copies of the parameters and three numbers for each tensor."""

    row: PyTree
    """H of the last step"""
    product: PyTree
    """v = H P of the last step"""
    square: Array
    """(s,) |H|^2; 0 before the first step"""
    projected: Array
    """(s,) H . v"""
    innovation_variance: Array
    """(s,) S"""
    noise: Array
    """() R"""


def scale_by_koala_plus_plus(
    *,
    initial_variance: Any = 0.1,
    process_noise: Any = 0.1,
    noise: Any = None,
    noise_decay: Any = 0.9,
    initial_noise: Any = 1.0,
    weight_decay: Any = 0.0,
    symmetric: bool = True,
    per_tensor: bool = True,
) -> optax.GradientTransformationExtraArgs:
    r"""KOALA++: the product v_k = H_k P_{k-1} alone is kept of the covariance.

    P_{k-1} = (I - K H_{k-1}) (P_{k-2} + q I), where for the P_{k-2} that is not known stands the matrix of least
    Frobenius norm with H_{k-1} P_{k-2} = v_{k-1}, symmetric or not. With H' = H_{k-1}, v' = v_{k-1}, S' = S_{k-1}:

        lambda = (H.v' + q H.H') / S'                              alpha = H.H' / |H'|^2
        omega  = (H.v' |H'|^2 - H'.v' H.H') / |H'|^4               (0 for symmetric=False)
        v = (alpha - lambda) v' + q (H - lambda H') + omega H'     v = p_0 H in the first step
        S = H.v + q |H|^2 + R                                      u = L (v + q H) / S

    Memory: 2 copies of the parameters and 3 numbers per tensor. Work: three inner products and two passes. The first
    step is that of the filter with covariance p_0 I; the paper starts moving with the second gradient only.

    The symmetric matrix of least norm is in general indefinite. Where the variance H (P + q I) H^T that it predicts for
    the loss is not positive the step would climb, or divide by S <= 0; there the tensor's covariance starts anew from
    p_0 I. The paper prescribes nothing for this case.

    Args:
        initial_variance: p_0, variance of every parameter at first.
        process_noise: q, variance that every parameter gains per step.
        noise: R, observation variance of the loss; None tracks it.
        noise_decay: of the moving average that tracks R.
        initial_noise: where that average starts.
        weight_decay: coupled; see the head of this file.
        symmetric: the symmetric matrix of least norm; False is the paper's "NS".
        per_tensor: scalars per parameter array; see the head of this file.

    Raises:
        ValueError: a setting is out of its range; in `update`, `value=` is missing or no scalar.
    """
    _check(initial_variance, process_noise, noise, noise_decay, weight_decay)

    def init(params):
        count = len(jax.tree.leaves(params))
        noise_then = _scalar(initial_noise, params)

        def zeros():
            return jnp.zeros(count if per_tensor else min(count, 1), noise_then.dtype)

        return ScaleByKoalaPlusPlusState(_zeros(params), _zeros(params), zeros(), zeros(), zeros(), noise_then)

    def update(updates, state, params=None, *, value=None, value_variance=None, **extra):
        del extra
        seen = _observe(per_tensor, updates, params, value, weight_decay)
        noise_now = _track(state.noise, noise, noise_decay, value, value_variance)
        rows_then, products_then = jax.tree.leaves(state.row), jax.tree.leaves(state.product)
        crossed, along = _dots(per_tensor, seen.rows, products_then), _dots(per_tensor, seen.rows, rows_then)
        safe = jnp.where(state.square > 0, state.square, 1)
        variance_then = jnp.where(state.square > 0, state.innovation_variance, 1)

        contraction = (crossed + process_noise * along) / variance_then
        ratio = along / safe
        correction = crossed / safe - state.projected / safe * ratio if symmetric else jnp.zeros_like(ratio)
        keep, push = ratio - contraction, correction - process_noise * contraction
        projected = keep * crossed + process_noise * seen.square + push * along
        # A variance that is not positive belongs to no covariance. Written so that NaN is no reason to start anew.
        anew = (state.square == 0) | (projected + process_noise * seen.square <= 0)
        keep, push = jnp.where(anew, 0, keep), jnp.where(anew, 0, push)
        share = jnp.where(anew, initial_variance, process_noise)
        projected = jnp.where(anew, initial_variance * seen.square, projected)
        innovation_variance = projected + process_noise * seen.square + noise_now
        gain = jnp.where(seen.seen, seen.loss / innovation_variance, 0)

        products, steps = [], []
        tensors = zip(
            seen.rows, rows_then, products_then, *(_each(s, seen.rows) for s in (keep, share, push, gain)), strict=True
        )
        for row, row_then, product_then, k, c, p, g in tensors:
            product = k * product_then + c * row + p * row_then
            products.append(product)
            steps.append(g * (product + process_noise * row))

        def kept(new, old):
            return [jnp.where(s, a, b) for s, a, b in zip(_each(seen.seen, new), new, old, strict=True)]

        structure = jax.tree.structure(state.row)
        fresh = ScaleByKoalaPlusPlusState(
            structure.unflatten(kept(seen.rows, rows_then)),
            structure.unflatten(kept(products, products_then)),
            jnp.where(seen.seen, seen.square, state.square),
            jnp.where(seen.seen, projected, state.projected),
            jnp.where(seen.seen, innovation_variance, state.innovation_variance),
            noise_now,
        )
        return _like(updates, steps), fresh

    return optax.GradientTransformationExtraArgs(init, update)


def koala_v(
    learning_rate: ScalarOrSchedule,
    *,
    initial_variance: Any = 0.1,
    process_noise: Any = 1.0,
    noise: Any = None,
    noise_decay: Any = 0.9,
    initial_noise: Any = 1.0,
    weight_decay: Any = 0.0,
    per_tensor: bool = True,
) -> optax.GradientTransformationExtraArgs:
    """KOALA-V: a Kalman filter with covariance p I, with learning rate eta; the authors use 0.1 and 1.

    Call `update(grads, state, params, value=loss)`. Memory, arguments and errors: `scale_by_koala_v`.
    """
    return optax.chain(
        scale_by_koala_v(
            initial_variance=initial_variance,
            process_noise=process_noise,
            noise=noise,
            noise_decay=noise_decay,
            initial_noise=initial_noise,
            weight_decay=weight_decay,
            per_tensor=per_tensor,
        ),
        optax.scale_by_learning_rate(learning_rate),
    )


def koala_m(
    learning_rate: ScalarOrSchedule,
    *,
    decay: Any = 0.9,
    initial_variance: Any = 0.1,
    process_noise: Any = 0.01,
    velocity_noise: Any = 0.01,
    noise: Any = None,
    noise_decay: Any = 0.9,
    initial_noise: Any = 1.0,
    weight_decay: Any = 0.0,
    per_tensor: bool = True,
) -> optax.GradientTransformationExtraArgs:
    """KOALA-M: a Kalman filter over position and velocity, with learning rate eta; the authors use 1.

    Call `update(grads, state, params, value=loss)`. Memory, arguments and errors: `scale_by_koala_m`.
    """
    return optax.chain(
        scale_by_koala_m(
            decay=decay,
            initial_variance=initial_variance,
            process_noise=process_noise,
            velocity_noise=velocity_noise,
            noise=noise,
            noise_decay=noise_decay,
            initial_noise=initial_noise,
            weight_decay=weight_decay,
            per_tensor=per_tensor,
        ),
        optax.scale_by_learning_rate(learning_rate),
    )


def koala_plus_plus(
    learning_rate: ScalarOrSchedule,
    *,
    initial_variance: Any = 0.1,
    process_noise: Any = 0.1,
    noise: Any = None,
    noise_decay: Any = 0.9,
    initial_noise: Any = 1.0,
    weight_decay: Any = 0.0,
    symmetric: bool = True,
    per_tensor: bool = True,
) -> optax.GradientTransformationExtraArgs:
    """KOALA++: a Kalman filter that keeps H P, with learning rate eta.

    The authors use 1 to 2 for image classification and 2e-3 for language models. Over the first few hundred steps
    initial_variance = process_noise = 10 with learning rates from 0.1 to 0.3 learn faster: q |H|^2 then outweighs R,
    and every tensor's step is as long as the loss asks for, whatever the length of its gradient.

    Call `update(grads, state, params, value=loss)`. Memory, arguments and errors: `scale_by_koala_plus_plus`.
    """
    return optax.chain(
        scale_by_koala_plus_plus(
            initial_variance=initial_variance,
            process_noise=process_noise,
            noise=noise,
            noise_decay=noise_decay,
            initial_noise=initial_noise,
            weight_decay=weight_decay,
            symmetric=symmetric,
            per_tensor=per_tensor,
        ),
        optax.scale_by_learning_rate(learning_rate),
    )
