"""Independent beliefs, one for each response, as in linear bandits with weights for each arm.

For k arms of p parameters an update costs O(p^2), with `seqdec.filters.ekf` O(k^2 p^2).
"""

import jax
import jax.numpy as jnp

from seqdec.boundary.checks import integers, keyed, one_array
from seqdec.core import Filter, Predictive
from seqdec.filters.batches import known


def independent(flt: Filter, count: int) -> Filter:
    """A filter with `count` independent beliefs of `flt`, each over a network with one response.

    Leaves of the parameters have a leading axis (count,), as from `jax.vmap(network.init)(keys)`. Observations are of
    one response, `observed` a scalar, or of all, None.

    Raises:
        ValueError: in `update`, for some but not all responses; in `init`, for parameters without the leading axis.
    """

    @keyed
    def init(key, params):
        sizes = {leaf.shape[:1] for leaf in jax.tree.leaves(params)}
        if sizes != {(count,)}:
            raise ValueError(f"every leaf of params must have a leading axis ({count},); got {sorted(sizes)}")
        return jax.vmap(flt.init)(jax.random.split(key, count), params)

    def update(belief, x, y, observed=None):
        if observed is not None:
            observed = integers("observed", observed)
            if observed.ndim:
                raise ValueError(f"observed must be one index or None; got shape {observed.shape}")
        y = jnp.asarray(one_array("y", y), float)
        if y.shape not in (((count,),) if observed is None else ((), (1,))):
            wanted = f"({count},)" if observed is None else "() or (1,)"
            raise ValueError(f"y must have shape {wanted} with observed {observed}; got {y.shape}")
        if observed is None:
            return jax.vmap(lambda own, value: flt.update(own, x, value[None]))(belief, y)
        y = known(jnp.reshape(y, (1,)), observed, count)
        own = jax.tree.map(lambda leaf: leaf[observed], belief)
        own, info = flt.update(own, x, y)
        return jax.tree.map(lambda leaf, new: leaf.at[observed].set(new), belief, own), info

    def moments(belief, x):
        each = jax.vmap(flt.moments, (0, None))(belief, x)
        return Predictive(each.mean[:, 0], jnp.diag(each.cov[:, 0, 0]), jnp.diag(each.noise[:, 0, 0]))

    @keyed
    def sample(key, belief):
        return jax.vmap(flt.sample)(jax.random.split(key, count), belief)

    def response(params, x):
        return jax.vmap(flt.response, (0, None))(params, x)[:, 0]

    recenter = None if flt.recenter is None else jax.vmap(flt.recenter)
    return Filter(init, jax.vmap(flt.predict), update, moments, sample, jax.vmap(flt.mean), response, recenter)
