"""Rewards in a run of several processes: each scores a share, all get all.

A verdict may hang on a deadline, so that two machines can come to two. Scored
once and given to everyone, it is the same in all processes, whatever it is.
"""
from typing import Callable, Sequence

from rlclip.rewards.pool import Failure, Pool, ScoreItem, ScoreResult


class SharedPool:
  """What `Pool.score` is, over the pools of all processes."""

  def __init__(self, own: Pool, index: int, count: int,
               exchange: Callable[[ScoreResult], list[ScoreResult]]):
    """Wraps this process's pool, which others may use as well.

    Args:
      own: of the same rewards and settings in every process.
      index: of this process.
      count: of processes.
      exchange: one value a process -> those of all, in their order.
    """
    self._own, self._index, self._count = own, index, count
    self._exchange = exchange

  def score(self, items: Sequence[ScoreItem]) -> ScoreResult:
    """Scores items that are the same in every process; see `Pool.score`.

    Every count-th is this process's: answers that take long stand together.
    """
    shares = self._exchange(self._own.score(items[self._index::self._count]))
    rewards = [None] * len(items)
    by_function = {name: list(rewards) for name in shares[0].by_function}
    failures: list[Failure] = []
    for first, share in enumerate(shares):
      rewards[first::self._count] = share.rewards
      for name, values in share.by_function.items():
        by_function[name][first::self._count] = values
      failures += [failure._replace(item=first + self._count * failure.item)
                   for failure in share.failures]
    return ScoreResult(rewards, by_function, tuple(sorted(failures)))
