"""From rewards to advantages, on the host; numpy only.

Every function takes float[P, G] rewards, G samples for each of P prompts, with
nan where a reward is None. Such a sample is left out of its group's statistics
and gets advantage 0; so does a sample that is alone in its group. Whatever else
leaves the loss (truncated completions, constant groups of other prompts) does
so after, and is in its group's statistics.
"""
import functools
import inspect
from typing import Callable

import numpy as np

from rlclip import registry as registry_lib

_REGISTRY = registry_lib.Registry('advantage')


def names() -> tuple[str, ...]:
  """Registered estimators, sorted."""
  return _REGISTRY.names()


def get(name: str) -> Callable[[np.ndarray], np.ndarray]:
  """The estimator of this name, as 'group_zscore' or 'f_grpo(gamma=0.5)'.

  Raises:
    ValueError: for an unknown name, or one that does not take these numbers.
  """
  key, numbers = registry_lib.parse(name)
  function = _REGISTRY[key]
  allowed = tuple(inspect.signature(function).parameters)[1:]
  unknown = sorted(set(numbers) - set(allowed))
  if unknown:
    raise ValueError(
        f'Advantage {key!r} does not take {", ".join(unknown)}; it takes '
        f'{", ".join(allowed) or "no numbers"}.')
  return functools.partial(function, **numbers) if numbers else function


@_REGISTRY.register('group_mean')
def group_mean(rewards: np.ndarray) -> np.ndarray:
  """Centers rewards within each prompt's group.

  A_pg = r_pg - mean_p. With rewards 0 and 1 and c successes of k that is
  1 - c/k for a success and -c/k for a failure.

  Args:
    rewards: float[P, G], nan where there is none.

  Returns:
    float32[P, G]; every row sums to zero.

  Raises:
    ValueError: if G < 2.

  Source: Liu et al., arXiv 2503.20783 (Dr.GRPO).
  """
  centered, _ = _center(rewards, 'group_mean')
  return centered.astype(np.float32)


@_REGISTRY.register('group_zscore')
def group_zscore(rewards: np.ndarray, *, epsilon: float = 1e-6) -> np.ndarray:
  """Standardizes rewards within each prompt's group.

  A_pg = (r_pg - mean_p) / (std_p + epsilon), std with G - 1 degrees of
  freedom. A group whose rewards are all equal gets exactly 0.

  Args:
    rewards: float[P, G], nan where there is none.
    epsilon: added to the std, in units of reward (verl's 1e-6; TRL adds 1e-4,
      which is 2e-4 of the advantages of a group half right).

  Returns:
    float32[P, G]; every row sums to zero.

  Raises:
    ValueError: if G < 2, where the std is undefined.

  Source: Shao et al., arXiv 2402.03300 (GRPO), section 4.1.
  """
  centered, count = _center(rewards, 'group_zscore')
  variance = (centered ** 2).sum(1, keepdims=True) / np.maximum(count - 1, 1)
  return (centered / (np.sqrt(variance) + epsilon)).astype(np.float32)


@_REGISTRY.register('leave_one_out', 'rloo')
def leave_one_out(rewards: np.ndarray) -> np.ndarray:
  """Compares each reward with the mean of the others of its group.

  A_pg = r_pg - (sum_p - r_pg) / (G - 1) = (r_pg - mean_p) G / (G - 1).

  Args:
    rewards: float[P, G], nan where there is none.

  Returns:
    float32[P, G]; every row sums to zero.

  Raises:
    ValueError: if G < 2, where there are no others.

  Source: Ahmadian et al., arXiv 2402.14740 (RLOO).
  """
  centered, count = _center(rewards, 'leave_one_out')
  return (centered * count / np.maximum(count - 1, 1)).astype(np.float32)


@_REGISTRY.register('batch')
def batch(rewards: np.ndarray, *, epsilon: float = 1e-6) -> np.ndarray:
  """Standardizes rewards over the whole batch, groups ignored.

  A = (r - mean) / (std + epsilon), std with P G - 1 degrees of freedom. Every
  completion counts once here; verl takes mean and std over tokens, where long
  ones count more.

  Args:
    rewards: float[P, G], nan where there is none.
    epsilon: added to the std, in units of reward.

  Returns:
    float32[P, G]; all together sum to zero.

  Raises:
    ValueError: if there are fewer than two rewards in the batch.

  Source: Hu et al., arXiv 2501.03262 (REINFORCE++).
  """
  rewards = np.asarray(rewards, np.float64)
  flat = group_zscore(rewards.reshape(1, -1), epsilon=epsilon)
  return flat.reshape(rewards.shape)


@_REGISTRY.register('reinforce_pp_baseline')
def reinforce_pp_baseline(
    rewards: np.ndarray, *, epsilon: float = 1e-6) -> np.ndarray:
  """Centers within the group, then scales by the std of the whole batch.

  A_pg = (r_pg - mean_p) / (std of all (r - mean) + epsilon), std with one
  degree of freedom less than there are rewards. Every completion counts once
  here; verl takes the std over tokens, where long ones count more.

  Args:
    rewards: float[P, G], nan where there is none.
    epsilon: added to the std, in units of reward.

  Returns:
    float32[P, G]; every row sums to zero.

  Raises:
    ValueError: if G < 2.

  Source: Hu et al., arXiv 2501.03262 (REINFORCE++-Baseline).
  """
  centered, count = _center(rewards, 'reinforce_pp_baseline')
  freedom = max(int(count.sum()) - 1, 1)
  # The groups' means are zero already, so the batch's is.
  std = np.sqrt((centered ** 2).sum() / freedom)
  return (centered / (std + epsilon)).astype(np.float32)


@_REGISTRY.register('f_grpo')
def f_grpo(rewards: np.ndarray, *, gamma: float = 1.0) -> np.ndarray:
  """Scales centered rewards down where success is common.

  A_pg = (1 - c_p / k_p)^gamma (r_pg - mean_p), c successes of the k of the
  group that have a reward.

  Args:
    rewards: float[P, G], each 0, 1 or nan.
    gamma: exponent; 0 is group_mean. The default is ours.

  Returns:
    float32[P, G]; every row sums to zero.

  Raises:
    ValueError: if G < 2, or a reward is neither 0 nor 1.

  Source: the baseline F-GRPO of arXiv 2609.00444 (GAPO), second-hand, whose
  runs all do without the std; f_grpo_zscore has it.
  """
  return (_failure_rate(rewards, 'f_grpo') ** gamma
          * group_mean(rewards)).astype(np.float32)


@_REGISTRY.register('f_grpo_zscore')
def f_grpo_zscore(rewards: np.ndarray, *, gamma: float = 1.0,
                  epsilon: float = 1e-6) -> np.ndarray:
  """Scales GRPO's advantages down where success is common.

  A_pg = (1 - c_p / k_p)^gamma zscore_pg, as f_grpo on group_zscore.

  Args:
    rewards: float[P, G], each 0, 1 or nan.
    gamma: exponent; 0 is GRPO. The default is ours.
    epsilon: added to the std, in units of reward.

  Returns:
    float32[P, G]; every row sums to zero.

  Raises:
    ValueError: if G < 2, or a reward is neither 0 nor 1.

  Source: Plyusov et al., arXiv 2602.06717 (F-GRPO), from its abstract and a
  summary: a factor on the advantages of GRPO, which are z-scores.
  """
  return (_failure_rate(rewards, 'f_grpo_zscore') ** gamma
          * group_zscore(rewards, epsilon=epsilon)).astype(np.float32)


def _failure_rate(rewards, caller):
  """1 - c / k of each group, [P, 1]; 1 where nothing has a reward."""
  rewards = np.asarray(rewards, np.float64)
  odd = rewards[~np.isnan(rewards) & (rewards != 0) & (rewards != 1)]
  if odd.size:
    raise ValueError(
        f'{caller} counts successes and needs rewards of 0 or 1, got '
        f'{odd[0]}. Threshold the rewards, or use group_zscore.')
  _, count = _center(rewards, caller)
  return 1 - np.nansum(rewards, 1, keepdims=True) / np.maximum(count, 1)


def _center(rewards, caller):
  """float64 rewards minus their group's mean, 0 for nan; and the counts."""
  rewards = np.asarray(rewards, np.float64)
  if rewards.ndim != 2 or rewards.shape[1] < 2:
    raise ValueError(
        f'{caller} needs rewards of shape [P, G] with G >= 2, got '
        f'{rewards.shape}. Set config.rollout.group_size to 2 or more.')
  known = ~np.isnan(rewards)
  count = known.sum(1, keepdims=True)
  # From the group's first reward: equal floats then differ by exactly 0,
  # which their mean, being rounded, would not give.
  first = np.take_along_axis(rewards, known.argmax(1)[:, None], 1)
  shifted = np.where(known, rewards - first, 0.0)
  mean = shifted.sum(1, keepdims=True) / np.maximum(count, 1)
  return np.where(known, shifted - mean, 0.0), count
