"""What every rule is as long as the policy is the one that sampled."""
import dataclasses

import jax
import numpy as np

from rlclip.oracle import examples
from rlclip.oracle.certificates.bandit import distance
from rlclip.oracle.certificates.certificate import register
from rlclip.oracle.gradients import sample_gradients
from rlclip.oracle.report import token_scale
from rlclip.oracle.toy import enumerate_sequences

# Rules whose gradient at w = 1 is not A grad log p, and why.
EXCEPTIONS: dict[str, str] = {}


def _keys():
  keys = examples.keys('algorithm', 'gate', 'bounds', 'level', 'reduction',
                       'mismatch')
  return tuple(key for key in keys if key not in EXCEPTIONS)


@register('at_ratio_one_it_is_reinforce', subjects=_keys)
def at_ratio_one_it_is_reinforce(seed: int, key: str) -> float:
  """Where p is the sampler, every sequence has the gradient of A log p.

  Without the penalty, per sequence of two tokens, in units where the mean
  weight of a token is 1. Levels and reductions that treat sequences of
  different lengths differently are equal there.
  """
  return ratio_one_error(seed, key)


def ratio_one_error(seed: int, key: str) -> float:
  """The error of `at_ratio_one_it_is_reinforce`, for exceptions too."""
  toy = enumerate_sequences(3, 2)
  rng = np.random.default_rng(seed)
  logits = rng.normal(size=(toy.num_rows, 3))
  rewards = rng.integers(0, 2, len(toy.tokens)).astype(float)
  advantages = rng.normal(size=len(rewards))
  spec = dataclasses.replace(examples.spec(key), penalty=None)
  samples = sample_gradients(
      toy, spec, logits, logits, old_logits=logits, advantages=advantages,
      rewards=rewards, group_mean=np.full(len(rewards), 0.5), group_size=8)
  with jax.enable_x64(True):
    p = np.asarray(jax.nn.softmax(logits))
  score = np.eye(3)[toy.tokens] - p[toy.rows]
  want = (advantages[:, None, None] * score)[samples.sequences]
  num_rows = samples.sequences.shape[1]
  scale = (token_scale(toy, spec, logits) * num_rows
           / samples.weights[:, None, None, None])
  return distance(-scale * samples.logits, want)
