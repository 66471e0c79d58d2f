"""A step's rollouts, from a scripted sampler and real verifiers."""
import contextlib
import functools

import numpy as np
import pytest

from rlclip import algorithms, losses, rollouts
from rlclip.data import batching, tasks, tokenizer
from rlclip.rewards import pool as pool_lib
from rlclip.rewards import shaping
from rlclip.sampler import scripted
from rlclip.types import Completion, Prompt, SamplingSpec, TokenStats

TASK = tasks.get('arithmetic', num_operands=2, num_digits=1)
TOKENIZER = tokenizer.character_tokenizer(TASK.alphabet)


GOLDS = [TASK.gold(TASK.examples('train')[i]) for i in range(12)]


@pytest.fixture(scope='module')
def pool():
  with pool_lib.Pool({'arithmetic': 1.0}, num_workers=1) as pool:
    yield pool


def collect(pool, answer, num_prompts=2, group_size=3, max_tokens=8, first=0,
            **options):
  """`answer(place, sample index) -> text` without the stop token."""
  prompts = rollouts.encode(
      TASK, TOKENIZER, 'train', range(first, first + num_prompts), limit=8)
  script = lambda request: [
      *TOKENIZER.encode(answer(*divmod(request.id, group_size))),
      *TOKENIZER.stop_ids]
  sampler = scripted.Scripted(script, log_prob=-0.5)
  sampler.load_weights({}, version=7)
  return rollouts.collect(
      sampler, pool, TOKENIZER.decode, prompts,
      SamplingSpec(max_tokens, TOKENIZER.stop_ids), group_size=group_size,
      first_id=first * group_size,
      phase=lambda name: contextlib.nullcontext(), **options)


def make_batch(collected, advantage='group_mean', drop_truncated=False):
  return rollouts.batch(
      collected, advantage=advantage, prompt_length=8, completion_length=8,
      drop_truncated=drop_truncated)


@pytest.fixture(scope='module')
def collected(pool):
  # Only the middle sample of the first prompt is right.
  return collect(
      pool, lambda p, g: f' #{GOLDS[0]}' if (p, g) == (0, 1) else ' #999')


class Breaking:
  """A sampler whose logits are not finite for some requests."""

  def __init__(self, bad):
    self._bad = bad

  def generate(self, requests):
    none = np.zeros(0, np.int32), np.zeros(0, np.float32)
    one = np.array([1], np.int32), np.array([-1], np.float32)
    return [
        Completion(*none, 'error', 0) if r.id in self._bad else
        Completion(*one, 'length', 0) for r in requests]


def _collect_from(sampler, pool, **options):
  prompts = rollouts.encode(TASK, TOKENIZER, 'train', range(2), limit=8)
  return rollouts.collect(
      sampler, pool, TOKENIZER.decode, prompts, SamplingSpec(8, ()),
      group_size=3, first_id=0, phase=lambda name: contextlib.nullcontext(),
      **options)


def test_a_completion_that_broke_off_has_no_part_in_anything(pool):
  found = _collect_from(Breaking({1, 5}), pool, max_error_frac=0.34)
  np.testing.assert_array_equal(
      np.isnan(found.rewards), [[0, 1, 0], [0, 0, 1]])
  assert rollouts.statistics(found)['completions/error_frac'] == 2 / 6
  batch = make_batch(found)
  np.testing.assert_array_equal(batch.mask.sum(1), [1, 0, 1, 1, 1, 0])
  assert np.isfinite(batch.advantages).all()


def test_too_many_that_broke_off_end_the_run_by_name(pool):
  with pytest.raises(rollouts.BadSampling, match='2 of 6 .* request 4 first'):
    _collect_from(Breaking({4, 5}), pool, max_error_frac=0.33)


def test_every_answer_is_scored_against_its_own_prompt(collected):
  np.testing.assert_array_equal(collected.rewards, [[0, 1, 0], [0, 0, 0]])


def test_a_batch_holds_advantages_and_stop_tokens(collected):
  batch = make_batch(collected)
  np.testing.assert_allclose(
      batch.advantages, [-1 / 3, 2 / 3, -1 / 3, 0, 0, 0], rtol=1e-6)
  np.testing.assert_allclose(batch.group_mean, [1 / 3] * 3 + [0] * 3)
  last = batch.mask.sum(1) - 1
  assert (batch.completions[np.arange(6), last] == TOKENIZER.stop_ids[0]).all()
  assert (batch.behavior_logps[batch.mask] == -0.5).all()


def test_padding_is_halved_as_long_as_everything_fits(collected):
  width = lambda size: rollouts.batch(
      collected, advantage='group_mean', prompt_length=size,
      completion_length=size, drop_truncated=False).completions.shape[1]
  # ' #999' and its stop token are six tokens.
  assert [width(64), width(48), width(6), width(7)] == [8, 6, 6, 7]


def test_statistics_count_what_happened(collected):
  found = rollouts.statistics(collected)
  assert found['reward'] == pytest.approx(1 / 6)
  assert found['frac_reward_zero_std'] == 0.5
  # One of three right: sqrt(1/3) with two degrees of freedom; then 0.
  assert found['reward_std'] == pytest.approx(np.sqrt(1 / 3) / 2)
  assert found['completions/clipped_ratio'] == 0


def test_staleness_is_what_the_sampler_was_behind(collected):
  # Version 7 sampled; one completion is made older by two.
  group = collected.groups[0]
  old = group.completions[1]._replace(version=5)
  mixed = collected._replace(groups=[group._replace(completions=[
      group.completions[0], old, group.completions[2]]), collected.groups[1]])
  assert rollouts.staleness(mixed, 8, limit=3) == {
      'staleness/mean': pytest.approx(8 / 6), 'staleness/max': 3}
  with pytest.raises(RuntimeError, match='0 to 2 versions older .*from 1 to 3'):
    rollouts.staleness(mixed, 8, limit=2)
  # Nor may they be newer: then they are not of this run.
  with pytest.raises(RuntimeError, match='from -1 to 1'):
    rollouts.staleness(mixed, 6, limit=3)


def test_seven_equal_floats_have_no_std(collected):
  group = collected.groups[0]
  equal = rollouts.Collected([group._replace(
      rewards=np.full(7, 0.1), completions=list(group.completions) * 7)], 0, 0)
  assert np.full(7, 0.1).std() > 0  # what the mean's rounding makes of it
  found = rollouts.statistics(equal)
  assert (found['reward_std'], found['frac_reward_zero_std']) == (0, 1)


def test_truncated_answers_are_counted_and_may_be_dropped(pool):
  cut = collect(pool, lambda p, g: ' #12345678', max_tokens=8)
  assert rollouts.statistics(cut)['completions/clipped_ratio'] == 1
  batch = make_batch(cut, drop_truncated=True)
  assert batch.truncated.all() and not batch.mask.any()


def test_what_is_dropped_stays_in_its_groups_statistics(pool):
  # Right, wrong, and cut (so wrong): the mean is 1/3 whoever is dropped.
  cut = collect(pool, lambda p, g: [
      f' #{GOLDS[p]}', ' #999', ' #12345678'][g], num_prompts=1)
  for drop in (False, True):
    batch = make_batch(cut, drop_truncated=drop)
    np.testing.assert_allclose(batch.group_mean, 1 / 3)
    np.testing.assert_allclose(
        batch.advantages, [2 / 3, -1 / 3, 0 if drop else -1 / 3], rtol=1e-6)


def test_truncated_tokens_leave_the_denominator():
  # 30 tokens with a loss of 1 each, 5 of them dropped: 25 / 25, not 25 / 30.
  lengths = [8, 8, 9, 5]
  group = [Completion(np.ones(n, np.int32), np.zeros(n, np.float32), finish, 0)
           for n, finish in zip(lengths, ['stop'] * 3 + ['length'])]
  prompt = Prompt('0', np.ones(1, np.int32), '', {})
  for drop, weight in ((False, 30), (True, 25)):
    batch = batching.make_batch(
        [prompt], [group], np.zeros((1, 4)), -np.ones((1, 4)),
        prompt_length=1, completion_length=9, drop_truncated=drop)
    spec = algorithms.get('reinforce')  # a token mean of -A log p
    out = losses.make(spec)(
        TokenStats(np.full_like(batch.behavior_logps, 1.0),
                   np.zeros_like(batch.behavior_logps)), None, batch)
    assert (float(out.loss.weight), float(out.loss.value())) == (weight, 1.0)


def test_overlong_answers_lose_advantage_and_no_reward(pool):
  penalty = functools.partial(
      shaping.overlong_penalty, max_length=8, buffer=4, factor=0.5)
  right = f' #{GOLDS[0]}'  # with its stop token 4 or 5 tokens
  size = len(right) + 1
  # The second runs into the limit of 8, and so is wrong.
  long = collect(pool, lambda p, g: [right, ' #12345678'][g], num_prompts=1,
                 group_size=2, penalty=penalty)
  lost = max(size - 4, 0) / 8, 0.5
  batch = make_batch(long)
  mean = (1 - lost[0] - lost[1]) / 2
  np.testing.assert_allclose(
      batch.advantages, [1 - lost[0] - mean, -lost[1] - mean], rtol=1e-6)
  # What group-adaptive bounds read, and the metrics, is the verifier's.
  np.testing.assert_array_equal(batch.rewards, [1, 0])
  np.testing.assert_array_equal(batch.group_mean, [0.5, 0.5])
  found = rollouts.statistics(long)
  assert found['reward'] == 0.5
  assert found['reward/overlong_penalty'] == -(lost[0] + lost[1]) / 2
  assert found['reward/overlong_frac'] == np.mean([x > 0 for x in lost])
  rows = rollouts.bank_rows(long, batch, step=1)
  assert [row.reward for row in rows] == [1, 0]
  assert rows[1].rewards == {'arithmetic': 0.0, 'overlong': -0.5}


def with_signal(pool, num_right, *, num_prompts=2, max_refills=2, **options):
  """Of two samples at each place, so many right; and the calls for more."""
  calls = []

  def draw(place, count):
    calls.append((place, count))
    return collect(
        pool, lambda p, g: f' #{GOLDS[p]}' if g < num_right[p] else ' #999',
        num_prompts=count, group_size=2, first=place, **options)

  got = rollouts.collect_with_signal(
      draw, num_prompts, max_refills=max_refills)
  return got, calls


def test_constant_groups_are_replaced_by_the_next_prompts(pool):
  # Places 1, 2 and 3 have a signal; 0 is all wrong.
  got, calls = with_signal(pool, [0, 1, 1, 1], num_prompts=3)
  assert calls == [(0, 3), (3, 1)]
  ids = [TASK.examples('train')[i]['id'] for i in range(4)]
  assert [group.prompt.id for group in got.groups] == ids
  assert [group.prompt.id for group in got.trained] == ids[1:]
  batch = make_batch(got)
  np.testing.assert_array_equal(batch.advantages, [.5, -.5] * 3)
  assert batch.mask.any(1).all()
  found = rollouts.statistics(got)
  assert found['dynamic_sampling/generated_groups'] == 4
  assert found['dynamic_sampling/kept_frac'] == 0.75
  assert found['dynamic_sampling/refills'] == 1
  # The reward is of all that was sampled: 3 of 8 answers are right.
  assert (found['reward'], found['frac_reward_zero_std']) == (3 / 8, 1 / 4)
  rows = rollouts.bank_rows(got, batch, step=1)
  assert [row.request_id for row in rows] == list(range(8))
  assert [row.dropped for row in rows] == [True] * 2 + [False] * 6
  assert [row.advantage for row in rows] == [0, 0, *[.5, -.5] * 3]
  assert rows[0].old_logps is None
  sizes = [len(row.prompt_tokens) + len(row.tokens) for row in rows[2:]]
  assert got.num_tokens == sum(sizes)


def test_with_too_few_groups_empty_ones_fill_the_batch(pool):
  # All right, one right, then all wrong: the refills are used up.
  got, calls = with_signal(pool, [2, 1, 0, 0, 0])
  assert calls == [(0, 2), (2, 1), (3, 1)] and len(got.trained) == 1
  batch = make_batch(got)
  assert batch.prompts.shape[0] == 2
  np.testing.assert_array_equal(batch.mask.any(1), [True, True, False, False])


def test_with_no_signal_at_all_the_batch_is_empty(pool):
  got, _ = with_signal(pool, [0, 2, 2, 0, 0, 0])
  batch = make_batch(got, 'batch')  # which would see one between groups
  assert batch.prompts.shape[0] == 2 and batch.completions.shape[0] == 4
  assert not batch.mask.any() and not batch.advantages.any()
  assert rollouts.statistics(got)['dynamic_sampling/kept_frac'] == 0
  assert all(row.dropped for row in rollouts.bank_rows(got, batch, step=1))
  assert got.num_tokens == 0


def test_without_refills_nothing_is_dropped(pool):
  got, calls = with_signal(pool, [0, 1], max_refills=0)
  assert calls == [(0, 2)] and len(got.trained) == 2
  assert make_batch(got).mask.any(1).all()
  assert not any(name.startswith('dynamic_sampling')
                 for name in rollouts.statistics(got))


def test_lengths_alone_are_no_signal(pool):
  # All wrong, one of them long: DAPO filters by accuracy.
  penalty = lambda lengths: -1.0 * lengths
  got, _ = with_signal(pool, [0] * 6, penalty=penalty)
  assert not got.trained


def test_the_bank_gets_a_row_a_completion(collected):
  batch = make_batch(collected)
  rows = rollouts.bank_rows(collected, batch, step=5)
  assert [row.group for row in rows] == [0, 0, 0, 1, 1, 1]
  assert [row.request_id for row in rows] == list(range(6))
  assert rows[1].reward == 1 and rows[1].rewards == {'arithmetic': 1.0}
  assert {row.weights for row in rows} == {7}
  assert rows[1].advantage == pytest.approx(2 / 3)


def test_a_prompt_longer_than_the_samplers_is_named():
  with pytest.raises(ValueError, match='arithmetic-train-0-0 has 4 tokens, '
                                       'and the sampler takes 3'):
    rollouts.encode(TASK, TOKENIZER, 'train', [0], limit=3)
