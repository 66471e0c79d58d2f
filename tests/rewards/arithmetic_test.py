"""The last number of a text, and the reward on it."""
import decimal

import pytest

from rlclip import rewards
from rlclip.rewards import arithmetic


@pytest.mark.parametrize('text, expected', [
    ('47 + 85 = 132.', 132),
    ('so 1,331 apples', 1331),
    ('either 1,33', 33),  # no thousands comma
    ('12,345,678', 12345678),
    ('the answer is -7', -7),
    ('the answer is \u22127', -7),
    ('5-3', 3),
    ('(5)-3', 3),
    ('5 - 8 = -3', -3),
    ('it costs -$12.50', decimal.Decimal('-12.5')),
    ('132.0', 132),
    ('.5', decimal.Decimal('0.5')),
    ('007', 7),
    ('none', None),
    ('', None),
])
def test_the_last_number(text, expected):
  assert arithmetic.last_number(text) == expected


@pytest.mark.parametrize('text, expected', [
    ('510140 #1331', 1331),
    ('#1 or #2', 2),
    ('#### 42 apples and 3 pears', 42),
    ('1331', None),
    ('1331#', None),
])
def test_the_number_behind_a_marker(text, expected):
  assert arithmetic.last_number(text, marker='#') == expected


@pytest.mark.parametrize('completion, gold, reward', [
    ('it is 132', '132', 1.0),
    ('it is 132.5', '132', 0.0),
    ('132, no: 133', '132', 0.0),
    ('I do not know', '0', 0.0),
    ('132', 'many', None),
])
def test_the_reward(completion, gold, reward):
  assert rewards.get('arithmetic')('', completion, (), gold=gold) == reward
