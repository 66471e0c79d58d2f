"""Padding, masks, and cutting by group."""
import numpy as np
import pytest

from rlclip.data import batching
from rlclip.types import Batch, Completion, Prompt

NAN = np.nan


def prompt(*tokens):
  return Prompt(str(tokens), np.array(tokens, np.int32), '', {})


def completion(*tokens, finish='stop'):
  logps = -0.1 * np.arange(1, len(tokens) + 1, dtype=np.float32)
  return Completion(np.array(tokens, np.int32), logps, finish, 0)


def make(rewards=((1, 0), (0, 0)), finish='stop', **options):
  return batching.make_batch(
      [prompt(5, 6), prompt(7)],
      [[completion(1, 2), completion(3, finish=finish)],
       [completion(0, 0, 0), completion(4, 9)]],
      np.array(rewards, float), np.array([[0.5, -0.5], [0.25, -0.25]]),
      prompt_length=3, completion_length=4, **options)


def test_sequences_are_padded_on_the_right_and_masked_by_length():
  batch = make()
  np.testing.assert_array_equal(batch.prompts, [[5, 6, 0], [7, 0, 0]])
  np.testing.assert_array_equal(batch.prompt_lengths, [2, 1])
  np.testing.assert_array_equal(
      batch.completions,
      [[1, 2, 0, 0], [3, 0, 0, 0], [0, 0, 0, 0], [4, 9, 0, 0]])
  # Row 2 sampled token 0 three times: it counts, whatever the padding is.
  np.testing.assert_array_equal(batch.mask.sum(1), [2, 1, 3, 2])
  np.testing.assert_allclose(
      batch.behavior_logps[2], [-0.1, -0.2, -0.3, 0], rtol=1e-6)
  np.testing.assert_array_equal(batch.old_logps, batch.behavior_logps)
  np.testing.assert_array_equal(batch.group_mean, [0.5, 0.5, 0, 0])
  np.testing.assert_array_equal(batch.group_size, [2, 2, 2, 2])


def test_a_row_without_reward_leaves_the_loss_and_the_group_mean():
  batch = make(rewards=((NAN, 1), (NAN, NAN)))
  np.testing.assert_array_equal(batch.mask.any(1), [False, True, False, False])
  np.testing.assert_array_equal(batch.advantages, [0, -0.5, 0, 0])
  np.testing.assert_array_equal(batch.rewards, [0, 1, 0, 0])
  np.testing.assert_array_equal(batch.group_mean, [1, 1, 0, 0])
  np.testing.assert_array_equal(batch.group_size, [1, 1, 1, 1])


def test_truncated_rows_stay_unless_told_otherwise():
  kept, dropped = (
      make(finish='length', drop_truncated=drop) for drop in (False, True))
  np.testing.assert_array_equal(kept.truncated, [False, True, False, False])
  assert kept.mask[1].any() and not dropped.mask[1].any()
  assert (kept.advantages[1], dropped.advantages[1]) == (-0.5, 0)


def test_a_failed_sample_leaves_the_loss():
  assert not make(finish='error').mask[1].any()


@pytest.mark.parametrize('name', ['prompt_length', 'completion_length'])
def test_too_long_sequences_are_refused(name):
  sizes = {'prompt_length': 3, 'completion_length': 4, name: 1}
  with pytest.raises(ValueError, match=f'Raise {name}'):
    batching.make_batch(
        [prompt(5, 6)], [[completion(1, 2)]], np.ones((1, 1)),
        np.zeros((1, 1)), **sizes)


def test_uneven_groups_are_refused():
  with pytest.raises(ValueError, match=r'rewards and advantages of shape'):
    batching.make_batch(
        [prompt(5), prompt(6)], [[completion(1)], []], np.ones((2, 1)),
        np.zeros((2, 1)), prompt_length=1, completion_length=1)


def test_minibatches_keep_groups_whole():
  first, second = batching.minibatches(make(), 2, order=np.array([1, 0]))
  np.testing.assert_array_equal(first.prompts, [[7, 0, 0]])
  np.testing.assert_array_equal(first.completions[:, 0], [0, 4])
  np.testing.assert_array_equal(second.completions[:, 0], [1, 3])
  np.testing.assert_array_equal(second.advantages, [0.5, -0.5])


def test_minibatches_need_a_divisor_and_a_permutation():
  with pytest.raises(ValueError, match='pad_groups'):
    batching.minibatches(make(), 3)
  with pytest.raises(ValueError, match='permutation'):
    batching.minibatches(make(), 2, order=np.array([0, 0]))


def test_empty_groups_weigh_nothing():
  batch = batching.pad_groups(make(), 4)
  assert batch.prompts.shape == (4, 3) and batch.completions.shape == (8, 4)
  assert not batch.mask[4:].any()
  np.testing.assert_array_equal(batch.prompt_lengths, [2, 1, 1, 1])
  np.testing.assert_array_equal(batch.mask[:4], make().mask)
  assert batching.pad_groups(batch, 2) is batch


@pytest.mark.parametrize('num_parts', [1, 2])
def test_packing_has_every_token_once_in_a_row_of_its_group(num_parts):
  rng = np.random.default_rng(0)
  prompts, group, size = 6, 8, 16
  rows = prompts * group
  lengths = np.minimum(rng.geometric(0.2, rows), size)
  lengths[3] = 0
  batch = Batch(**{
      field: np.zeros(rows) for field in Batch._fields[:-1]})._replace(
          prompts=np.zeros((prompts, 4)), completions=np.zeros((rows, size)),
          mask=np.arange(size) < lengths[:, None])
  packing = batching.pack(batch, num_parts).packing
  part_rows, height = rows // num_parts, len(packing.source) // num_parts
  for part in range(num_parts):
    source = packing.source[part * height:][:height]
    first = packing.first[part * part_rows:][:part_rows]
    wanted = lengths[part * part_rows:][:part_rows]
    held = source[source < part_rows * size]
    expected = np.concatenate(
        [n * size + np.arange(k) for n, k in enumerate(wanted)])
    np.testing.assert_array_equal(np.sort(held), expected)
    members = packing.rows[part * prompts // num_parts:][:prompts // num_parts]
    places = packing.places[part * height:][:height]
    for n, k in enumerate(wanted):
      slots = first[n] + np.arange(k)
      np.testing.assert_array_equal(
          source.reshape(-1)[slots], n * size + np.arange(k))
      if k:
        row = first[n] // size
        assert slots[-1] // size == row
        assert places[row] // members.shape[1] == n // group
        assert members.reshape(-1)[places[row]] == row
  assert packing.source.size < 0.7 * rows * size
