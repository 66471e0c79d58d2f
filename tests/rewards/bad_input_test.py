"""Completions and golds that no reward may hang on, fail on or execute.

What times out has no verdict, and what has none leaves the loss: a policy that
finds such a text escapes its score.
"""
import pathlib

import pytest

from rlclip import rewards
from rlclip.rewards.pool import Pool, ScoreItem

_MANY = 100_000
_TEXTS = {
    'spaces': ' ' * _MANY, 'tabs': '\t' * _MANY, 'lines': ' \n' * _MANY,
    'answer': 'the answer is' + ' ' * _MANY + '?',
    'answers': ('answer' + ' ' * 100) * (_MANY // 100),
    'fence': '```' + 'a' * _MANY, 'fences': '```python\n' * (_MANY // 10),
    'think': '<think>' * (_MANY // 7),
    'thoughts': '<think>a</think>' * (_MANY // 16),
    'closed': '<think>a</think><answer>' + '</answer> ' * (_MANY // 10) + 'x',
    'hashes': '#### ' * (_MANY // 5), 'marker': '#### ' + '9' * 1_000_000,
    'box': '\\boxed' + ' ' * _MANY, 'boxes': '\\boxed{' * 10_000,
    'braces': '{' * 10_000, 'dollars': '$' * _MANY, 'list': '1,' * _MANY,
    'json': '[' * _MANY, 'digits': '9' * 1_000_000, 'letters': 'a' * 1_000_000,
    'script': '\u6570' * _MANY, 'null': 'a\0b\x1b[31m', 'half': '\ud800\udfff',
    'percents': '%s%n' * 5_000, 'format': '{0.__class__.__init__.__globals__}'}
# Those that need no fields of a task of their own.
_NAMES = ['arithmetic', 'code', 'final_answer', 'language', 'length_deviation',
          'math', 'repetition', 'think', 'think_answer']
_TESTS = '["assert f(1) == 1"]'


def _score(name, items):
  # Each takes well below a second; the rest is room for slow machines.
  with Pool({name: 1.0}, num_workers=2, deadline_s=30.0) as pool:
    result = pool.score([
        ScoreItem('p', completion, (1, 2, 3), {'gold': gold, 'wall_s': 20.0})
        for completion, gold in items])
  assert result.failures == ()
  return result.rewards


def test_every_reward_is_here_that_can_be():
  assert set(rewards.names()) - set(_NAMES) == {
      'by_example', 'overlong', 'reasoning_gym'}


@pytest.mark.parametrize('name', _NAMES)
def test_odd_completions_have_a_verdict_in_time(name):
  gold = _TESTS if name == 'code' else '42'
  got = _score(name, [(text, gold) for text in _TEXTS.values()])
  assert None not in got
  if name in ('arithmetic', 'code', 'math', 'think', 'think_answer'):
    assert dict(zip(_TEXTS, got)) == dict.fromkeys(_TEXTS, 0.0)


@pytest.mark.parametrize('name', ['arithmetic', 'code', 'math'])
def test_odd_golds_are_never_met_and_end_in_time(name):
  got = _score(name, [('\\boxed{42}', text) for text in _TEXTS.values()])
  assert not any(got)


@pytest.mark.parametrize('name', ['arithmetic', 'code', 'math'])
def test_nothing_in_a_text_is_executed(name, tmp_path):
  target = pathlib.Path(tmp_path, 'made')
  code = f"__import__('pathlib').Path('{target}').touch()"
  texts = [code, f'\\boxed{{{code}}}', f'#### {code}']
  items = [('\\boxed{42}', text) for text in texts]
  if name != 'code':  # whose completions run, in the sandbox
    items += [(text, '42') for text in texts]
  _score(name, items)
  assert not target.exists()
