"""Rewards of a length in tokens, by hand."""
import pytest

from rlclip import rewards


@pytest.mark.parametrize('length, expected', [
    (0, 0), (12, 0), (16, -.5), (20, -1), (30, -1)])
def test_overlong(length, expected):
  # 20 tokens at most, of which the last 8 cost.
  reward = rewards.get('overlong(max_length=20, buffer=8)')
  assert reward('', '', [1] * length) == expected


def test_overlong_needs_its_numbers():
  with pytest.raises(ValueError, match='1 <= buffer <= max_length'):
    rewards.get('overlong')('', '', [1])


def test_deviation_from_a_target():
  reward = rewards.get('length_deviation(target_length=5)')
  assert [reward('', '', [1] * n) for n in (3, 5, 9)] == [-2, 0, -4]
  plain = rewards.get('length_deviation')
  assert plain('', '', [1] * 3) == -3  # each token costs
  assert plain('', '', [1] * 3, target_length=10) == -7  # the example's own
