"""Scores completions in a pool of processes that can be killed."""
import logging
import pickle
from typing import Any, Literal, Mapping, NamedTuple, Sequence

from rlclip.rewards import scheduler

_ON_FAILURE = ('none', 'zero', 'raise')
_LOGGED = 3  # failures a call that are logged in full
_LONGEST = 500  # characters of a text in the log


class ScoreItem(NamedTuple):
  """One completion to score.

  Attributes:
    prompt: its prompt's text.
    completion: its text.
    tokens: its ids.
    fields: the example's fields, given to reward functions as keywords.
  """
  prompt: str
  completion: str
  tokens: Sequence[int] = ()
  fields: Mapping[str, Any] = {}


class Failure(NamedTuple):
  """A reward function that did not come to a verdict.

  Attributes:
    item: which of the items.
    function: the reward's name.
    kind: 'timeout' or 'error'.
    message: the end of the traceback, of an error.
  """
  item: int
  function: str
  kind: str
  message: str


class ScoreResult(NamedTuple):
  """Rewards in the order of the items.

  Attributes:
    rewards: weighted sums; None where any reward with a weight is None.
    by_function: each reward function's own values, unweighted.
    failures: what failed, in the order of the items.
  """
  rewards: list[float | None]
  by_function: dict[str, list[float | None]]
  failures: tuple[Failure, ...]

  @property
  def num_timeouts(self) -> int:
    return sum(failure.kind == 'timeout' for failure in self.failures)

  @property
  def num_errors(self) -> int:
    return sum(failure.kind == 'error' for failure in self.failures)


class Pool:
  """Reward functions with weights, run in processes with a deadline.

  The processes import the reward functions and no jax. A worker that hangs or
  dies is killed and replaced; only the answer it was at is lost. `score` may
  be called from several threads at a time. Nothing outlives this process, even
  where it is killed.
  """

  def __init__(
      self, weights: Mapping[str, float], *, num_workers: int = 2,
      deadline_s: float = 5.0, batch_deadline_s: float = float('inf'),
      on_failure: Literal['none', 'zero', 'raise'] = 'none',
      memory_bytes: int = 2 << 30):
    """Starts the processes, which takes about a second.

    Args:
      weights: from reward names (see `rewards.get`) to their weights. A
        weight of 0 has a reward computed and reported only.
      num_workers: answers scored at a time.
      deadline_s: for one reward function on one answer, seconds of wall time.
      batch_deadline_s: for a call of `score`.
      on_failure: what a timeout or an error is worth: None or 0; or 'raise',
        which has `score` raise where a reward function raised or its process
        died (a timeout is None). Failures are logged in any case.
      memory_bytes: of address space, for each worker.

    Raises:
      ValueError: an argument out of range, or an unknown reward.
    """
    if not weights or num_workers < 1 or deadline_s <= 0 or (
        batch_deadline_s <= 0):
      raise ValueError(
          'Pool needs at least one reward, one worker and a deadline above 0, '
          f'got {dict(weights)}, {num_workers}, {deadline_s} and '
          f'{batch_deadline_s}.')
    if on_failure not in _ON_FAILURE:
      raise ValueError(
          f'Expected on_failure to be one of {_ON_FAILURE}, got '
          f'{on_failure!r}.')
    self._weights = dict(weights)
    self._batch_deadline_s = batch_deadline_s
    self._failed = 0.0 if on_failure == 'zero' else None
    self._raises = on_failure == 'raise'
    self._scheduler = scheduler.Scheduler(
        tuple(weights), num_workers=num_workers, deadline_s=deadline_s,
        memory_bytes=memory_bytes)

  def score(self, items: Sequence[ScoreItem]) -> ScoreResult:
    """Scores items with every reward function.

    Raises:
      RuntimeError: the pool is closed, or a reward function failed and the
        setting is to raise.
    """
    payloads = [
        pickle.dumps((i.prompt, i.completion, _plain(i.tokens), dict(i.fields)))
        for i in items]
    names = tuple(self._weights)
    units = [(f, data) for data in payloads for f in range(len(names))]
    outcomes = self._scheduler.run(
        units, batch_deadline_s=self._batch_deadline_s)
    by_function = {
        name: [
            self._failed if o.failure else o.value
            for o in outcomes[f::len(names)]]
        for f, name in enumerate(names)}
    failures = tuple(
        Failure(i // len(names), names[i % len(names)], o.failure, o.message)
        for i, o in enumerate(outcomes) if o.failure)
    _log(failures, items)
    errors = [failure for failure in failures if failure.kind == 'error']
    if self._raises and errors:
      raise RuntimeError(
          f'{len(errors)} rewards failed. Set config.reward.on_failure to '
          f'none or zero to go on. {_told(errors[0], items)}')
    rewards = [self._total(values) for values in zip(*by_function.values())]
    return ScoreResult(rewards, by_function, failures)

  def close(self) -> None:
    """Ends the processes. The pool cannot be used again."""
    self._scheduler.close()

  def __enter__(self) -> 'Pool':
    return self

  def __exit__(self, *_) -> None:
    self.close()

  def _total(self, values: Sequence[float | None]) -> float | None:
    counted = [
        (weight, value)
        for weight, value in zip(self._weights.values(), values) if weight]
    if any(value is None for _, value in counted):
      return None
    return float(sum(weight * value for weight, value in counted))


def _plain(tokens: Sequence[int]) -> list[int]:
  """Python's ints: workers need no numpy to read them."""
  return tokens.tolist() if hasattr(tokens, 'tolist') else list(tokens)


def _log(failures: Sequence[Failure], items: Sequence[ScoreItem]) -> None:
  for failure in failures[:_LOGGED]:
    logging.warning('%s', _told(failure, items))
  if len(failures) > _LOGGED:
    logging.warning(
        '%d more rewards failed in the same batch.', len(failures) - _LOGGED)


def _told(failure: Failure, items: Sequence[ScoreItem]) -> str:
  """Function, sample and exception of a failure."""
  item = items[failure.item]
  fields = {key: _short(str(value)) for key, value in item.fields.items()}
  return (
      f'Reward {failure.function!r} came to no verdict ({failure.kind}) on '
      f'item {failure.item}.\nPrompt: {_short(item.prompt)!r}\nCompletion: '
      f'{_short(item.completion)!r}\nFields: {fields}\n{failure.message}')


def _short(text: str) -> str:
  """The start and the end of a text."""
  if len(text) <= _LONGEST:
    return text
  half = _LONGEST // 2
  return f'{text[:half]} [...] {text[-half:]}'
