"""Evaluation with any sampler: pass@k, mean@k and their 95% intervals.

The unit of chance is the problem: samples of one problem are not independent,
so intervals resample problems, never samples.
"""
import dataclasses
import json
import math
import os
from typing import NamedTuple, Sequence

import numpy as np

from rlclip import rollouts, workdir
from rlclip.types import Prompt, Sampler, SamplingSpec

# Training counts its requests from 0; these have ids of their own. They are
# the same at every evaluation: common random numbers for before and after.
_FIRST_ID = 1 << 31
_RESAMPLES = 10_000
_Z95 = 1.959963984540054  # the normal distribution's 97.5% point


@dataclasses.dataclass(frozen=True)
class Estimate:
  """A mean over problems with its 95% interval.

  Attributes:
    value: the estimate.
    low: lower end of the interval.
    high: upper end of the interval.
    method: how the interval was made: 'wilson' or 'bootstrap'.
    num_problems: problems behind it.
  """
  value: float
  low: float
  high: float
  method: str
  num_problems: int

  def __str__(self) -> str:
    return f'{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]'


class Answer(NamedTuple):
  """One completion to one problem; a line of eval/<task>/<step>.jsonl."""
  id: str
  prompt: str
  completion: str
  gold: str
  score: float | None  # None where it could not be scored
  finish: str
  num_tokens: int


def run(sampler: Sampler, pool, decode, prompts: Sequence[Prompt],
        spec: SamplingSpec, *, num_samples: int, phase) -> list[Answer]:
  """Draws and scores `num_samples` answers a problem.

  Args:
    sampler: any, its weights loaded.
    pool: the verifiers.
    decode: ids -> text.
    prompts: the problems.
    spec: how to draw.
    num_samples: answers a problem.
    phase: `with phase(name):` times what stands in it.

  Returns:
    The answers, those of a problem together, in the order of the problems.
  """
  collected = rollouts.collect(
      sampler, pool, decode, prompts, spec, group_size=num_samples,
      first_id=_FIRST_ID, phase=phase)
  return [
      Answer(group.prompt.id, group.prompt.text, text,
             str(group.prompt.fields['gold']),
             None if reward != reward else float(reward),
             completion.finish, len(completion.tokens))
      for group in collected.groups
      for completion, text, reward in zip(
          group.completions, group.texts, group.rewards, strict=True)]


def summary(answers: Sequence[Answer]) -> dict[str, Estimate]:
  """pass@1, and with n > 1 samples a problem also mean@n and pass@n.

  An answer is right where its score is 1 or more; one that could not be
  scored is wrong.
  """
  scores: dict[str, list[bool]] = {}
  for answer in answers:
    right = answer.score is not None and answer.score >= 1
    scores.setdefault(answer.id, []).append(right)
  rows = list(scores.values())
  mean = mean_at_k(rows)
  counts = [len(row) for row in rows]
  if max(counts) == 1:
    return {'pass@1': mean}
  k = min(counts)
  at_k = mean_pass_at_k(counts, [sum(row) for row in rows], k)
  return {'pass@1': mean, f'mean@{k}': mean, f'pass@{k}': at_k}


def write(path: str | os.PathLike, answers: Sequence[Answer]) -> None:
  """Writes one JSON object a line, whole or not at all."""
  lines = [json.dumps(answer._asdict(), ensure_ascii=False)
           for answer in answers]
  workdir.write_atomically(path, '\n'.join(lines) + '\n')


def read(path: str | os.PathLike) -> list[Answer]:
  """Reads what `write` wrote."""
  with open(path, encoding='utf-8') as file:
    return [Answer(**json.loads(line)) for line in file]


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
