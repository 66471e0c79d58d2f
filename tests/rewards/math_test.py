"""Verdicts of the math reward, quick ones in this process."""
import json
import os
import pathlib

import pytest

from rlclip.rewards import math
from rlclip.rewards.pool import Pool, ScoreItem

_SHARED = pathlib.Path(os.environ.get(
    'RLCLIP_DATA', pathlib.Path(__file__).parents[3] / 'shared' / 'data'))
CASES = _SHARED.parent / 'cases' / 'answer_equivalence.jsonl'


@pytest.mark.parametrize('gold, answer', [
    ('42', '#### 42'), ('42', '#### 42.'), ('42', '$42$'), ('$42$', '42'),
    ('1,234', '\\boxed{1234}'), ('1234', 'So it is \\boxed{1{,}234}.'),
    ('1234', '1,\\!234'), ('\\$32,\\!348', '\\boxed{32348}'),
    ('-3', '\\boxed{-3}'), ('0.5', '.5'), ('2\\sqrt{3}', '$\\sqrt{12}$'),
    ('\\frac{1}{2}', '\\boxed{0.5}'), ('(1,2)', '\\boxed{(1,2)}'),
    ('[0,\\infty)', '$[0,\\infty)$'), ('3 \\text{ or } 5', '\\boxed{5, 3}'),
    ('1, 2', '\\boxed{1} and \\boxed{2}'), ('B', '\\text{(B)}'),
    ('B', 'The answer is B.'), ('A', '\\boxed{A}'), ('x=5', '5'),
    ('24', '\\boxed{25}. Wait, that is wrong: \\boxed{24}'),
    ('24', '<think>\\boxed{3}</think> The answer is 24.'),
    ('7', '<answer>7</answer>'), ('9^{9^{9^9}}', '\\boxed{9^{9^{9^9}}}'),
    ('Right triangle', 'It is a \\boxed{\\text{right triangle}}.'),
    ('\\{1,2\\}', '\\boxed{\\{2, 1\\}}')])
def test_the_same(gold, answer):
  assert math.equivalent(gold, answer) is True


@pytest.mark.parametrize('gold, answer', [
    ('42', '#### 43'), ('1000000', '1000001'), ('24', '\\boxed{25}'),
    ('2\\sqrt{3}', '\\boxed{3\\sqrt{2}}'), ('(1,2)', '\\boxed{(2,1)}'),
    ('[0,\\infty)', '(0,\\infty)'), ('7', ''), ('0', ''), ('0', '\\boxed{}'),
    ('B', '(A)'), ('B', 'A, B, C, D'), ('B', '(A) or (B)'),
    ('24', '<think>\\boxed{24}</think> I cannot say.'),
    ('\\frac{1}{3}', '0.33'), ('1, 2', '\\boxed{1}'),
    ('Right triangle', 'left triangle')])
def test_not_the_same(gold, answer):
  assert math.equivalent(gold, answer) is False


@pytest.mark.parametrize('gold', ['', ' ', '$$', '\\text{}', '>'])
def test_an_unreadable_gold_is_none(gold):
  assert math.equivalent(gold, '\\boxed{1}') is None
  assert math.score('\\boxed{1}', gold) is None


@pytest.mark.parametrize('answer', [
    '{' * 10_000, '\\boxed{' * 10_000, 'a\0b', '\x1b[31m7', '{0.__class__}',
    "\\boxed{__import__('os').system('true')}", '9' * 100_000])
def test_odd_answers_are_wrong_and_harmless(answer):
  with Pool({'math': 1.0}, num_workers=1, on_failure='zero') as pool:
    item = ScoreItem('', answer, (), {'gold': '42'})
    result = pool.score([item])
  assert result.rewards == [0.0]
  assert result.failures == ()


@pytest.mark.skipif(not CASES.exists(), reason=f'needs {CASES}')
def test_the_case_file_is_mostly_right():
  cases = [json.loads(line) for line in CASES.open(encoding='utf-8')]
  # A sixth of the file; `expected` is strict, so None and timeouts are wrong.
  cases = cases[::6]
  with Pool({'math': 1.0}, deadline_s=2.0) as pool:
    result = pool.score([
        ScoreItem('', case['prediction'], (), {'gold': case['gold']})
        for case in cases])
  right = [
      reward is not None and bool(reward) == case['expected']
      for reward, case in zip(result.rewards, cases)]
  assert sum(right) / len(right) >= 0.84
