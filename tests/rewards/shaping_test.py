"""What a completion loses for its length, by hand."""
import numpy as np
import pytest

from rlclip.rewards import shaping


def test_the_penalty_grows_through_the_buffer():
  # 20 tokens at most, the last 8 of them cost: 12 are free, 16 are halfway.
  got = shaping.overlong_penalty(
      np.array([[0, 12, 13], [16, 20, 25]]), max_length=20, buffer=8,
      factor=0.5)
  np.testing.assert_array_equal(got, [[0, 0, -1 / 16], [-1 / 4, -.5, -.5]])


@pytest.mark.parametrize('buffer, factor', [(0, 1), (21, 1), (8, 0), (8, -1)])
def test_what_would_be_no_penalty_is_refused(buffer, factor):
  with pytest.raises(ValueError, match='1 <= buffer <= max_length = 20'):
    shaping.overlong_penalty(
        np.zeros(1), max_length=20, buffer=buffer, factor=factor)
