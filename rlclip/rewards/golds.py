"""Finds the gold answers of a task that its reward cannot read."""
import time
from typing import Any, Mapping, NamedTuple, Sequence

from rlclip.rewards import pool

_CHUNK = 512


class BadGold(NamedTuple):
  """An example that cannot be scored.

  Attributes:
    id: of the example.
    gold: its gold answer.
    reason: 'unreadable', 'timeout' or 'error'.
  """
  id: str
  gold: str
  reason: str


def check_golds(
    task: Any, split: str, *, indices: Sequence[int] | None = None,
    num_workers: int = 2, deadline_s: float = 5.0) -> list[BadGold]:
  """Lists the gold answers that make every completion unscorable.

  The reward is asked for an empty completion: None means that the gold answer
  itself is at fault. Plain numbers pass at thousands a second, LaTeX at some
  hundreds.

  Args:
    task: a `data.tasks.Task`.
    split: one of its splits.
    indices: the examples to check; None checks all.
    num_workers: processes to use.
    deadline_s: for one gold answer.

  Returns:
    The bad ones, in the order of the split; empty where all are fine.
  """
  examples = task.examples(split)
  chosen = range(len(examples)) if indices is None else indices
  with pool.Pool(
      {task.reward: 1.0}, num_workers=num_workers,
      deadline_s=deadline_s) as workers:
    return check_examples(
        task, [examples[int(i)] for i in chosen], workers)[0]


def check_examples(
    task: Any, examples: Sequence[Mapping[str, Any]], workers: pool.Pool, *,
    budget_s: float = float('inf')) -> tuple[list[BadGold], int]:
  """The bad gold answers of some examples, and how many were tried.

  Args:
    task: theirs.
    examples: to try, in this order.
    workers: a pool of the task's reward alone.
    budget_s: seconds after which no more are tried.
  """
  found, tried, began = [], 0, time.monotonic()
  while tried < len(examples) and time.monotonic() - began < budget_s:
    some = examples[tried:tried + _CHUNK]
    tried += len(some)
    golds = [task.gold(example) for example in some]
    result = workers.score([
        pool.ScoreItem('', '', (), {**_fields(example), 'gold': gold})
        for example, gold in zip(some, golds)])
    # A setting of the pool may turn failures into 0.
    reasons = {failure.item: failure.kind for failure in result.failures}
    found += [
        BadGold(example['id'], gold, reasons.get(i, 'unreadable'))
        for i, (example, gold, reward) in enumerate(
            zip(some, golds, result.rewards)) if reward is None or i in reasons]
  return found, tried


def _fields(example):
  """What a reward gets: no field has the name of an argument."""
  return {key: value for key, value in example.items()
          if key not in ('prompt', 'completion', 'tokens')}
