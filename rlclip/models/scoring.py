"""Log-probs and entropy of completions, without ever holding [N, C, V]."""
import jax
import jax.numpy as jnp

from rlclip.models import transformer
from rlclip.types import Params, TokenStats


def score(model: transformer.Model, params: Params, prompts, prompt_lengths,
          completions, *, temperature: float, chunk: int) -> TokenStats:
  """Scores every token of every completion.

  A group's prompt is computed once, and its G completions attend to it.

  Args:
    model: its functions.
    params: its weights.
    prompts: int32[P, S], right-padded.
    prompt_lengths: int32[P], at least 1.
    completions: int32[N, C], right-padded, N a multiple of P.
    temperature: logits are divided by it, as the sampler did.
    chunk: tokens whose logits [chunk, V] exist at once.

  Returns:
    TokenStats [N, C]; values at padding are those of the padding tokens.
  """
  hidden = completion_states(model, params, prompts, prompt_lengths,
                             completions)
  rows, length, width = hidden.shape
  # Chunks run along time, so that rows stay where the mesh put them.
  columns = max(1, min(length, chunk // rows))
  num_chunks = -(-length // columns)
  pad = num_chunks * columns - length
  hidden = jnp.pad(hidden, ((0, 0), (0, pad), (0, 0)))
  targets = jnp.pad(completions, ((0, 0), (0, pad)))
  cut = lambda x: jnp.moveaxis(
      x.reshape(rows, num_chunks, columns, *x.shape[2:]), 1, 0)

  @jax.checkpoint  # logits are recomputed in the backward pass, not stored
  def chunk_stats(args):
    logits = model.unembed(params, args[0]) / temperature
    return token_stats(logits, args[1])

  stats = jax.lax.map(chunk_stats, (cut(hidden), cut(targets)))
  join = lambda x: jnp.moveaxis(x, 0, 1).reshape(rows, -1)[:, :length]
  return jax.tree.map(join, stats)


def completion_states(model, params, prompts, prompt_lengths, completions):
  """States [N, C, D] that predict each completion token."""
  num_prompts, prompt_length = prompts.shape
  group = completions.shape[0] // num_prompts
  positions = jnp.broadcast_to(jnp.arange(prompt_length), prompts.shape)
  states, keys, values = model.apply(params, prompts, positions)
  last = jnp.take_along_axis(
      states, (prompt_lengths - 1)[:, None, None], axis=1)
  last = jnp.repeat(last, group, 0)
  if completions.shape[1] == 1:
    return last
  block = transformer.KVBlock(keys, values, prompt_lengths)
  inputs = completions[:, :-1]
  positions = (jnp.repeat(prompt_lengths, group)[:, None]
               + jnp.arange(inputs.shape[1]))
  states, _, _ = model.apply(params, inputs, positions, (block,))
  return jnp.concatenate([last, states], 1)


def token_stats(logits, targets) -> TokenStats:
  """logits float32[..., V], targets int32[...] -> log-probs and entropy."""
  normalizer = jax.nn.logsumexp(logits, -1)
  chosen = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
  probs = jnp.exp(logits - normalizer[..., None])
  entropy = normalizer - jnp.sum(probs * logits, -1)
  return TokenStats(chosen - normalizer, entropy)
