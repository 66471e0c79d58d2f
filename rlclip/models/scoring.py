"""Log-probs, entropy and divergences of completions, never holding [N, C, V].
"""
import functools
from typing import Mapping, NamedTuple, Sequence

import jax
import jax.numpy as jnp

from rlclip import divergences
from rlclip.models import groups, transformer
from rlclip.types import Array, Packing, Params, Statistic, TokenStats


class Texts(NamedTuple):
  """What is scored."""
  prompts: Array  # int32[P, S], right-padded
  prompt_lengths: Array  # int32[P], at least 1
  completions: Array  # int32[N, C], right-padded, N a multiple of P
  packing: Packing | None = None


def score(model: transformer.Model, params: Params, texts: Texts, *,
          temperature: float, chunk: int) -> TokenStats:
  """Scores every token of every completion.

  A group's prompt is computed once, and its G completions attend to it.

  Args:
    model: its functions.
    params: its weights.
    texts: prompts and completions.
    temperature: logits are divided by it, as the sampler did.
    chunk: tokens whose logits [chunk, V] exist at once.

  Returns:
    TokenStats [N, C]; values at padding are those of the padding tokens, or,
    with a packing, anything.
  """
  return score_against(
      model, params, {}, texts, (), temperature=temperature, chunk=chunk)[0]


def score_against(
    model: transformer.Model, params: Params, others: Mapping[str, Params],
    texts: Texts, statistics: Sequence[Statistic], *, temperature: float,
    chunk: int) -> tuple[TokenStats, dict[str, TokenStats]]:
  """Scores completions under a policy and, held fixed, under others.

  Args:
    model: of all of them.
    params: of the policy, differentiable.
    others: weights by name, such as 'reference' and 'anchor'.
    texts: prompts and completions.
    statistics: divergences of the policy from those others, for `extra`.
    temperature: as in `score`.
    chunk: as in `score`; of each policy.

  Returns:
    The policy's TokenStats and those of the others, by name.

  Raises:
    ValueError: for a statistic toward weights that are not given.
  """
  for statistic in statistics:
    if statistic.toward not in others:
      raise ValueError(
          f'{statistic} needs the weights of {statistic.toward!r}, got those '
          f'of {tuple(others)}. Pass them to update().')
  states = {name: jax.lax.stop_gradient(completion_states(
      model, weights, texts)) for name, weights in others.items()}
  states[''] = completion_states(model, params, texts)
  rows, length, _ = states[''].shape
  # Chunks run along time, so that rows stay where the mesh put them.
  columns = max(1, min(length, chunk // rows))
  num_chunks = -(-length // columns)
  pad = num_chunks * columns - length

  def cut(x):
    x = jnp.pad(x, ((0, 0), (0, pad)) + ((0, 0),) * (x.ndim - 2))
    return jnp.moveaxis(
        x.reshape(rows, num_chunks, columns, *x.shape[2:]), 1, 0)

  @jax.checkpoint  # logits are recomputed in the backward pass, not stored
  def chunk_stats(args):
    states, targets = args
    logits = {name: model.unembed(others.get(name, params), x) / temperature
              for name, x in states.items()}
    stats = {name: token_stats(x, targets) for name, x in logits.items()}
    extra = {s: divergence(s, logits[''], logits[s.toward])
             for s in statistics}
    return {**stats, '': stats['']._replace(extra=extra)}

  targets = _packed(texts.completions, texts.packing)
  stats = jax.lax.map(chunk_stats, (jax.tree.map(cut, states), cut(targets)))

  def join(x):
    x = jnp.moveaxis(x, 0, 1).reshape(rows, -1)[:, :length]
    if texts.packing is None:
      return x
    places = texts.packing.first[:, None] + jnp.arange(length)
    return x.reshape(-1).at[places].get(mode='fill', fill_value=0)
  stats = jax.tree.map(join, stats)
  return stats.pop(''), jax.lax.stop_gradient(stats)


def completion_states(model, params, texts):
  """States that predict each completion token, [N, C, D] or packed [R, C, D].

  As in the sampler, what a group shares is its prompt without the last token,
  which is the first input of each completion.
  """
  prompts, prompt_lengths, completions, packing = texts
  if model.grouped is not None:
    return groups.completion_states(
        functools.partial(model.apply, params), model.grouped, *texts[:3])
  num_rows, length = completions.shape
  group = num_rows // prompts.shape[0]
  positions = jnp.broadcast_to(jnp.arange(prompts.shape[1]), prompts.shape)
  _, keys, values = model.apply(params, prompts, positions)
  last = jnp.take_along_axis(prompts, prompt_lengths[:, None] - 1, 1)
  inputs = jnp.concatenate(
      [jnp.repeat(last, group, 0), completions[:, :-1]], 1)
  starts = jnp.repeat(prompt_lengths - 1, group)
  positions = starts[:, None] + jnp.arange(length)
  members = segments = None
  if packing is not None:
    members = transformer.Members(packing.rows, packing.places)
    segments = packing.source // length
  block = transformer.KVBlock(keys, values, prompt_lengths - 1, members)
  return model.apply(
      params, _packed(inputs, packing), _packed(positions, packing), (block,),
      segments=segments)[0]


def _packed(array, packing):
  """[N, C] -> [R, C], 0 where a slot is empty."""
  if packing is None:
    return array
  return array.reshape(-1).at[packing.source].get(mode='fill', fill_value=0)


def token_stats(logits, targets) -> TokenStats:
  """logits float32[..., V], targets int32[...] -> log-probs and entropy."""
  peak = jax.lax.stop_gradient(jnp.max(logits, -1, keepdims=True))
  # The exponentials are formed once, and summed by products with ones: XLA's
  # CPU kernels for sums would form them again, one at a time.
  scaled = jax.lax.optimization_barrier(jnp.exp(logits - peak))
  ones = jnp.ones(logits.shape[-1:], logits.dtype)
  add_up = lambda x: jnp.matmul(x, ones, precision=jax.lax.Precision.HIGHEST)
  total, moment = add_up(scaled), add_up(scaled * logits)
  normalizer = peak[..., 0] + jnp.log(total)
  chosen = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
  return TokenStats(chosen - normalizer, normalizer - moment / total)


def divergence(statistic: Statistic, logits, other_logits):
  """D(policy || other) at each position, from logits [..., V] -> [...].

  With `top_k` the tokens outside the other's K likeliest are one bin. That
  is a lower bound of the whole divergence (data processing).
  """
  log_p = jax.nn.log_softmax(logits, -1)
  log_q = jax.nn.log_softmax(other_logits, -1)
  if statistic.top_k:
    log_q, kept = jax.lax.top_k(log_q, statistic.top_k)
    log_p = jnp.take_along_axis(log_p, kept, -1)
    log_p, log_q = (jnp.concatenate([x, _log_rest(x)], -1)
                    for x in (log_p, log_q))
  return divergences.get(statistic.measure).exact(log_p, log_q)


def _log_rest(log_probs):
  """log of what is missing from a total of 1, [..., 1]; about -16 at least."""
  total = jnp.sum(jnp.exp(log_probs), -1, keepdims=True)
  # Float32 sums miss 1 by 1e-7: below that the rest is not known.
  return jnp.log(jnp.maximum(1 - total, jnp.finfo(log_probs.dtype).eps))
