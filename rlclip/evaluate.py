"""Evaluation with any sampler: answers, and what they say of a policy.

  pass@k     at least one of k samples is right; pass@1 is the accuracy
  mean@n     share of a problem's n samples that are right: pass@1 by its name
             in other papers
  maj@k      the answer that most of k samples give is right
  truncated  share of completions cut at the longest length
  format     share that states a final answer in a form its reward reads
  tokens     a problem: of its n completions together, stop tokens included

`estimates` has the formulas. All weigh every problem the same.
"""
import collections
import fractions
import json
import os
import re
from typing import Any, Callable, NamedTuple, Sequence

import numpy as np

from rlclip import rollouts, workdir
# What is asked of an evaluation has its names here too.
from rlclip.estimates import (confidence_interval, Estimate, maj_at_every_k,
                              mean_at_k, mean_pass_at_k, mean_quantity,
                              paired_difference, pass_at_k)
from rlclip.types import Prompt, Sampler, SamplingSpec

__all__ = [
    'Answer', 'Estimate', 'at_every_k', 'confidence_interval',
    'maj_at_every_k', 'mean_at_k', 'mean_pass_at_k', 'mean_quantity',
    'paired_difference', 'pass_at_k', 'read', 'run', 'summary', 'write']

# Training counts its requests from 0; these have ids of their own. They are
# the same at every evaluation: common random numbers for before and after.
_FIRST_ID = 1 << 31
# Characters from a completion's end in which its answer is looked for.
_TAIL = 100_000
_NUMBER = re.compile(r'[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})')
_WITHOUT_MEANING = re.compile(r'[\s$]|\\left|\\right|\\[,!;]|,(?=[0-9]{3}\b)')


class Answer(NamedTuple):
  """One completion to one problem; a line of eval/<task>/<step>.jsonl.

  Attributes:
    id: the problem's.
    prompt: its text, chat template applied.
    completion: the model's text.
    gold: the right answer.
    score: of the reward; None where it could not be scored.
    finish: 'stop', 'length' or 'error'.
    num_tokens: of the completion, its stop token included.
    extracted: the final answer read out of the completion; None where there
      is none, or the reward has no such reading.
    format: whether there was one; None where the reward has no such reading.
  """
  id: str
  prompt: str
  completion: str
  gold: str
  score: float | None
  finish: str
  num_tokens: int
  extracted: str | None = None
  format: bool | None = None

  @property
  def is_right(self) -> bool:
    """A score of 1 or more; what could not be scored is not right."""
    return self.score is not None and self.score >= 1

  @property
  def verdict(self) -> str:
    if self.score is None:
      return 'unscored'
    return 'right' if self.is_right else 'wrong'


def run(sampler: Sampler, pool, decode, prompts: Sequence[Prompt],
        spec: SamplingSpec, *, num_samples: int, phase,
        extract: Callable[..., str | None] | None = None,
        problems_at_once: int = 0,
        show: Callable[[int, int], None] | None = None) -> list[Answer]:
  """Draws and scores `num_samples` answers a problem.

  Reads the sampler's weights and nothing else of a run: the requests have ids
  of their own, so that no draw of training depends on what is evaluated.

  Args:
    sampler: any, its weights loaded.
    pool: the verifiers.
    decode: ids -> text.
    prompts: the problems.
    spec: how to draw.
    num_samples: answers a problem.
    phase: `with phase(name):` times what stands in it.
    extract: (completion, **fields) -> its final answer, or None; see
      `rewards.extraction`.
    problems_at_once: that the sampler is asked for in one call; 0 for all. The
      answers are the same, since a draw knows its request alone. Slots stand
      empty at a call's end, so few at once are slow.
    show: called after each of these calls with the number of problems done and
      of tokens drawn so far.

  Returns:
    The answers, those of a problem together, in the order of the problems.
  """
  answers: list[Answer] = []
  at_once = problems_at_once or max(len(prompts), 1)
  for first in range(0, len(prompts), at_once):
    collected = rollouts.collect(
        sampler, pool, decode, prompts[first:first + at_once], spec,
        group_size=num_samples, first_id=_FIRST_ID + first * num_samples,
        phase=phase)
    answers += _answers(collected, extract)
    if show:
      show(len(answers) // num_samples, sum(a.num_tokens for a in answers))
  return answers


def summary(answers: Sequence[Answer]) -> dict[str, Estimate]:
  """Every measure with its interval, pass@k and maj@k at k = 1, 2, 4, ... n.

  With one sample a problem: pass@1, truncated, format and tokens. Where
  problems differ in their number of samples, n is the smallest.
  """
  rows = list(_by_problem(answers).values())
  size = min(map(len, rows))
  mean = mean_at_k([[a.is_right for a in row] for row in rows])
  measures = {'pass@1': mean}
  if size > 1:
    measures[f'mean@{size}'] = mean
    ks = sorted({*(1 << i for i in range(size.bit_length())), size})
    at_k = at_every_k(answers, ks)
    measures |= {f'{name}@{k}': value for name, values in at_k.items()
                 for k, value in values.items() if k > 1}
  one_each = all(len(row) == 1 for row in rows)
  share = lambda of: confidence_interval(
      [float(np.mean([of(a) for a in row])) for row in rows],
      one_sample_each=one_each)
  measures['truncated'] = share(lambda a: a.finish == 'length')
  if all(a.format is not None for a in answers):
    measures['format'] = share(lambda a: a.format)
  measures['tokens'] = mean_quantity(
      [sum(a.num_tokens for a in row) for row in rows])
  return measures


def at_every_k(
    answers: Sequence[Answer], ks: Sequence[int] | None = None
) -> dict[str, dict[int, Estimate]]:
  """pass@k and, where answers were read out of completions, maj@k.

  Args:
    answers: of any number of problems.
    ks: which k; None takes all up to the fewest samples of a problem.

  Returns:
    {'pass': {k: estimate}, 'maj': {k: estimate}}, 'maj' where there is one.
  """
  rows = list(_by_problem(answers).values())
  ks = range(1, min(map(len, rows)) + 1) if ks is None else ks
  one_each = all(len(row) == 1 for row in rows)
  counts = [len(row) for row in rows]
  right = [sum(a.is_right for a in row) for row in rows]
  found = {'pass': {k: mean_pass_at_k(counts, right, k) for k in ks}}
  if all(a.format is not None for a in answers):
    majorities = [maj_at_every_k(*_votes(row)) for row in rows]
    found['maj'] = {
        k: confidence_interval(
            [min(float(m[k - 1]), 1.0) for m in majorities],
            one_sample_each=one_each)
        for k in ks}
  return found


def write(path: str | os.PathLike, answers: Sequence[Answer]) -> None:
  """Writes one JSON object a line, its verdict too, whole or not at all."""
  lines = [json.dumps({**a._asdict(), 'verdict': a.verdict}, ensure_ascii=False)
           for a in answers]
  workdir.write_atomically(path, '\n'.join(lines) + '\n')


def read(path: str | os.PathLike) -> list[Answer]:
  """Reads what `write` wrote."""
  with open(path, encoding='utf-8') as file:
    rows = [json.loads(line) for line in file]
  return [Answer(**{k: v for k, v in row.items() if k in Answer._fields})
          for row in rows]


def _answers(collected: rollouts.Collected, extract) -> list[Answer]:
  """In the order of the groups; see `run`."""
  answers = []
  for group in collected.groups:
    fields = group.prompt.fields
    for completion, text, reward in zip(
        group.completions, group.texts, group.rewards, strict=True):
      extracted = extract(text[-_TAIL:], **fields) if extract else None
      answers.append(Answer(
          group.prompt.id, group.prompt.text, text, str(fields['gold']),
          None if reward != reward else float(reward), completion.finish,
          len(completion.tokens), extracted,
          extracted is not None if extract else None))
  return answers


def _by_problem(answers: Sequence[Answer]) -> dict[str, list[Answer]]:
  rows: dict[str, list[Answer]] = {}
  for answer in answers:
    rows.setdefault(answer.id, []).append(answer)
  return rows


def _votes(row: Sequence[Answer]) -> tuple[list[int], list[float], int]:
  """Votes and credits of a problem's distinct answers, and who abstains.

  Answers vote together where they are written alike (`_normal`), and those
  scored right do in any case: each equals the gold. Wrong answers that are
  equal and written differently stay apart, which can only help the right one.
  The credit is the share of the voters that are right.
  """
  right = {_normal(a.extracted) for a in row if a.is_right}
  classes: dict[Any, list[bool]] = collections.defaultdict(list)
  abstaining = 0
  for a in row:
    key = _normal(a.extracted)
    if key is None and not a.is_right:
      abstaining += 1
    else:
      classes['right' if a.is_right or key in right else (key,)].append(
          a.is_right)
  return ([len(voters) for voters in classes.values()],
          [float(np.mean(voters)) for voters in classes.values()], abstaining)


def _normal(text: str | None) -> str | fractions.Fraction | None:
  """What answers written alike have in common: a plain number's value, or
  the text without spaces, dollar signs, thousands commas and case."""
  if text is None:
    return None
  text = _WITHOUT_MEANING.sub('', text).removesuffix('.')
  text = re.sub(r'\\[dt]frac', r'\\frac', text)
  return (fractions.Fraction(text) if _NUMBER.fullmatch(text)
          else text.casefold())
