# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Optimizers for any training loop
#
# **What you learn:** how to use the optimizers of `seqdec.optim` in an optax loop, which parameters a matrix method
# takes, and how to see what a self-tuning method chose.
#
# **Time:** about half a minute on two cores.
#
# `seqdec.optim` holds optimizers of recent papers as optax transformations. What takes `optax.adamw` takes them: flax
# training loops, chains, schedules, masks, accumulation of gradients.

# %%
# %matplotlib inline
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from sklearn.datasets import load_digits

from seqdec import models, optim

images, labels = load_digits(return_X_y=True)
images, labels = jnp.asarray(images / 16, jnp.float32), jnp.asarray(labels)
network = models.network(models.MLP(10, features=(32, 32)), images[0])


def loss_of(params, x, y):
    """Mean cross-entropy in nats of images x (b, 64) with labels y (b,)."""
    logits = jax.vmap(lambda image: network.apply(params, image))(x)
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


# %% [markdown]
# One loop for all. The loss goes to `update` as `value=`: the KOALA family needs it, the others ignore it.


# %%
def train(optimizer, steps=200, batch=64):
    """(parameters, optimizer state, loss of each step) after training on random minibatches."""
    optimizer = optax.with_extra_args_support(optimizer)

    @jax.jit
    def step(carry, key):
        params, state = carry
        rows = jax.random.randint(key, (batch,), 0, len(labels))
        loss, gradients = jax.value_and_grad(loss_of)(params, images[rows], labels[rows])
        updates, state = optimizer.update(gradients, state, params, value=loss)
        return (optax.apply_updates(params, updates), state), loss

    params = network.init(jax.random.key(0))
    start = (params, optimizer.init(params))
    (params, state), losses = jax.lax.scan(step, start, jax.random.split(jax.random.key(1), steps))
    return params, state, np.asarray(losses)


def rate(peak, steps=200):
    """Learning rate that rises for a tenth of the steps to its peak and then falls to zero."""
    return optax.warmup_cosine_decay_schedule(0.0, peak, steps // 10, steps)


contenders = {
    "AdamW": optax.adamw(rate(1e-2)),
    "KOALA++": optim.koala_plus_plus(rate(0.1), initial_variance=10.0, process_noise=10.0),
    "RACS": optim.racs(rate(1e-2)),
    "Alice": optim.alice(rate(1e-2), rank=8, interval=50),
    "FISMO": optim.fismo(rate(1e-2)),
    "self-tuning SGD": optim.self_tuning_sgd(rate(0.1)),
}
runs = {name: train(optimizer) for name, optimizer in contenders.items()}
for name, (_, state, losses) in runs.items():
    kept = sum(leaf.size for leaf in jax.tree.leaves(state))
    print(f"{name:16} loss {losses[-20:].mean():.4f}, state of {kept:,} numbers")

# %%
plt.figure(figsize=(7, 4.5))
for name, (_, _, losses) in runs.items():
    plt.plot(np.arange(15, 201), np.convolve(losses, np.ones(15) / 15, "valid"), label=name)
plt.yscale("log")
plt.yticks([0.03, 0.1, 0.3, 1, 2], ["0.03", "0.1", "0.3", "1", "2"])
plt.minorticks_off()
plt.xlabel("step")
plt.ylabel("training loss / nats, mean of 15 steps")
plt.title("One seed each", fontsize=10, loc="left")
plt.legend(frameon=False)
plt.show()

# %% [markdown]
# One run of each shows how to use them, not which is best. Methods for matrices take AdamW's learning rate. `seqdec run
# optimizers` sweeps rates for each optimizer on MNIST, CIFAR-10 and source code, and reports intervals over seeds.
#
# ## Who takes which parameters
#
# Matrix methods take the hidden layers' matrices, by names and shapes, and Adam, or the optimizer `rest=`, the others.
# `matrices=` takes a tree or a function that says otherwise.

# %%
params = runs["Alice"][0]
print(jax.tree.map(lambda leaf, group: (leaf.shape, group), params, optim.partition(params)))

# %% [markdown]
# ## What the self-tuning methods chose
#
# The state keeps the scores of the candidates and the choice of the last step.

# %%
tuner = optim.scale_by_self_tuning((0.01, 0.5, 0.9, 0.99))
state = tuner.init(jnp.zeros(200))
gradient, chosen = jnp.zeros(200), []
for key in jax.random.split(jax.random.key(2), 200):
    gradient = 0.9 * gradient + jnp.sqrt(1 - 0.9**2) * jax.random.normal(key, (200,))  # correlated by 0.9 per step
    _, state = tuner.update(gradient, state)
    chosen.append(int(state.chosen))
print("how often each was chosen:", np.bincount(chosen[100:], minlength=4))

# %% [markdown]
# ## Greedy optimizers in closed form
#
# For a gradient moment Sigma, the matrix Q that lowers the loss fastest within a trust region.

# %%
sample = jax.random.normal(jax.random.key(3), (50, 3)) * jnp.array([3.0, 1.0, 0.3])
moment = sample.T @ sample / 50
for name, family in {
    "Frobenius": optim.greedy.frobenius(1.0),
    "spectral": optim.greedy.spectral(1.5, 1.0),
    "Lyapunov": optim.greedy.lyapunov(1.0),
}.items():
    best, power = family.optimum(moment)
    print(name, "eigenvalues", np.linalg.eigvalsh(best).round(3), "learning power", round(float(power), 3))

# %% [markdown]
# ## Where to go next
#
# - [Optimizers](../docs/optimizers.md): each of them with its memory and its source; results with tuned learning rates
#   and intervals over seeds.
# - [A tuned training job](09_training_job.ipynb): how to find the learning rate of yours.
# - [Contributing](../CONTRIBUTING.md): how to add an optimizer.
