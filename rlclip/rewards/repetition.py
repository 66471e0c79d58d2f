"""A penalty for saying the same again and again."""
from typing import Hashable, Sequence

from rlclip import rewards


def repeated_share(items: Sequence[Hashable], ngram_size: int) -> float:
  """Share of n-grams that have occurred before: 1 - distinct / all.

  Args:
    items: words, or token ids.
    ngram_size: items in an n-gram, 1 or more.

  Returns:
    In [0, 1); 0 where there is no n-gram.

  Raises:
    ValueError: an ngram_size below 1.
  """
  if ngram_size < 1:
    raise ValueError(f'Expected an ngram_size of 1 or more, got {ngram_size}.')
  grams = list(zip(*(items[i:] for i in range(ngram_size))))
  return 1.0 - len(set(grams)) / len(grams) if grams else 0.0


@rewards.register('repetition')
def repetition(prompt: str, completion: str, tokens, *, ngram_size: float = 4,
               **fields) -> float:
  """Minus the share of repeated n-grams, of token ids, else of words.

  Source: Yeo et al., arXiv 2502.03373 (a penalty on repeated n-grams),
  second-hand; the share as such is derived here.
  """
  del prompt, fields
  items = list(tokens) or completion.lower().split()
  return -repeated_share(items, int(ngram_size))
