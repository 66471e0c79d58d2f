"""reasoning-gym, where it is installed, and what is said where it is not."""
import importlib.util
import sys

import pytest

from rlclip import rewards
from rlclip.data import tasks

needs_gym = pytest.mark.skipif(
    importlib.util.find_spec('reasoning_gym') is None,
    reason='needs the extra `gym`')


def test_without_the_extra_it_says_what_to_install(monkeypatch):
  monkeypatch.setitem(sys.modules, 'reasoning_gym', None)
  with pytest.raises(ValueError, match=r'pip install rlclip\[gym\]'):
    tasks.get('reasoning_gym')


@needs_gym
def test_puzzles_are_asked_and_scored():
  task = tasks.get('reasoning_gym', dataset='basic_arithmetic', seed=1)
  example = task.examples('train')[3]
  score = rewards.get(task.reward)
  answer = lambda text: score(
      '', f'so <answer>{text}</answer>', (), gold=task.gold(example), **example)
  assert (answer(example['answer']), answer('none')) == (1.0, 0.0)
  assert score('', example['answer'], (), **example) == 0.0
  assert example['problem'] in task.messages(example)[0]['content']


@needs_gym
def test_splits_and_seeds_do_not_share_their_puzzles():
  options = {'dataset': 'leg_counting', 'num_train': 200, 'num_test': 200}
  train, test, other = (
      {e['problem'] for e in tasks.get('reasoning_gym', seed=seed, **options)
       .examples(split)[:]}
      for seed, split in ((0, 'train'), (0, 'test'), (1, 'train')))
  assert not train & test and not train & other


@needs_gym
@pytest.mark.parametrize('options', [
    {'dataset': 'nope'}, {'options': {'nope': 1}},
    {'options': {'min_animals': -1}}])
def test_what_the_library_refuses_is_a_value_error(options):
  with pytest.raises(ValueError):
    tasks.get('reasoning_gym', **options)
