"""Contenders on the streams: agents of seqdec, small ones in JAX, and learners of other libraries.

A contender is written `name:argument:...`, where an argument is a value or key=value:

    auto  linear:half_life=200  hilofi:policy=thompson        agents of seqdec, with options
    ekf_linear:NOISE_VARIANCE  ekf_linear:NOISE_VARIANCE:PROCESS_NOISE
                                                              ekf of a model without hidden layers
    hilofi:process_noise_last=(1e-3,1000)                     two numbers are those of an `Annealed` process noise
    linucb:ALPHA  linucb:ALPHA:HALF_LIFE                      LinUCB for each arm
    hybrid:ALPHA                                              the same with weights that all arms share beside their own
    beta                                                      Thompson sampling of Bernoulli arms
    shared:ALPHA  products:ALPHA                              LinUCB with one weight vector for all candidates, on their
                                                              numbers, or on these and all products of two of them
    bumps:SCALE                                               on a box of one dimension: Thompson sampling on 16
                                                              Gaussian bumps in the action times (1, context)
    grid:ALPHA                                                on such a box: a LinUCB for each of 16 points
    lasso:PENALTY:EXPLORED                                    a lasso of scikit-learn for each arm, greedy after so many
                                                              uniform steps
    vw:OPTIONS  mabwiser:POLICY:key=value  contextualbandits:CLASS:key=value

Regressions have ridge 1, SCALE multiplies the deviation of the draw. The last line needs `pip install vowpalwabbit
mabwiser contextualbandits`; these learners meet the same contexts and rewards, one seed after the other.
OPTIONS that begin with adf are for --cb_explore_adf with products of context and arm.
"""

import ast
import importlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from harness import played

import seqdec
from seqdec import agents, models
from seqdec.agents.regression import pooled
from seqdec.core import Action, Agent, Array, Environment
from seqdec.filters.covariance import Annealed
from seqdec.loop.device import play

Step = Callable[[np.ndarray, np.ndarray], int]
"""(context (d,), rewards (n,)) -> arm; learns from the reward of that arm only."""


class Ridge(NamedTuple):
    """Ridge regressions."""

    inverse: Array
    moment: Array
    gram: Array | None = None
    """kept where observations are forgotten"""


def _ridge(size: int, *arms: int, forgets: bool = False) -> Ridge:
    eye = jnp.broadcast_to(jnp.eye(size), (*arms, size, size))
    return Ridge(eye, jnp.zeros((*arms, size)), eye if forgets else None)


def _added(state: Ridge, phi: Array, reward: Array) -> Ridge:
    p = state.inverse @ phi
    return state._replace(inverse=state.inverse - jnp.outer(p, p) / (1 + phi @ p), moment=state.moment + reward * phi)


def _added_to(state: Ridge, arm: Array, phi: Array, reward: Array) -> Ridge:
    own = _added(Ridge(state.inverse[arm], state.moment[arm]), phi, reward)
    return state._replace(inverse=state.inverse.at[arm].set(own.inverse), moment=state.moment.at[arm].set(own.moment))


def _bounds(state: Ridge, phi: Array, alpha: float) -> Array:
    """(arms,) upper confidence bounds."""
    mean = jnp.einsum("afk,ak,f->a", state.inverse, state.moment, phi)
    return mean + alpha * jnp.sqrt(jnp.einsum("afk,f,k->a", state.inverse, phi, phi))


def _draw(key: Array, state: Ridge, scale: float) -> Array:
    """Weights from the posterior."""
    root = jnp.linalg.cholesky(state.inverse)
    return state.inverse @ state.moment + scale * root @ jax.random.normal(key, state.moment.shape)


def linucb(env: Environment, alpha: float, half_life: float = np.inf) -> Agent:
    """LinUCB of Li et al. 2010; with a half-life D-LinUCB of Russac et al. 2019 without its second matrix."""
    arms, size = int(env.action_space.n), env.observation_space.shape[0] + 1  # pyright: ignore
    keep = 0.5 ** (1 / half_life)

    def act(key, state, x):
        score = _bounds(state, jnp.append(x, 1.0), alpha)
        return Action(jnp.argmax(score + 1e-9 * jax.random.uniform(key, score.shape)), jnp.float32(1))

    def update(state, x, action, reward):
        phi = jnp.append(x, 1.0)
        if keep == 1:
            return _added_to(state, action, phi, reward), None
        gram = (keep * state.gram + (1 - keep) * jnp.eye(size)).at[action].add(jnp.outer(phi, phi))
        moment = (keep * state.moment).at[action].add(reward * phi)
        return Ridge(jnp.linalg.inv(gram), moment, gram), None

    return Agent(lambda key: _ridge(size, arms, forgets=keep < 1), act, update, "linucb", {})


def hybrid(env: Environment, alpha: float) -> Agent:
    """LinUCB of Li et al. 2010 with weights of all arms beside those of each."""
    arms, size = int(env.action_space.n), env.observation_space.shape[0] + 1  # pyright: ignore

    def act(key, state, x):
        mean, p, t = state.parts(jnp.append(x, 1.0))
        score = mean + alpha * jnp.sqrt(jnp.sum(p**2, 1) + jnp.sum(t**2, 1))
        return Action(jnp.argmax(score + 1e-9 * jax.random.uniform(key, score.shape)), jnp.float32(1))

    def update(state, x, action, reward):
        return state.observed(1.0, jnp.append(x, 1.0), reward, action, jnp.bool_(True))[0], None

    return Agent(lambda key: pooled.prior(arms, size), act, update, "hybrid", {})


def beta(env: Environment) -> Agent:
    """Thompson sampling of Bernoulli arms."""
    arms = int(env.action_space.n)  # pyright: ignore

    def act(key, state, x):
        return Action(jnp.argmax(jax.random.beta(key, 1 + state[0], 1 + state[1])), jnp.float32(jnp.nan))

    def update(state, x, action, reward):
        won, lost = state
        return (won.at[action].add(reward), lost.at[action].add(1 - reward)), None

    return Agent(lambda key: (jnp.zeros(arms), jnp.zeros(arms)), act, update, "beta", {})


def shared(env: Environment, alpha: float, products: bool = False) -> Agent:
    """LinUCB with one weight vector for all candidates."""
    plain = [name for name, part in env.observation_space.items() if np.issubdtype(part.dtype, np.floating)]  # pyright: ignore

    def phis(x):
        rows = jnp.concatenate([x[name] for name in plain], axis=1)
        if products:
            first, second = np.triu_indices(rows.shape[1])
            rows = jnp.concatenate([rows, rows[:, first] * rows[:, second]], axis=1)
        return jnp.concatenate([rows, jnp.ones((len(rows), 1))], axis=1)

    def init(key):
        example = {name: jnp.zeros(env.observation_space[name].shape) for name in plain}  # pyright: ignore
        return _ridge(phis(example).shape[1])

    def act(key, state, x):
        rows = phis(x)
        width = jnp.sqrt(jnp.sum(rows @ state.inverse * rows, 1))
        return Action(jnp.argmax(rows @ state.inverse @ state.moment + alpha * width), jnp.float32(1))

    def update(state, x, action, reward):
        return _added(state, phis(x)[action], reward), None

    return Agent(init, act, update, "shared", {})


def bumps(env: Environment, scale: float) -> Agent:
    """Thompson sampling on sixteen bumps in the action times (1, context)."""
    size, places, fine = env.observation_space.shape[0] + 1, jnp.linspace(-1, 1, 16), jnp.linspace(-1, 1, 200)  # pyright: ignore

    def phi(x, action):
        return jnp.outer(jnp.exp(-0.5 * ((action - places) * 7.5) ** 2), jnp.append(x, 1.0)).ravel()

    def act(key, state, x):
        rows = jax.vmap(lambda action: phi(x, action))(fine)
        return Action(fine[jnp.argmax(rows @ _draw(key, state, scale))][None], jnp.float32(1))

    def update(state, x, action, reward):
        return _added(state, phi(x, action[0]), reward), None

    return Agent(lambda key: _ridge(16 * size), act, update, "bumps", {})


def grid(env: Environment, alpha: float) -> Agent:
    """A LinUCB for each of 16 actions."""
    size, places = env.observation_space.shape[0] + 1, jnp.linspace(-1, 1, 16)  # pyright: ignore

    def act(key, state, x):
        return Action(places[jnp.argmax(_bounds(state, jnp.append(x, 1.0), alpha))][None], jnp.float32(1))

    def update(state, x, action, reward):
        return _added_to(state, jnp.argmin(jnp.abs(places - action[0])), jnp.append(x, 1.0), reward), None

    return Agent(lambda key: _ridge(size, 16), act, update, "grid", {})


def ekf_linear(env: Environment, noise_variance: float, process_noise: float = 0.0) -> Agent:
    """The extended Kalman filter of a model without hidden layers."""
    network = models.MLP(int(env.action_space.n), ())  # pyright: ignore
    return agents.ekf(env, model=network, noise_variance=noise_variance, process_noise=process_noise, standardize=False)


OURS: dict[str, Callable[..., Agent]] = {
    "beta": beta, "bumps": bumps, "ekf_linear": ekf_linear, "grid": grid, "hybrid": hybrid, "linucb": linucb,
    "shared": shared, "products": lambda env, alpha: shared(env, alpha, products=True),
}  # fmt: skip


def mabwiser(name: str, **options: Any) -> Callable[[int, int], Step]:
    """A learning policy of MABWiser, for (arms, seed)."""

    def make(arms, seed):
        mab = importlib.import_module("mabwiser.mab")
        learner = mab.MAB(list(range(arms)), getattr(mab.LearningPolicy, name)(**options), seed=seed)
        begun = False

        def step(x, rewards):
            nonlocal begun
            arm = learner.predict(x[None]) if begun else 0
            learn = learner.partial_fit if begun else learner.fit
            learn([arm], [rewards[arm]], x[None])
            begun = True
            return arm

        return step

    return make


def contextual_bandits(name: str, **options: Any) -> Callable[[int, int], Step]:
    """A class of contextualbandits.online, for (arms, seed)."""

    def make(arms, seed):
        online = importlib.import_module("contextualbandits.online")
        learner = getattr(online, name)(arms, random_state=seed + 1, **options)

        def step(x, rewards):
            arm = int(learner.predict(x[None])[0])
            learner.partial_fit(x[None], np.array([arm]), rewards[[arm]])
            return arm

        return step

    return make


def vowpal_wabbit(options: str) -> Callable[[int, int], Step]:
    """Contextual bandits of Vowpal Wabbit, cost -reward, for (arms, seed)."""

    adf = options.startswith("adf")

    def make(arms, seed):
        kind = "--cb_explore_adf -q xa" if adf else f"--cb_explore {arms}"
        settings = f"{kind} {options.removeprefix('adf')} --random_seed {seed} --quiet"
        workspace = importlib.import_module("vowpalwabbit").Workspace(settings)
        rng = np.random.default_rng(seed)

        def step(x, rewards):
            # Names that are numbers would be indices, which the weights of different arms share.
            known = x[x[:, 1] != 0] if x.ndim == 2 else np.stack([np.flatnonzero(x), x[x != 0]], 1)
            shown = "|x " + " ".join(f"x{place:.0f}:{value:g}" for place, value in known)
            rows = [f"shared {shown}"] + [f"|a a{arm}" for arm in range(arms)]
            shares = np.maximum(workspace.predict(rows if adf else shown), 0)
            arm = rng.choice(arms, p=shares / shares.sum())
            told = f"{-rewards[arm]}:{shares[arm] / shares.sum()}"
            rows[arm + 1] = f"0:{told} {rows[arm + 1]}"
            workspace.learn(rows if adf else f"{arm + 1}:{told} {shown}")
            return arm

        return step

    return make


def lasso(penalty: float, explored: int = 100) -> Callable[[int, int], Step]:
    """A lasso for each arm in standard units, greedy after uniform steps, refitted as the steps grow by a tenth.

    Its penalty is `penalty` sqrt(log(t d) / t) for t rows of d numbers.
    """

    def make(arms, seed):
        model = importlib.import_module("sklearn.linear_model").Lasso
        rng, seen, fits, due = np.random.default_rng(seed), [], [], explored

        def fit():
            xs, chosen, paid = (np.array(part) for part in zip(*seen, strict=True))
            mean, std = xs.mean(0), xs.std(0) + 1e-12
            for arm in range(arms):
                own = chosen == arm
                count = max(own.sum(), 1)
                known = model(penalty * np.sqrt(np.log(count * xs.shape[1] + 1) / count))
                known.fit((xs[own] - mean) / std, paid[own])
                yield known.coef_ / std, known.intercept_ - mean @ (known.coef_ / std)

        def step(x, rewards):
            nonlocal fits, due
            if len(seen) >= due:
                fits, due = list(fit()), 1.1 * due
            arm = int(np.argmax([w @ x + b for w, b in fits])) if fits else int(rng.integers(arms))
            seen.append((x, arm, rewards[arm]))
            return arm

        return step

    return make


LIBRARIES = {"contextualbandits": contextual_bandits, "lasso": lasso, "mabwiser": mabwiser, "vw": vowpal_wabbit}


class World(NamedTuple):
    """What one seed shows and pays, whatever is played: for environments in which no action changes what follows."""

    contexts: np.ndarray
    """(steps, F)"""
    rewards: np.ndarray
    """(steps, n) of all arms"""
    regret: np.ndarray
    """(steps, n)"""


def _always(arm: int | Array) -> Agent:
    """One arm in every step."""

    def act(key, state, observation):
        return Action(jnp.asarray(arm, jnp.int32), jnp.float32(1))

    return Agent(lambda key: None, act, lambda state, *_: (state, None), "always", {})


def worlds(env: Environment, steps: int, seeds: range) -> list[World]:
    """The world of each seed, as `seqdec.run` meets it."""

    def one(key, params, arm):
        record = play(_always(arm), env, steps, key, params)
        return record.reward, record.regret

    def all_arms(key, params):
        return jax.vmap(one, (None, None, 0), 1)(key, params, jnp.arange(env.action_space.n))  # pyright: ignore

    keys = jax.vmap(jax.random.key)(jnp.array(seeds))
    rewards, regret = jax.jit(jax.vmap(all_arms, (0, None)))(keys, env.params)
    run = seqdec.run(
        _always(0), env, steps, seed=seeds[0], num_seeds=len(seeds), diagnostics=("observation",), progress=False
    )
    shown = np.asarray(run.diagnostics["observation"])
    return [World(*each) for each in zip(shown, np.asarray(rewards, float), np.asarray(regret), strict=True)]


def arguments(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """The name of a contender, its values and its values by key."""

    def value(word):
        try:
            return float("inf") if word == "inf" else ast.literal_eval(word)
        except (SyntaxError, ValueError):
            return word

    name, *words = text.split(":") if not text.startswith("vw:") else ["vw", text[3:]]
    pairs = [word.partition("=") for word in words if name != "vw" and "=" in word]
    return name, [value(word) for word in words if name == "vw" or "=" not in word], {k: value(v) for k, _, v in pairs}


def contender(text: str, env: Environment) -> Agent:
    """The agent that is written so."""
    name, values, options = arguments(text)
    for key in options:
        if key.startswith("process_noise") and isinstance(options[key], tuple):
            options[key] = Annealed(*options[key])
    return OURS[name](env, *values, **options) if name in OURS else agents.make(name, env, *values, **options)


def regret_of(
    text: str, env: Environment, steps: int, seeds: range, met: list[World] | None = None
) -> tuple[np.ndarray, float]:
    """Regret (seeds, steps) of a contender, in the worlds that other libraries meet, and the seconds of all steps."""
    name, values, options = arguments(text)
    if name not in LIBRARIES:
        return played(contender(text, env), env, steps, seeds)
    make, rows, seconds = LIBRARIES[name](*values, **options), [], 0.0
    for seed, world in zip(seeds, met or worlds(env, steps, seeds), strict=True):
        step = make(world.rewards.shape[1], seed)
        began = time.perf_counter()
        arms = [step(x.astype(float), paid) for x, paid in zip(world.contexts, world.rewards, strict=True)]
        seconds += time.perf_counter() - began
        rows.append(world.regret[np.arange(len(arms)), arms])
    return np.array(rows), seconds
