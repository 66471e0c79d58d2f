"""pass@k, maj@k, mean@k and 95% intervals, from counts of right answers.

The unit of chance is the problem: samples of one problem are not independent,
so intervals resample problems, never samples.
"""
import dataclasses
import math
from typing import Sequence

import numpy as np

_RESAMPLES = 10_000
_Z95 = 1.959963984540054  # the normal distribution's 97.5% point
_MOST_VOTES = 1000  # binomials of more leave float64


@dataclasses.dataclass(frozen=True)
class Estimate:
  """A mean over problems with its 95% interval.

  Attributes:
    value: the estimate.
    low: lower end of the interval.
    high: upper end of the interval.
    method: how the interval was made: 'wilson' or 'bootstrap'; 'none' where
      one problem gives none, and both ends are the value.
    num_problems: problems behind it.
  """
  value: float
  low: float
  high: float
  method: str
  num_problems: int

  def __str__(self) -> str:
    digits = 3 if self.value <= 1 else 1  # a share, or a number of tokens
    value, low, high = (
        f'{x:.{digits}f}' for x in (self.value, self.low, self.high))
    return value if self.method == 'none' else f'{value} [{low}, {high}]'


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
  """Probability that k of the n samples of a problem hold a right one.

  1 - C(n - c, k) / C(n, k), as a product that neither overflows nor cancels:
  1 - prod_{i = n-c+1..n} (1 - k / i). Unbiased for the chance that k fresh
  samples hold a right one.

  Args:
    num_samples: n.
    num_correct: c.
    k: at most n.

  Returns:
    A float in [0, 1].

  Raises:
    ValueError: not 1 <= k <= n, or not 0 <= c <= n.

  Source: Chen et al., "Evaluating Large Language Models Trained on Code", 2021.
  """
  if not 1 <= k <= num_samples or not 0 <= num_correct <= num_samples:
    raise ValueError(
        'pass_at_k needs 1 <= k <= num_samples and 0 <= num_correct <= '
        f'num_samples, got num_samples={num_samples}, '
        f'num_correct={num_correct}, k={k}.')
  if num_samples - num_correct < k:
    return 1.0
  return 1.0 - math.prod(
      1.0 - k / i
      for i in range(num_samples - num_correct + 1, num_samples + 1))


def maj_at_every_k(
    votes: Sequence[int], credits: Sequence[float], num_abstaining: int
) -> np.ndarray:
  """Expected credit of the majority among k of a problem's n samples, all k.

  The k samples are drawn without replacement, as for pass@k, and the answer
  with most votes among them is taken; of several with as many, each with the
  same chance. The expectation is exact, over all C(n, k) draws and all ties:
  the answer i wins with x votes in

    C(v_i, x) sum_t [z^(k-x) y^t] (1 + z)^a prod_{j != i} (
        sum_{s < x} C(v_j, s) z^s + C(v_j, x) z^x y) / (t + 1)

  draws, t counting the answers that tie with it.

  Args:
    votes: samples that gave each of the problem's distinct answers.
    credits: in [0, 1], what each of these answers is worth: 1 where right.
    num_abstaining: samples without an answer (a). They are drawn too, and vote
      for nothing; where no sample drawn has an answer, the credit is 0.

  Returns:
    float64[n], n = sum(votes) + num_abstaining; index k - 1 is maj@k.

  Raises:
    ValueError: no samples, more than 1000, or counts that make no sense.

  Source: the vote is that of Wang et al., arXiv 2203.11171 (self-consistency);
  the sum is derived here.
  """
  size = sum(votes) + num_abstaining
  if (len(votes) != len(credits) or min([num_abstaining, *votes], default=0) < 0
      or not 1 <= size <= _MOST_VOTES):
    raise ValueError(
        f'maj_at_every_k needs 1 to {_MOST_VOTES} samples and a credit for '
        f'each answer, got votes={list(votes)}, credits={list(credits)}, '
        f'num_abstaining={num_abstaining}.')
  draws = np.zeros(size + 1)
  for i, (own, credit) in enumerate(zip(votes, credits)):
    others = [v for j, v in enumerate(votes) if j != i and v]
    for x in range(1, own + 1) if credit else ():
      rest = _rest_of_the_draws(others, num_abstaining, x)
      draws[x:x + len(rest)] += credit * math.comb(own, x) * rest
  return np.array([draws[k] / math.comb(size, k) for k in range(1, size + 1)])


def mean_at_k(scores: Sequence[Sequence[float]]) -> Estimate:
  """Mean over problems of the mean score of each problem's k samples.

  Args:
    scores: [problems][k], each in [0, 1]; k may differ between problems.

  Returns:
    The mean with its 95% interval.
  """
  if not scores or not all(len(row) for row in scores):
    raise ValueError(
        f'mean_at_k needs at least one score for each problem, got '
        f'{[len(row) for row in scores]} scores for {len(scores)} problems.')
  return confidence_interval(
      [float(np.mean(row)) for row in scores],
      one_sample_each=all(len(row) == 1 for row in scores))


def mean_pass_at_k(
    num_samples: Sequence[int], num_correct: Sequence[int], k: int) -> Estimate:
  """Mean of pass@k over problems, with its 95% interval."""
  values = [pass_at_k(n, c, k) for n, c in zip(num_samples, num_correct)]
  return confidence_interval(
      values, one_sample_each=all(n == 1 for n in num_samples))


def confidence_interval(
    values: Sequence[float], *, one_sample_each: bool = False,
    seed: int = 0) -> Estimate:
  """Mean of one number in [0, 1] a problem, with a 95% interval.

  Wilson's score interval where each number is the 0 or 1 of one sample; else
  the percentile bootstrap over problems. Where all numbers are equal, the
  bootstrap would give an interval of no width, so Wilson's is taken, with one
  observation a problem.

  Args:
    values: one number a problem.
    one_sample_each: whether each is a single sample's 0 or 1.
    seed: of the bootstrap.

  Returns:
    The estimate.

  Raises:
    ValueError: no values, or values outside [0, 1].
  """
  array = np.asarray(values, np.float64)
  if array.ndim != 1 or not len(array) or not np.all(
      (array >= 0) & (array <= 1)):
    raise ValueError(
        'confidence_interval needs a number in [0, 1] for each of at least 1 '
        f'problem, got {values!r}.')
  mean, count = float(array.mean()), len(array)
  binary = one_sample_each and bool(np.all((array == 0) | (array == 1)))
  if binary or np.ptp(array) == 0:
    return Estimate(mean, *_wilson(mean, count), 'wilson', count)
  return Estimate(mean, *_bootstrap(array, seed), 'bootstrap', count)


def mean_quantity(values: Sequence[float], *, seed: int = 0) -> Estimate:
  """Mean of one number of any size a problem, with a bootstrap 95% interval.

  Args:
    values: one number a problem, such as its mean length in tokens.
    seed: of the bootstrap.

  Raises:
    ValueError: no values, or values that are not finite.
  """
  array = np.asarray(values, np.float64)
  if array.ndim != 1 or not len(array) or not np.isfinite(array).all():
    raise ValueError(
        'mean_quantity needs a finite number for each of at least 1 problem, '
        f'got {values!r}.')
  mean = float(array.mean())
  if len(array) == 1:
    return Estimate(mean, mean, mean, 'none', 1)
  return Estimate(mean, *_bootstrap(array, seed), 'bootstrap', len(array))


def paired_difference(
    before: Sequence[float], after: Sequence[float], *,
    seed: int = 0) -> Estimate:
  """Mean of after - before over the same problems, with a 95% interval.

  Pairing removes how hard the problems are, so the interval is narrower than
  that of two separate evaluations.

  Args:
    before: one number a problem.
    after: the same problems in the same order.
    seed: of the bootstrap over problems.

  Returns:
    The estimate; its interval is a percentile bootstrap.

  Raises:
    ValueError: lengths that differ, or nothing.
  """
  if len(before) != len(after) or not len(before):
    raise ValueError(
        'paired_difference needs the same problems twice, got '
        f'{len(before)} and {len(after)} values.')
  difference = np.asarray(after, np.float64) - np.asarray(before, np.float64)
  return Estimate(
      float(difference.mean()), *_bootstrap(difference, seed), 'bootstrap',
      len(difference))


def _rest_of_the_draws(
    others: Sequence[int], num_abstaining: int, x: int) -> np.ndarray:
  """Ways to draw m of the others with none above x votes, each tie shared.

  Args:
    others: votes of the other answers.
    num_abstaining: samples that vote for nothing.
    x: votes of the answer that wins or ties.

  Returns:
    float64[m], sums over the number of ties t of ways / (t + 1).
  """
  total = sum(others) + num_abstaining
  ties = sum(v >= x for v in others)
  ways = np.zeros((total + 1, ties + 1))
  ways[:num_abstaining + 1, 0] = [
      math.comb(num_abstaining, s) for s in range(num_abstaining + 1)]
  for v in others:
    new = np.zeros_like(ways)
    for s in range(min(v + 1, x)):
      new[s:] += math.comb(v, s) * ways[:total + 1 - s]
    if v >= x:
      new[x:, 1:] += math.comb(v, x) * ways[:total + 1 - x, :-1]
    ways = new
  return ways @ (1 / np.arange(1, ties + 2))


def _wilson(mean: float, count: int) -> tuple[float, float]:
  """Wilson's score interval of a proportion (Wilson, 1927)."""
  square = _Z95**2 / count
  center = (mean + square / 2) / (1 + square)
  half = math.sqrt(square * (mean * (1 - mean) + square / 4)) / (1 + square)
  return max(center - half, 0.0), min(center + half, 1.0)


def _bootstrap(values: np.ndarray, seed: int) -> tuple[float, float]:
  """Percentile bootstrap of the mean, in blocks that bound the memory."""
  generator = np.random.default_rng(seed)
  block = max(1, 2_000_000 // len(values))
  means = []
  for start in range(0, _RESAMPLES, block):
    size = (min(block, _RESAMPLES - start), len(values))
    means.append(values[generator.integers(len(values), size=size)].mean(1))
  low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
  return float(low), float(high)
