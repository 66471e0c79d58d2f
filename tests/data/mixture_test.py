"""Mixtures: shares, order, and whose example is whose."""
import collections
import random

import numpy as np
import pytest

from rlclip import rewards
from rlclip.data import order, tasks

SUMS = {'num_operands': 2, 'num_digits': 1, 'num_test': 30}
PARTS = {
    'small': {'task': 'arithmetic', 'weight': 3, 'num_train': 70, **SUMS},
    'large': {'task': 'arithmetic', 'weight': 1, 'num_train': 5000, **SUMS},
    'arithmetic_words': 4.0}


def owners(indices):
  """Part of each index: 70 rows, 5000 rows, the rest."""
  return np.searchsorted([70, 5070], indices, side='right')


def test_every_thousand_places_have_the_weights_shares():
  task = tasks.get('mixture', parts=PARTS)
  for first in (0, 7000):
    found = owners(tasks.indices_at(task, first, 1000, seed=3))
    np.testing.assert_array_equal(np.bincount(found), [375, 125, 500])
  # Well mixed within: 4 standard deviations of 37 draws of 100 are 19.
  near = owners(tasks.indices_at(task, 0, 100, seed=3))
  assert abs(np.sum(near == 0) - 37.5) < 19


def test_a_place_says_all_and_seeds_differ():
  task = tasks.get('mixture', parts=PARTS)
  line = tasks.indices_at(task, 0, 2500, seed=1)
  for first, count in ((0, 1), (990, 20), (1999, 501)):
    np.testing.assert_array_equal(
        tasks.indices_at(task, first, count, seed=1),
        line[first:first + count])
  assert np.any(line != tasks.indices_at(task, 0, 2500, seed=2))


def test_a_part_is_met_in_its_own_order_epoch_after_epoch():
  task = tasks.get('mixture', parts=PARTS)
  line = tasks.indices_at(task, 0, 3000, seed=1)
  for part, start, size in ((0, 0, 70), (1, 70, 5000)):
    mine = line[owners(line) == part] - start
    np.testing.assert_array_equal(
        mine, order.indices_at(0, len(mine), size, seed=1))
  counts = collections.Counter(line[owners(line) == 0].tolist())
  assert len(counts) == 70 and set(counts.values()) <= {16, 17}  # 1125 / 70


def test_examples_are_asked_and_scored_as_their_parts_are():
  task = tasks.get('mixture', parts=PARTS)
  examples = task.examples('train')
  assert len(examples) == 5070 + (1 << 16)
  first, last = examples[0], examples[-1]
  assert first['id'] == 'small/arithmetic-train-0-0'
  assert examples[70]['id'] == 'large/arithmetic-train-0-0'
  assert task.messages(first) == first['problem']
  assert task.messages(last)[0]['role'] == 'user'
  assert task.reward == 'arithmetic'
  rng = random.Random(0)
  assert task.demonstration(first, rng).endswith(f'#{first["answer"]}')
  with pytest.raises(ValueError, match="none of 'arithmetic_words'"):
    task.demonstration(last, rng)


def test_parts_with_different_rewards_are_scored_by_their_own(tmp_path):
  (tmp_path / 'aime24').mkdir()
  (tmp_path / 'a.jsonl').write_text('{"problem": "p", "answer": "\\\\pi"}')
  task = tasks.get('mixture', data_dir=str(tmp_path), parts={
      'table': {'weight': 1, 'files': {'train': 'a.jsonl'},
                'cache_dir': str(tmp_path)},
      'sums': {'weight': 1, 'task': 'arithmetic', **SUMS}})
  assert task.splits == ('train', 'test')
  score = rewards.get(task.reward)
  for index, right in ((0, '\\boxed{\\pi}'), (1, None)):
    example = task.examples('train')[index]
    gold = task.gold(example)
    assert score('', right or f'#{gold}', (), gold=gold, **example) == 1.0
    assert score('', '\\boxed{x} #x', (), gold=gold, **example) == 0.0


def test_any_stretch_of_the_tests_has_its_share_of_each():
  parts = {'a': {'weight': 1, 'task': 'arithmetic', **SUMS},
           'b': {'weight': 1, 'task': 'arithmetic', **SUMS, 'num_test': 10}}
  tests = tasks.get('mixture', parts=parts).examples('test')
  labels = [e['id'][0] for e in tests[:]]
  assert len(set(e['id'] for e in tests[:])) == 40
  assert labels[:20].count('b') == labels[20:].count('b') == 5


@pytest.mark.parametrize('parts, reason', [
    ({}, 'Expected parts with weights'),
    ({'arithmetic': 0}, 'above 0 for each part, got arithmetic: 0'),
    ({'arithmetic': {'num_digits': 1}}, 'got arithmetic: None'),
    ({'arithmetic': 1, 'arithmetic_words': 1e-4}, 'at least a thousandth'),
    ({'arithmetik': 1}, "Did you mean 'arithmetic'")])
def test_impossible_mixtures_are_refused(parts, reason):
  with pytest.raises(ValueError, match=reason):
    tasks.get('mixture', parts=parts)
