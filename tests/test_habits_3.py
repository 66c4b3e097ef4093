"""Further habits of users, of containers, paths, processes and JAX modes."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

import seqdec
from seqdec import agents, cli, envs, filters, likelihoods, models, optim, policies
from seqdec.commands.folder import FORMAT
from seqdec.core import Posterior, Predictive
from seqdec.persistence import write_json

NOISY: dict[str, dict[str, Any]] = {
    "lrkf": {"rank": 6, "process_noise": 1e-2},
    "hilofi": {"rank": 4, "process_noise_hidden": 1e-2, "process_noise_last": 1e-2},
    "lolofi": {"rank_hidden": 4, "rank_last": 4, "process_noise_hidden": 1e-2, "process_noise_last": 1e-2},
    "lofi": {"rank": 4, "process_noise": 1e-2},
    "ekf": {"process_noise": 1e-2},
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "observed"),
    [("lrkf", None), ("lrkf", 1)]
    + [
        pytest.param(name, observed, marks=pytest.mark.extended)
        for name in ("hilofi", "lolofi", "lofi", "ekf")
        for observed in (None, 1)
    ],
)
def test_the_derivative_by_every_number_of_a_belief(name: str, observed: int | None) -> None:
    """Through two updates, the first of a prior, in which all directions have equal variances."""

    def after_two(numbers: Any = None) -> Any:
        """A prediction after two updates of a belief with these numbers; the numbers, where they are None."""
        network = models.network(models.MLP(2, (2,)), jnp.zeros(2))
        flt = getattr(filters, name)(network, likelihoods.gaussian(0.1), **NOISY[name])
        leaves, structure = jax.tree.flatten(flt.init(jax.random.key(1), network.init(jax.random.key(0))))
        places = [index for index, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        if numbers is None:
            return [leaves[index] for index in places]
        for index, leaf in zip(places, numbers, strict=True):
            leaves[index] = jnp.asarray(leaf)

        def step(belief: Any, x: Any) -> Any:
            y = jnp.array([0.3, 0.5] if observed is None else 0.5)
            return flt.update(flt.predict(belief), x, y, observed)[0], None

        belief, _ = jax.lax.scan(step, structure.unflatten(leaves), jnp.array([[1.0, 0.5], [-0.3, 1.0]]))
        at = flt.moments(belief, jnp.array([0.2, 0.7]))
        return at.mean.sum() + at.cov[0, 0] + 2 * at.cov[0, 1]

    numbers = after_two()
    slopes = jax.jit(jax.grad(after_two))(numbers)
    assert all(np.isfinite(slope).all() for slope in slopes)
    draws = np.random.default_rng(0)
    # Single numbers are variances of noise that has yet to arrive.
    moves = [draws.normal(size=leaf.shape) if leaf.ndim else np.zeros(()) for leaf in numbers]
    with jax.enable_x64(True):
        at = jax.jit(after_two)
        left, right = (
            float(at([np.asarray(leaf, float) + by * move for leaf, move in zip(numbers, moves, strict=True)]))
            for by in (-1e-6, 1e-6)
        )
    slope = sum(np.sum(slope * move) for slope, move in zip(slopes, moves, strict=True))
    np.testing.assert_allclose(slope, (right - left) / 2e-6, rtol=0.02)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
@pytest.mark.parametrize("command", [["--version"], ["list"], ["run", "--help"]], ids=" ".join)
def test_an_output_that_is_full(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert cli.main(command) == 1
    assert capsys.readouterr().err.startswith("seqdec: cannot write to standard output: No space left on device")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
def test_an_error_output_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, "stderr", full)
        assert cli.main(["lisst"]) == 2
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())


@pytest.mark.extended
@pytest.mark.parametrize("kind", [AxisType.Explicit, pytest.param(AxisType.Auto, marks=pytest.mark.extended)])
def test_a_run_while_a_mesh_is_set(kind: AxisType) -> None:
    """The agent and the environment are made within it, with arrays and shapes of a network."""

    def rewards() -> Any:
        env = envs.linear([[1.0, 0.0], [0.0, 1.0]])
        agent = agents.make("lrkf", env, model=models.MLP(2, (2,)), rank=2)
        return seqdec.run(agent, env, 2, seed=0, progress=False).rewards

    mesh = jax.make_mesh((1,), ("x",), (kind,), devices=jax.devices()[:1])
    with jax.set_mesh(mesh):
        within = rewards()
        assert jax.sharding.get_abstract_mesh().axis_names == ("x",)
    np.testing.assert_array_equal(within, rewards())


SITE = envs.linear([[1.0, 0.0], [0.0, 1.0]])
KEY = jax.random.key(0)
QUESTION = Posterior(
    lambda _: jnp.arange(2.0),
    lambda _: Predictive(jnp.arange(2.0), jnp.eye(2), jnp.eye(2)),
    lambda key: lambda _: jax.random.normal(key, (2,)),
)


def taking_keys() -> dict[str, Callable[[Any], Any]]:
    """One function of each kind, which uses the key or not."""
    network = models.network(models.MLP(2, (2,)), jnp.zeros(2))
    flt, params = filters.lrkf(network, likelihoods.gaussian(0.1), rank=2), network.init(KEY)
    belief, linear, chance = flt.init(KEY, params), agents.linear(SITE), agents.random(SITE)
    state, (place, _) = linear.init(KEY), SITE.reset(KEY, SITE.params)
    taking = {
        "network": network.init,
        "belief": lambda key: flt.init(key, params),
        "sample": lambda key: flt.sample(key, belief),
        "agent": linear.init,
        "agent without numbers": chance.init,
        "act": lambda key: linear.act(key, state, jnp.ones(2)),
        "compiled": seqdec.compiled(linear).init,
        "reset": lambda key: SITE.reset(key, SITE.params),
        "step": lambda key: SITE.step(key, place, jnp.int32(0), SITE.params),
    }
    for name in ("thompson", "epsilon_greedy", "predictive_sampling", "tempered_sampling"):
        policy: Any = policies.make(name)
        taking[name] = lambda key, policy=policy: policy.score(key, QUESTION, None, None)
    return taking


@pytest.mark.parametrize("wrong", [0, np.int64(3), None, np.uint32(1)], ids=repr)
def test_a_seed_is_no_key(wrong: Any) -> None:
    for name, function in taking_keys().items():
        with pytest.raises(TypeError, match=r"key must be a random key of JAX; got .*jax.random.key\(seed\)"):
            pytest.fail(f"{name}: {function(wrong)}")


def test_several_keys_are_not_one() -> None:
    for function in taking_keys().values():
        with pytest.raises(ValueError, match=r"key must be one random key; got an array of them, of shape \(2,\)"):
            function(jax.random.split(KEY))
        function(jax.random.PRNGKey(0))


def test_the_state_of_another_agent() -> None:
    def small(name: str, width: int = 2) -> Any:
        rank = agents.capabilities(name).rank
        return agents.make(name, SITE, model=models.MLP(2, (width,)), **({rank: 2} if rank else {}))

    own = agents.linear(SITE), small("lrkf"), small("adamw")
    others = [jax.eval_shape(agent.init, KEY) for agent in (*own, small("lrkf", 3), small("adamw", 3))]
    for index, agent in enumerate(own):
        for state in [*others[:index], *others[index + 1 :], None, 3]:
            for function in (
                lambda state, agent=agent: agent.act(KEY, state, jnp.ones(2)),
                lambda state, agent=agent: agent.update(state, jnp.ones(2), jnp.int32(1), jnp.float32(1)),
            ):
                with pytest.raises(TypeError, match=f"state is not one of this agent, {agent.name}"):
                    jax.eval_shape(function, state) if state not in (None, 3) else function(state)
    agent = own[1]
    with pytest.raises(TypeError, match=r"where .*bias.* has shape \(3,\) in place of shape \(2,\): pass what"):
        jax.eval_shape(lambda state: agent.act(KEY, state, jnp.ones(2)), others[3])


RANKED = {name: {"rank": 2} for name in ("alice", "alice_0", "apollo", "fira")}


@pytest.mark.parametrize("name", optim.REGISTRY.names())
def test_parameters_of_other_kinds(name: str) -> None:
    """Numbers of Python are parameters, as they are for `jax.grad`; of complex numbers a part would be lost."""
    optimizer = getattr(optim, name)(0.1, **RANKED.get(name, {}))
    params: Any = {"matrix": jnp.ones((4, 3)), "scale": 1.0, "count": 2}
    grads = jax.tree.map(lambda leaf: jnp.ones(jnp.shape(leaf)), params)

    def step(params: Any) -> Any:
        return optimizer.update(grads, optimizer.init(params), params, value=jnp.float32(1))

    updates, _ = jax.eval_shape(lambda: step(params))
    assert jax.tree.map(jnp.shape, updates) == jax.tree.map(jnp.shape, params)
    with pytest.raises(TypeError, match=r"parameters must be real numbers; got complex64 of shape \(4, 3\)"):
        jax.eval_shape(lambda: step({"matrix": jnp.ones((4, 3), jnp.complex64)}))


def test_resume_without_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is answered as with one, here that the options are missing."""
    write_json(tmp_path / "manifest.json", {"format": FORMAT, "experiment": "digits"})
    messages = []
    for command in ([], ["run"], ["run", "digits"]):
        messages.append((cli.main([*command, "--resume", str(tmp_path)]), capsys.readouterr().err))
    assert len(set(messages)) == 1
    assert "leave out" not in messages[0][1]
