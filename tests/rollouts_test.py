"""A step's rollouts, from a scripted sampler and real verifiers."""
import contextlib

import numpy as np
import pytest

from rlclip import rollouts
from rlclip.data import tasks, tokenizer
from rlclip.rewards import pool as pool_lib
from rlclip.sampler import scripted
from rlclip.types import SamplingSpec

TASK = tasks.get('arithmetic', num_operands=2, num_digits=1)
TOKENIZER = tokenizer.character_tokenizer(TASK.alphabet)


def collect(answer, num_prompts=2, group_size=3, max_tokens=8):
  """`answer(prompt index, sample index) -> text` without the stop token."""
  prompts = rollouts.encode(
      TASK, TOKENIZER, 'train', range(num_prompts), limit=8)
  script = lambda request: [
      *TOKENIZER.encode(answer(*divmod(request.id, group_size))),
      *TOKENIZER.stop_ids]
  sampler = scripted.Scripted(script, log_prob=-0.5)
  sampler.load_weights({}, version=7)
  with pool_lib.Pool({'arithmetic': 1.0}, num_workers=1) as pool:
    return rollouts.collect(
        sampler, pool, TOKENIZER.decode, prompts,
        SamplingSpec(max_tokens, TOKENIZER.stop_ids), group_size=group_size,
        first_id=0, phase=lambda name: contextlib.nullcontext())


@pytest.fixture(scope='module')
def collected():
  golds = [TASK.gold(TASK.examples('train')[i]) for i in range(2)]
  # Only the middle sample of the first prompt is right.
  return collect(
      lambda p, g: f' #{golds[0]}' if (p, g) == (0, 1) else ' #999')


def test_every_answer_is_scored_against_its_own_prompt(collected):
  np.testing.assert_array_equal(collected.rewards, [[0, 1, 0], [0, 0, 0]])


def test_a_batch_holds_advantages_and_stop_tokens(collected):
  batch = rollouts.batch(
      collected, advantage='group_mean', prompt_length=8,
      completion_length=8, drop_truncated=False)
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


def test_truncated_answers_are_counted_and_may_be_dropped():
  cut = collect(lambda p, g: ' #12345678', max_tokens=8)
  assert rollouts.statistics(cut)['completions/clipped_ratio'] == 1
  batch = rollouts.batch(
      cut, advantage='group_mean', prompt_length=8, completion_length=8,
      drop_truncated=True)
  assert batch.truncated.all() and not batch.mask.any()


def test_the_bank_gets_a_row_a_completion(collected):
  batch = rollouts.batch(
      collected, advantage='group_mean', prompt_length=8,
      completion_length=8, drop_truncated=False)
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
