"""Answers that are meant to hang, to exhaust memory or to be executed."""
import pathlib

import pytest

from rlclip.rewards.pool import Pool, ScoreItem

_TOWER = '9^{9^{9^{9}}}'
_ANSWERS = {
    'digits': '9' * 1_000_000, 'letters': 'a' * 1_000_000,
    'prose': 'x = $2$, the answer is 3. ' * 40_000,
    'box': '\\boxed{' + '1+' * 500_000 + '1}', 'lines': '\n' * 1_000_000,
    'braces': '{' * 10_000, 'closed braces': '{' * 10_000 + '}' * 10_000,
    'boxes': '\\boxed{' * 10_000, 'brackets': '(' * 3_000 + '1' + ')' * 3_000,
    'closed boxes': '\\boxed{' * 10_000 + '1' + '}' * 10_000,
    'fractions': '\\frac{' * 3_000 + '1' + '}{2}' * 3_000,
    'roots': '\\sqrt{' * 500 + '2' + '}' * 500, 'bars': '|' * 3_000,
    'null': 'a\0b', 'control': '\x1b[31m7',
    'surrogate': '\ud800\\boxed{\udfff}',
    'format': '{0.__class__.__init__.__globals__}', 'percents': '%s' * 5_000,
    'chain': '='.join('x' * 1_500), 'list': ','.join('1' * 2_000),
    'signs': '(\\pm 1,\\pm 2,\\pm 3,\\pm 4)', 'dots': '1' + '.' * 3_000,
    'tower': _TOWER, 'fraction of towers': f'\\frac{{{_TOWER}}}{{{_TOWER}+1}}',
    'factorials': '(((9!)!)!)!', 'binomial': '\\binom{10^{10}}{5\\cdot10^9}',
    'sum': '\\sum_{k=1}^{10^{10}} k', 'exponentials': 'e^{e^{e^{e^{e}}}}',
    'sine': f'\\sin({_TOWER})', 'divisor': f'\\gcd({_TOWER},3)',
    'root': f'\\sqrt[{_TOWER}]{{2}}', 'rest': f'{_TOWER} \\bmod 1000',
    'exponent': '1e999999999', 'integral': '\\int_0^1 x^x dx',
    'zero': '\\frac{1}{0}', 'logarithm': '\\ln 0',
    'matrix': '\\operatorname{zeros}(10^9,10^9)',
    'rows': '\\begin{pmatrix}' + '1&' * 1_500 + '1\\end{pmatrix}',
}
_GOLDS = ['42', 'x^2+1', '[0,1)', '\\{1,2\\}', 'B', 'Paris', '5 \\text{ km}',
          'x>3', '\\begin{pmatrix}1\\\\2\\end{pmatrix}', '8^{8^{8^{8}}}']


def _score(pairs):
  # Each takes well below a second; the rest is room for slow machines.
  with Pool({'math': 1.0}, num_workers=2, deadline_s=20.0) as pool:
    result = pool.score([
        ScoreItem('', answer, (), {'gold': gold}) for gold, answer in pairs])
  assert result.failures == ()
  return result.rewards


@pytest.mark.parametrize('gold', _GOLDS)
def test_odd_answers_are_wrong_in_time(gold):
  rewards = _score([(gold, answer) for answer in _ANSWERS.values()])
  assert dict(zip(_ANSWERS, rewards)) == dict.fromkeys(_ANSWERS, 0.0)


def test_odd_golds_are_never_met_in_time():
  rewards = _score([(gold, '42') for gold in _ANSWERS.values()])
  assert not any(rewards)


@pytest.mark.parametrize('form', ['{}', '\\boxed{{{}}}', '${}$'])
def test_no_answer_is_executed(form, tmp_path):
  target = pathlib.Path(tmp_path, 'made')
  code = f"__import__('pathlib').Path('{target}').touch()"
  _score([('42', form.format(code)), (form.format(code), '42')])
  assert not target.exists()
