"""Shares of repeated n-grams, by hand."""
import pytest

from rlclip import rewards


@pytest.mark.parametrize('tokens, expected', [
    ([1, 2, 3, 1, 2, 3], -2 / 5),  # 12 23 31 12 23: 3 distinct of 5
    ([7] * 5, -3 / 4), ([1, 2, 3], 0), ([1], 0), ([], 0)])
def test_bigrams_of_tokens(tokens, expected):
  got = rewards.get('repetition(ngram_size=2)')('', '', tokens)
  assert got == pytest.approx(expected)


def test_of_words_where_there_are_no_tokens():
  # 'a b', 'b a', 'a b': 2 distinct of 3.
  got = rewards.get('repetition(ngram_size=2)')('', 'a b A B', ())
  assert got == pytest.approx(-1 / 3)


def test_an_ngram_has_a_size():
  with pytest.raises(ValueError, match='ngram_size of 1 or more, got 0'):
    rewards.get('repetition(ngram_size=0)')('', 'a b', ())
