"""Which weights train: all of them, or low-rank adapters beside a frozen base.

With adapters the model's weights are, on the chosen modules of every layer,

  kernel + (alpha / rank) a @ b,   a [L, in, rank], b [L, rank, out],

and the base elsewhere. The sum is formed inside the differentiated function,
so the model knows nothing of it, and b begins at 0: the policy is the base.

Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021.
"""
from typing import Any, Callable, NamedTuple, Sequence

import jax
import jax.numpy as jnp

from rlclip.types import Array, Params

# Module -> where its kernel [L, in, out] is in a layer.
MODULES = {
    'query': 'attention', 'key': 'attention', 'value': 'attention',
    'output': 'attention', 'gate': 'mlp', 'up': 'mlp', 'down': 'mlp'}


class Trainable(NamedTuple):
  """How a state's parameters, of which some train, make up a model's weights.

  Attributes:
    begin: model weights -> the state's parameters.
    split: the state's parameters -> (what trains, what is frozen).
    join: (what trains, what is frozen) -> the state's parameters.
    merge: (what trains, what is frozen) -> model weights; differentiable.
    axes: the model's logical axes -> those of the state's parameters.
  """
  begin: Callable[[Params], Params]
  split: Callable[[Params], tuple[Params, Params | None]]
  join: Callable[[Params, Params | None], Params]
  merge: Callable[[Params, Params | None], Params]
  axes: Callable[[Any], Any]


# All of the weights. The copy is for the learner to donate.
FULL = Trainable(
    begin=lambda weights: jax.tree.map(jnp.copy, weights),
    split=lambda params: (params, None),
    join=lambda trained, frozen: trained,
    merge=lambda trained, frozen: trained,
    axes=lambda axes: axes)


def make(rank: int, *, alpha: float, modules: Sequence[str],
         seed: int = 0) -> Trainable:
  """Adapters of a rank; rank 0 trains all weights.

  Args:
    rank: columns of a and rows of b.
    alpha: the sum's weight is alpha / rank.
    modules: out of MODULES.
    seed: of a, which is normal with variance 1 / in.

  Returns:
    A Trainable. Its state's parameters are {'base': model weights, 'adapters':
    a tree of the chosen modules alone}.

  Raises:
    ValueError: on an unknown module or none, or a rank below 0.
  """
  if rank == 0:
    return FULL
  unknown = [name for name in modules if name not in MODULES]
  if rank < 0 or unknown or not modules:
    raise ValueError(
        f'Adapters need a rank of 0 (none) or more, and modules out of '
        f'{", ".join(MODULES)}; got rank {rank} and {tuple(modules)}.')

  def begin(weights):
    keys = iter(jax.random.split(jax.random.key(seed), len(modules)))
    return {'base': weights, 'adapters': _at_modules(
        weights, modules, lambda kernel: _initial(next(keys), kernel, rank))}

  return Trainable(
      begin=begin,
      split=lambda params: (params['adapters'], params['base']),
      join=lambda trained, frozen: {'base': frozen, 'adapters': trained},
      merge=lambda trained, frozen: _merge(trained, frozen, alpha / rank),
      axes=lambda axes: {'base': axes, 'adapters': _at_modules(
          axes, modules, lambda kernel: {
              'a': (*kernel[:2], None), 'b': (kernel[0], None, kernel[2])})})


def _at_modules(weights, modules, function):
  """{'layers': {'attention': {'query': function(kernel)}}} and so on."""
  layers = {}
  for name in modules:
    part = MODULES[name]
    kernel = weights['layers'][part][name]['kernel']
    layers.setdefault(part, {})[name] = function(kernel)
  return {'layers': layers}


def _initial(key, kernel: Array, rank) -> dict[str, Array]:
  layers, size_in, size_out = kernel.shape
  a = jax.random.normal(key, (layers, size_in, rank), kernel.dtype)
  return {'a': a / jnp.sqrt(size_in).astype(kernel.dtype),
          'b': jnp.zeros((layers, rank, size_out), kernel.dtype)}


def _merge(adapters, base, scale):
  layers = dict(base['layers'])
  for part, modules in adapters['layers'].items():
    layers[part] = dict(layers[part])
    for name, pair in modules.items():
      # The product is small, and is of weights: no rounding to bfloat16.
      low_rank = jnp.matmul(
          pair['a'], pair['b'], precision=jax.lax.Precision.HIGHEST)
      module = layers[part][name]
      layers[part][name] = {
          **module, 'kernel': module['kernel'] + scale * low_rank}
  return {**base, 'layers': layers}
