"""Finds the gold answers of a task that its reward cannot read."""
from typing import Any, NamedTuple, Sequence

from rlclip.rewards import pool


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
  picked = [examples[int(i)] for i in chosen]
  golds = [task.gold(example) for example in picked]
  items = [
      pool.ScoreItem('', '', (), {**example, 'gold': gold})
      for example, gold in zip(picked, golds)]
  with pool.Pool(
      {task.reward: 1.0}, num_workers=num_workers,
      deadline_s=deadline_s) as workers:
    result = workers.score(items)
  reasons = {failure.item: failure.kind for failure in result.failures}
  return [
      BadGold(example['id'], gold, reasons.get(i, 'unreadable'))
      for i, (example, gold, reward) in enumerate(
          zip(picked, golds, result.rewards)) if reward is None]
