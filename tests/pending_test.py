"""Rollouts sampled ahead come back from their files bit by bit."""
import contextlib
import functools

import numpy as np
import pytest

from rlclip import pending, rollouts
from rlclip.data import tasks, tokenizer
from rlclip.rewards import pool as pool_lib
from rlclip.rewards import shaping
from rlclip.sampler import scripted
from rlclip.types import SamplingSpec

TASK = tasks.get('arithmetic', num_operands=2, num_digits=1)
TOKENIZER = tokenizer.character_tokenizer(TASK.alphabet)
SPEC = SamplingSpec(8, TOKENIZER.stop_ids)


def prompts_at(place, count):
  return rollouts.encode(
      TASK, TOKENIZER, 'train', range(place, place + count), limit=8)


RECIPE = pending.Recipe(prompts_at, TOKENIZER.decode, SPEC)
SHAPED = RECIPE._replace(penalty=functools.partial(
    shaping.overlong_penalty, max_length=8, buffer=4, factor=0.3))


class Unsure:
  """A pool whose rewards are no round numbers, and sometimes none."""

  def score(self, items):
    values = [None if i % 3 == 2 else 0.1 * i for i in range(len(items))]
    return pool_lib.ScoreResult(
        values, {'a': values, 'b': [1 / 3] * len(items)},
        (pool_lib.Failure(2, 'a', 'timeout', ''),))


def collect(place, recipe, *, max_refills=0):
  """Two prompts of two samples; ids from `2 * place` on."""
  script = lambda request: [
      *TOKENIZER.encode(' #1234567' if request.id % 3 else ' #5'),
      *TOKENIZER.stop_ids]
  sampler = scripted.Scripted(script, log_prob=-1 / 3)
  sampler.load_weights({}, version=place)
  draw = lambda skipped, count: rollouts.collect(
      sampler, Unsure(), recipe.decode,
      recipe.prompts_at(place + skipped, count), SPEC, group_size=2,
      first_id=2 * (place + skipped),
      phase=lambda name: contextlib.nullcontext(), penalty=recipe.penalty)
  return rollouts.collect_with_signal(draw, 2, max_refills=max_refills)


def assert_same(got, expected):
  for name in ('num_timeouts', 'num_errors', 'num_prompts', 'num_refills'):
    assert getattr(got, name) == getattr(expected, name), name
  np.testing.assert_array_equal(got.rewards, expected.rewards)
  assert got.rewards.dtype == expected.rewards.dtype
  for one, other in zip(got.groups, expected.groups, strict=True):
    assert one.prompt.id == other.prompt.id
    assert one.prompt.fields == other.prompt.fields
    np.testing.assert_array_equal(one.prompt.tokens, other.prompt.tokens)
    assert [r.id for r in one.requests] == [r.id for r in other.requests]
    assert [r.spec for r in one.requests] == [r.spec for r in other.requests]
    assert one.texts == other.texts
    assert one.by_function == other.by_function
    np.testing.assert_array_equal(one.penalties, other.penalties)
    for a, b in zip(one.completions, other.completions, strict=True):
      assert (a.finish, a.version) == (b.finish, b.version)
      for x, y in ((a.tokens, b.tokens), (a.logps, b.logps)):
        np.testing.assert_array_equal(x, y)
        assert x.dtype == y.dtype


@pytest.mark.parametrize('recipe, max_refills', [
    (RECIPE, 0), (SHAPED, 0), (SHAPED, 2)])
def test_they_come_back_bit_by_bit(tmp_path, recipe, max_refills):
  made = [collect(5, recipe, max_refills=max_refills)]
  made.append(collect(5 + len(made[0].groups), recipe, max_refills=max_refills))
  assert np.isnan(made[0].rewards).any()
  assert made[0].num_refills == (1 if max_refills else 0)
  assert {c.finish for c in made[0].groups[1].completions} == {
      'stop', 'length'}
  steps = pending.save(tmp_path, 3, 5, made)
  assert steps == [4, 5]
  for got, expected in zip(
      pending.restore(tmp_path, steps, recipe), made, strict=True):
    assert_same(got, expected)


def test_nothing_ahead_is_no_file(tmp_path):
  assert pending.save(tmp_path / 'ahead', 3, 5, []) == []
  assert not (tmp_path / 'ahead').exists()
  assert pending.restore(tmp_path / 'ahead', [], RECIPE) == []


def test_others_are_removed(tmp_path):
  pending.save(tmp_path, 3, 5, [collect(5, RECIPE), collect(7, RECIPE)])
  pending.keep(tmp_path, [5, 6])
  assert [path.name for path in tmp_path.iterdir()] == ['00000005.npz']


@pytest.mark.parametrize('spoil', [
    lambda path: path.unlink(),
    lambda path: path.write_bytes(b''),
    lambda path: path.write_bytes(path.read_bytes()[:-40]),
    lambda path: path.write_bytes(b'no archive at all')])
def test_a_file_that_is_gone_or_damaged_is_named(tmp_path, spoil):
  steps = pending.save(tmp_path, 3, 5, [collect(5, RECIPE)])
  spoil(tmp_path / '00000004.npz')
  with pytest.raises(ValueError, match=r'rollouts of step 4 at .*00000004.npz'):
    pending.restore(tmp_path, steps, RECIPE)
