"""The answer that is shown is the one that the verdict is about."""
import pytest

from rlclip.rewards import extraction


@pytest.mark.parametrize('completion, expected', [
    (r'So $x = \frac12$, \boxed{\frac{1}{2}}.', r'\frac{1}{2}'),
    ('1 + 1 = 2\n#### 42', '42'),
    ('<answer> 7 </answer>', '7'),
    ('We add.\nThe answer is: **18**.\nGoodbye', '18'),
    ('42', '42'), ('$42$.', '$42$'),
    (r'<think>\boxed{1}</think> The answer is 2.', '2'),
    ('We add two numbers,\nand then', None),
    ('', None)])
def test_of_maths(completion, expected):
  assert extraction.get('math')(completion, gold='1') == expected


@pytest.mark.parametrize('completion, marker, expected', [
    ('1+2 #3', '#', '3'), ('1+2', '#', None), ('so 1,331', '', '1331'),
    ('none', '', None)])
def test_of_arithmetic(completion, marker, expected):
  got = extraction.get('arithmetic')(completion, gold='1', marker=marker)
  assert got == expected


def test_a_reward_without_one():
  assert extraction.get('final_answer') is None
  assert extraction.get('tests.rewards.faulty:hang') is None
