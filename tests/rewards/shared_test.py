"""Verdicts of several processes come together in the order of the items."""
import threading

import pytest

from rlclip.rewards import pool, shared


class Scripted:
  """A pool whose verdicts are the completions themselves; 'x' fails."""

  def __init__(self):
    self.asked = []

  def score(self, items):
    self.asked += [item.completion for item in items]
    values = [None if item.completion == 'x' else float(item.completion)
              for item in items]
    failures = tuple(
        pool.Failure(i, 'echo', 'timeout', '')
        for i, value in enumerate(values) if value is None)
    return pool.ScoreResult(
        values, {'echo': values, 'other': [0.5] * len(values)}, failures)


def score(completions, count):
  """What each of so many processes gets, and what its pool was asked."""
  given, all_in = [None] * count, threading.Barrier(count)
  results, pools = [None] * count, [Scripted() for _ in range(count)]

  def run(index):
    def exchange(value):
      given[index] = value
      all_in.wait()
      return list(given)
    results[index] = shared.SharedPool(
        pools[index], index, count, exchange).score(
            [pool.ScoreItem('', text) for text in completions])

  threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  return results, [each.asked for each in pools]


@pytest.mark.parametrize('count', [1, 2, 3, 8])
def test_all_get_what_one_would_have(count):
  completions = ['0', '1', 'x', '3', '4', '5', 'x']
  results, asked = score(completions, count)
  values = [0.0, 1.0, None, 3.0, 4.0, 5.0, None]
  for result in results:
    assert result.rewards == values
    assert result.by_function == {'echo': values, 'other': [0.5] * 7}
    assert [failure.item for failure in result.failures] == [2, 6]
    assert result.num_timeouts == 2
  # Each was scored once.
  assert sorted(text for each in asked for text in each) == sorted(completions)
  assert asked[0] == completions[::count]
