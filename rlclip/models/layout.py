"""Hugging Face's tensors <-> the parameter tree, a tensor at a time."""
import functools
from typing import Callable, Collection, NamedTuple

import chex
import jax
import numpy as np

from rlclip.models import config as config_lib
from rlclip.models import transformer
from rlclip.types import Params

# Path in our tree -> tensor name; {} is the layer. Kernels and the head are
# [in, out] here and [out, in] there.
_NAMES = {
    'embedding': 'model.embed_tokens.weight',
    'norm/scale': 'model.norm.weight',
    'head': 'lm_head.weight',
}
_LAYER_NAMES = {
    'attention_norm/scale': 'input_layernorm.weight',
    'attention/query/kernel': 'self_attn.q_proj.weight',
    'attention/query/bias': 'self_attn.q_proj.bias',
    'attention/query_norm/scale': 'self_attn.q_norm.weight',
    'attention/key/kernel': 'self_attn.k_proj.weight',
    'attention/key/bias': 'self_attn.k_proj.bias',
    'attention/key_norm/scale': 'self_attn.k_norm.weight',
    'attention/value/kernel': 'self_attn.v_proj.weight',
    'attention/value/bias': 'self_attn.v_proj.bias',
    'attention/output/kernel': 'self_attn.o_proj.weight',
    'mlp_norm/scale': 'post_attention_layernorm.weight',
    'mlp/gate/kernel': 'mlp.gate_proj.weight',
    'mlp/up/kernel': 'mlp.up_proj.weight',
    'mlp/down/kernel': 'mlp.down_proj.weight',
}
_NAMES |= {f'layers/{path}': 'model.layers.{}.' + name
           for path, name in _LAYER_NAMES.items()}


class Tensor(NamedTuple):
  """A stored tensor that is read by slices.

  Attributes:
    shape: as stored.
    read: a tuple of slices -> float array of that part.
  """
  shape: tuple[int, ...]
  read: Callable[[tuple[slice, ...]], np.ndarray]


def abstract_params(config: config_lib.ModelConfig,
                    shardings: Params | None = None) -> Params:
  """Shapes, dtypes and shardings of the parameters; by default one device's."""
  shapes = jax.eval_shape(transformer.make(config).init, jax.random.key(0))
  if shardings is None:
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    shardings = jax.tree.map(lambda _: device, shapes)
  return jax.tree.map(
      lambda leaf, sharding: jax.ShapeDtypeStruct(
          leaf.shape, leaf.dtype, sharding=sharding), shapes, shardings)


def assemble(config: config_lib.ModelConfig, tensors: dict[str, Tensor],
             shardings: Params | None = None, where: str = 'The weights'
             ) -> Params:
  """Stored tensors -> the parameter tree on devices.

  Args:
    config: the architecture.
    tensors: by Hugging Face name.
    shardings: a tree like the parameters; None is the default device.
    where: they come from, for messages.

  Raises:
    ValueError: naming the first tensors that are missing, unexpected or of
      another shape than `config` says.
  """
  abstract = abstract_params(config, shardings)
  _check(config, tensors, where)

  def place(path, leaf):
    name = _tensor_name(path)
    read = lambda index: _read_leaf(tensors, name, leaf.shape, index)
    return jax.make_array_from_callback(leaf.shape, leaf.sharding, read)

  return jax.tree_util.tree_map_with_path(place, abstract)


def disassemble(config: config_lib.ModelConfig, params: Params, dtype
                ) -> dict[str, Callable[[], np.ndarray]]:
  """The inverse of assemble: Hugging Face name -> call for the array.

  Arrays come to the host one by one, as they are called for.
  """
  chex.assert_trees_all_equal_shapes(params, abstract_params(config))

  def fetch(leaf, name, layer):
    array = np.asarray(leaf if layer is None else leaf[layer]).astype(dtype)
    return np.ascontiguousarray(array.T if _is_transposed(name) else array)

  calls = {}
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    name = _tensor_name(path)
    for layer in range(leaf.shape[0]) if '{}' in name else (None,):
      calls[name.format(layer)] = functools.partial(fetch, leaf, name, layer)
  return calls


def stored_shapes(config: config_lib.ModelConfig
                  ) -> dict[str, tuple[int, ...]]:
  """Hugging Face name -> shape as stored, in the order of the layers."""
  abstract, shapes = abstract_params(config), {}
  for path, leaf in jax.tree_util.tree_leaves_with_path(abstract):
    name, shape = _tensor_name(path), leaf.shape
    stacked = '{}' in name
    one = shape[1:] if stacked else shape
    one = one[::-1] if _is_transposed(name) else one
    for layer in range(shape[0] if stacked else 1):
      shapes[name.format(layer)] = layer, one
  ends = (_NAMES['norm/scale'], _NAMES['head'])
  order = lambda name: (name in ends, 'layers' in name, shapes[name][0])
  return {name: shapes[name][1] for name in sorted(shapes, key=order)}


def first(names: Collection[str], count: int = 3) -> str:
  """The first names of many, for a message."""
  rest = f', and {len(names) - count} more' if len(names) > count else ''
  return ', '.join(list(names)[:count]) + rest


def _tensor_name(path) -> str:
  return _NAMES['/'.join(key.key for key in path)]


def _is_transposed(name) -> bool:
  return '_proj.weight' in name or name == 'lm_head.weight'


def _check(config, tensors, where):
  expected = stored_shapes(config)
  # Old Llama files keep the rotary frequencies, which config.json decides.
  unexpected = [name for name in tensors if name not in expected
                and not name.endswith('rotary_emb.inv_freq')]
  head, table = _NAMES['head'], _NAMES['embedding']
  if config.tie_embeddings and head in unexpected:
    unexpected.remove(head)
    if table in tensors and not _equal(tensors[head], tensors[table]):
      raise ValueError(
          f'{where}: config.json ties the output head to the embedding, but '
          f'the stored {head} differs from {table}. Set tie_word_embeddings '
          f'to false in config.json to use it, or remove it.')
  missing = [name for name in expected if name not in tensors]
  misshapen = [
      f'{name} is {tuple(tensors[name].shape)}, expected {shape}'
      for name, shape in expected.items()
      if name in tensors and tuple(tensors[name].shape) != shape]
  problems = {'missing': missing, 'unexpected': unexpected,
              'of another shape': misshapen}
  found = [f'{len(names)} {what}: {first(names)}'
           for what, names in problems.items() if names]
  if found:
    raise ValueError(
        f'{where}: the tensors do not fit the {config.family} config. '
        f'{". ".join(found)}. Take config.json and weights from one model.')


def _equal(head, table) -> bool:
  """Compares two tables, some rows at a time."""
  if tuple(head.shape) != tuple(table.shape):
    return False
  rows = table.shape[0]
  blocks = [(slice(i, min(i + 8192, rows)), slice(None))
            for i in range(0, rows, 8192)]
  return all(np.array_equal(head.read(block), table.read(block))
             for block in blocks)


def _read_leaf(tensors, name, shape, index) -> np.ndarray:
  """The part `index` of a leaf, float32."""
  index = tuple(slice(*s.indices(n)) for s, n in zip(index, shape))
  if '{}' not in name:
    return _read_part(tensors[name], name, index)
  layers = range(index[0].start, index[0].stop)
  out = np.empty([s.stop - s.start for s in index], np.float32)
  for i, layer in enumerate(layers):
    out[i] = _read_part(tensors[name.format(layer)], name, index[1:])
  return out


def _read_part(tensor, name, index) -> np.ndarray:
  if _is_transposed(name):
    return np.ascontiguousarray(
        tensor.read(index[::-1]).astype(np.float32).T)
  return tensor.read(index).astype(np.float32)
