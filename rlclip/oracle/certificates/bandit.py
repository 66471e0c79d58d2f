"""Nine actions in two contexts, on which the certificates compare gradients."""
from typing import Any, Callable, NamedTuple, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from rlclip.losses import LossSpec, Penalty, TokenMean
from rlclip.oracle import compilation
from rlclip.oracle.gradients import sample_gradients
from rlclip.oracle.toy import enumerate_sequences, Toy
from rlclip.trust_region import gates

Array = Any


class Bandit(NamedTuple):
  """Three policies and the rewards of all actions."""
  toy: Toy
  new: np.ndarray
  old: np.ndarray
  reference: np.ndarray
  rewards: np.ndarray


def make(seed: int) -> Bandit:
  """Standard normal logits and rewards."""
  toy = enumerate_sequences(9, 1, num_contexts=2)
  rng = np.random.default_rng(seed)
  tables = rng.normal(size=(3, toy.num_rows, toy.num_tokens))
  return Bandit(toy, *tables, rng.normal(size=len(toy.tokens)))


def unclipped(penalty: Penalty | None) -> LossSpec:
  """The importance-weighted policy gradient with a penalty."""
  return LossSpec(bounds=None, gate=gates.Unclipped(), reduction=TokenMean(),
                  penalty=penalty)


def penalty_gradients(
    b: Bandit, penalties: Sequence[Penalty]) -> list[np.ndarray]:
  """Expected gradients of penalties alone, each without its beta."""
  samples = sample_gradients(
      b.toy, [unclipped(penalty) for penalty in penalties], b.new, b.old,
      advantages=0 * b.rewards, reference_logits=b.reference)
  return [s.expected(b.toy) / penalty.beta
          for s, penalty in zip(samples, penalties)]


def penalty_gradient(b: Bandit, estimator: str) -> np.ndarray:
  """Expected gradient of an estimator of the reverse KL to the reference."""
  (gradient,) = penalty_gradients(
      b, [Penalty('reverse_kl', 1.0, estimator=estimator)])
  return gradient


def differentiate(b: Bandit, function: Callable) -> np.ndarray:
  """grad of the mean of a function (new, old, reference), of log-probs [M]."""
  with jax.enable_x64(True):
    q, r = (b.toy.logps(jnp.asarray(x))[:, 0] for x in (b.old, b.reference))
    probabilities = b.toy.probabilities(jnp.asarray(b.old))
    mean = lambda theta: jnp.sum(
        probabilities * function(b.toy.logps(theta)[:, 0], q, r))
    return np.asarray(compilation.quick(jax.grad(mean))(jnp.asarray(b.new)))


def distance(a: Array, b: Array) -> float:
  """Largest absolute difference."""
  return float(np.abs(np.asarray(a) - np.asarray(b)).max())
