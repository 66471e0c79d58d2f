"""Runs a sampler over a test set, and keeps every answer."""
import json
import os
from typing import NamedTuple, Sequence

from rlclip import evaluate, rollouts, workdir
from rlclip.types import Prompt, Sampler, SamplingSpec

# Training counts its requests from 0; these have ids of their own. They are
# the same at every evaluation: common random numbers for before and after.
_FIRST_ID = 1 << 31


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


def summary(answers: Sequence[Answer]) -> dict[str, evaluate.Estimate]:
  """pass@1, and with n > 1 samples a problem also mean@n and pass@n.

  An answer is right where its score is 1 or more; one that could not be
  scored is wrong.
  """
  scores: dict[str, list[bool]] = {}
  for answer in answers:
    right = answer.score is not None and answer.score >= 1
    scores.setdefault(answer.id, []).append(right)
  rows = list(scores.values())
  mean = evaluate.mean_at_k(rows)
  counts = [len(row) for row in rows]
  if max(counts) == 1:
    return {'pass@1': mean}
  k = min(counts)
  at_k = evaluate.mean_pass_at_k(counts, [sum(row) for row in rows], k)
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
