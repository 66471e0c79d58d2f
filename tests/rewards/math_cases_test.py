"""The math reward against the file of cases, run through the pool."""
import collections
import json
import os
import pathlib

import pytest

from rlclip.rewards.pool import Pool, ScoreItem

_SHARED = pathlib.Path(os.environ.get(
    'RLCLIP_DATA', pathlib.Path(__file__).parents[3] / 'shared' / 'data'))
_CASES = _SHARED.parent / 'cases' / 'answer_equivalence.jsonl'


@pytest.fixture(scope='module', name='verdicts')
def fixture_verdicts():
  """(case, verdict) of all cases; a verdict is True, False or None."""
  if not _CASES.exists():
    pytest.skip(f'needs {_CASES}')
  cases = [json.loads(line) for line in _CASES.open(encoding='utf-8')]
  # Long, since tests share their cores: it is not the speed that is tested.
  with Pool({'math': 1.0}, num_workers=2, deadline_s=30.0) as pool:
    result = pool.score([
        ScoreItem('', case['prediction'], (), {'gold': case['gold']})
        for case in cases])
  assert result.failures == ()
  return [(case, None if reward is None else bool(reward))
          for case, reward in zip(cases, result.rewards)]


def test_99_percent_are_right(verdicts):
  wrong = [case['id'] for case, got in verdicts if got is not case['expected']]
  assert len(wrong) <= 0.01 * len(verdicts), wrong


def test_95_percent_of_every_kind_are_right(verdicts):
  right = collections.defaultdict(list)
  for case, got in verdicts:
    right[case['kind']].append(got is case['expected'])
  assert len(right) == 27
  low = {kind: sum(r) / len(r) for kind, r in right.items()
         if sum(r) < 0.95 * len(r)}
  assert not low


def test_no_wrong_answer_is_accepted(verdicts):
  # Stricter than to accept none that math-verify refuses.
  accepted = [case['id'] for case, got in verdicts
              if got and not case['expected']]
  assert not accepted


def test_no_reference_is_unreadable(verdicts):
  assert not [case['id'] for case, got in verdicts if got is None]
