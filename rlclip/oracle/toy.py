"""Autoregressive softmax policies whose sequences can all be listed."""
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = Any


class Toy(NamedTuple):
  """Every sequence that a tabular policy can produce.

  A policy is a table of logits float64[R, V], one row a context and prefix.
  M sequences of at most T tokens; with T = 1 it is a contextual bandit.
  """
  tokens: np.ndarray  # int[M, T]
  rows: np.ndarray  # int[M, T], the table's row that predicts the token
  mask: np.ndarray  # bool[M, T]
  contexts: np.ndarray  # int[M]
  num_rows: int
  num_tokens: int

  @property
  def num_contexts(self) -> int:
    return int(self.contexts.max()) + 1

  def logps(self, logits: Array) -> Array:
    """Log-prob of every token of every sequence, [M, T]; 0 where masked."""
    table = jax.nn.log_softmax(logits, axis=-1)
    return jnp.where(self.mask, table[self.rows, self.tokens], 0.0)

  def probabilities(self, logits: Array) -> Array:
    """Of whole sequences, [M]; contexts are equally likely; sums to 1."""
    return jnp.exp(jnp.sum(self.logps(logits), -1)) / self.num_contexts


def enumerate_sequences(num_tokens: int, length: int, *, num_contexts: int = 1,
                        stop: int | None = None) -> Toy:
  """Lists all sequences.

  Args:
    num_tokens: V.
    length: T, the longest.
    num_contexts: prompts, equally likely, each with its own logits.
    stop: a token that ends a sequence and belongs to it; None for none.

  Returns:
    The Toy.

  Raises:
    ValueError: if there are more than 100,000 sequences.
  """
  if num_contexts * num_tokens ** length > 100_000:
    raise ValueError(
        f'Expected at most 100,000 sequences to list, got {num_contexts} x '
        f'{num_tokens}^{length}. Take fewer tokens or a shorter length.')
  row_by_prefix, sequences = {}, []
  for context in range(num_contexts):
    endings = set()
    for tokens in itertools.product(range(num_tokens), repeat=length):
      if stop in tokens:
        tokens = tokens[:tokens.index(stop) + 1]
      if tokens in endings:
        continue
      endings.add(tokens)
      rows = [row_by_prefix.setdefault((context, tokens[:t]),
                                       len(row_by_prefix))
              for t in range(len(tokens))]
      sequences.append((context, tokens, rows))
  pad = lambda values: list(values) + [0] * (length - len(values))
  return Toy(
      tokens=np.array([pad(tokens) for _, tokens, _ in sequences]),
      rows=np.array([pad(rows) for _, _, rows in sequences]),
      mask=np.array([[t < len(tokens) for t in range(length)]
                     for _, tokens, _ in sequences]),
      contexts=np.array([context for context, _, _ in sequences]),
      num_rows=len(row_by_prefix), num_tokens=num_tokens)
