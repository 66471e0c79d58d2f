"""The how-to's programs run as they stand, and learn."""
import pathlib
import re

import numpy as np
import pytest

_PAGE = pathlib.Path(__file__).parents[1].joinpath(
    'docs/how-to/use-the-rules-elsewhere.md')
_BLOCK = re.compile(r'^```python\n(.*?)^```$', re.DOTALL | re.MULTILINE)


def _programs():
  """Section's title -> its blocks of Python, put together."""
  sections = _PAGE.read_text(encoding='utf-8').split('\n## ')[1:]
  blocks = {section.splitlines()[0]: _BLOCK.findall(section)
            for section in sections}
  return {title: '\n'.join(code) for title, code in blocks.items() if code}


def _run(title):
  found = {'__name__': 'how_to'}
  exec(compile(_programs()[title], title, 'exec'), found)
  return found


def test_no_program_is_left_out():
  assert set(_programs()) == {
      'A plain optax loop', 'A Flax NNX loop', "Tunix's loss registry"}


@pytest.mark.parametrize('title', ['A plain optax loop', 'A Flax NNX loop'])
def test_the_reward_rises(title):
  rewards = _run(title)['mean_rewards']
  # By chance 1 in V^2 = 36 answers is right.
  assert np.mean(rewards[:2]) < 0.1
  assert np.mean(rewards[-5:]) > 0.9


def test_tunix_trains_with_our_loss_and_has_its_own_gradient():
  pytest.importorskip('tunix', reason='pip install google-tunix, apart')
  found = _run("Tunix's loss registry")
  rewards = found['mean_rewards']
  assert np.mean(rewards[-5:]) > np.mean(rewards[:2]) + 0.3
  assert found['difference'] < 1e-6
