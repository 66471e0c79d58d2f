"""Weights from GGUF files (llama.cpp), dequantized to float32."""
import dataclasses
import os

import numpy as np

from rlclip.models import config as config_lib
from rlclip.models import layout, transformer
from rlclip.types import Params

try:
  import gguf
except ImportError as error:
  raise ImportError(
      "Reading GGUF needs the package gguf: pip install 'rlclip[gguf]'"
  ) from error

# GGUF name -> Hugging Face name; {} is the layer.
_NAMES = {
    'token_embd.weight': 'model.embed_tokens.weight',
    'output_norm.weight': 'model.norm.weight',
    'output.weight': 'lm_head.weight',
}
_LAYER_NAMES = {
    'attn_norm.weight': 'input_layernorm.weight',
    'attn_q.weight': 'self_attn.q_proj.weight',
    'attn_q.bias': 'self_attn.q_proj.bias',
    'attn_q_norm.weight': 'self_attn.q_norm.weight',
    'attn_k.weight': 'self_attn.k_proj.weight',
    'attn_k.bias': 'self_attn.k_proj.bias',
    'attn_k_norm.weight': 'self_attn.k_norm.weight',
    'attn_v.weight': 'self_attn.v_proj.weight',
    'attn_v.bias': 'self_attn.v_proj.bias',
    'attn_output.weight': 'self_attn.o_proj.weight',
    'ffn_norm.weight': 'post_attention_layernorm.weight',
    'ffn_gate.weight': 'mlp.gate_proj.weight',
    'ffn_up.weight': 'mlp.up_proj.weight',
    'ffn_down.weight': 'mlp.down_proj.weight',
}
_ROPE_FACTORS = 'rope_freqs.weight'


def load(path: str, shardings: Params | None = None
         ) -> tuple[config_lib.ModelConfig, Params]:
  """Loads a GGUF file; arguments and result as huggingface.load.

  llama.cpp turns neighboring dimensions of a Llama head, where the Hub turns
  dimension i with i + head_dim / 2; the rows of q and k are put back.

  Raises:
    ValueError: on another architecture, a damaged file, and tensors that do
      not fit the metadata.
    FileNotFoundError: without the file.
  """
  reader = open_file(path)
  config = read_config(reader)
  names = _NAMES | {
      f'blk.{i}.{name}': f'model.layers.{i}.{stored}'
      for i in range(config.num_layers)
      for name, stored in _LAYER_NAMES.items()}
  tensors = {
      names.get(tensor.name, tensor.name): _tensor(config, tensor)
      for tensor in reader.tensors if tensor.name != _ROPE_FACTORS}
  return config, layout.assemble(config, tensors, shardings, path)


def open_file(path: str) -> 'gguf.GGUFReader':
  """Maps the file into memory.

  Raises:
    FileNotFoundError: without the file.
    ValueError: where it is truncated or no GGUF file.
  """
  if not os.path.isfile(path):
    raise FileNotFoundError(f'No GGUF file {path}.')
  try:
    return gguf.GGUFReader(path)
  except (ValueError, IndexError) as error:
    raise ValueError(
        f'{path} ({os.path.getsize(path)} bytes) is truncated or no GGUF '
        f'file: {error}. Download it again.') from error


def read_config(reader: 'gguf.GGUFReader') -> config_lib.ModelConfig:
  """The architecture, from the metadata and the tensors' shapes."""
  family = value(reader, 'general.architecture')
  if family not in config_lib.ARCHITECTURES:
    raise ValueError(
        f'Unknown GGUF architecture {family!r}. Known: '
        f'{", ".join(config_lib.ARCHITECTURES)}.')
  read = lambda key, *default: value(reader, f'{family}.{key}', *default)
  scaled = read('rope.scaling.type', 'none')
  if scaled != 'none':
    raise ValueError(
        f'{family}.rope.scaling.type is {scaled!r}; only Llama 3 scaling, '
        f'stored as {_ROPE_FACTORS}, is known.')
  tensors = {tensor.name: tensor for tensor in reader.tensors}
  heads, width = read('attention.head_count'), read('embedding_length')
  config = config_lib.ModelConfig(
      family=family,
      vocab_size=int(tensors['token_embd.weight'].shape[1]),
      hidden_size=width,
      num_layers=read('block_count'),
      num_heads=heads,
      num_kv_heads=read('attention.head_count_kv', heads),
      head_dim=read('attention.key_length', width // heads),
      intermediate_size=read('feed_forward_length'),
      rope_theta=_decimal(read('rope.freq_base', 10_000.0)),
      norm_epsilon=_decimal(read('attention.layer_norm_rms_epsilon')),
      tie_embeddings='output.weight' not in tensors,
      qkv_bias=family == 'qwen2',
      qk_norm=family == 'qwen3',
      max_positions=read('context_length'))
  if _ROPE_FACTORS not in tensors:
    return config
  return with_rope_scaling(config, tensors[_ROPE_FACTORS].data)


def value(reader: 'gguf.GGUFReader', key: str, *default):
  """A metadata value as a Python object.

  Raises:
    ValueError: where the key is missing and no default is given.
  """
  field = reader.get_field(key)
  if field is not None:
    return field.contents()
  if default:
    return default[0]
  raise ValueError(f'The GGUF file lacks the metadata key {key!r}.')


def with_rope_scaling(config: config_lib.ModelConfig, divisors: np.ndarray
                      ) -> config_lib.ModelConfig:
  """Finds the scaling by which the frequencies are divided.

  llama.cpp keeps the divisors but not what they were computed from. Llama 3's
  models differ in `factor` alone, which is the largest divisor; whether the
  rest is as in theirs is checked by computing the divisors again.
  """
  scaled = dataclasses.replace(
      config, rope_scaling=config_lib.RopeScaling(
          factor=_decimal(np.max(divisors)), low_freq_factor=1.0,
          high_freq_factor=4.0, original_max_positions=8192))
  computed = (transformer.rotary_frequencies(config)
              / transformer.rotary_frequencies(scaled))
  if not np.allclose(computed, divisors, rtol=1e-4):
    raise ValueError(
        f'{_ROPE_FACTORS} is no Llama 3 scaling of 8192 positions: expected '
        f'divisors {computed}, got {divisors}. Take the model as safetensors.')
  return scaled


def _tensor(config, tensor) -> layout.Tensor:
  shape = tuple(int(size) for size in reversed(tensor.shape))

  def read(index):
    array = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    array = array.reshape(shape)
    heads = {'attn_q.weight': config.num_heads,
             'attn_k.weight': config.num_kv_heads}.get(
                 tensor.name.split('.', 2)[-1])
    if config.family == 'llama' and heads is not None:
      # Rows (head, pair, half) -> (head, half, pair).
      array = array.reshape(heads, -1, 2, shape[1]).swapaxes(1, 2)
      array = array.reshape(shape)
    return array[index]

  return layout.Tensor(shape, read)


def _decimal(number: float) -> float:
  """The shortest decimal that float32 stored as `number`."""
  return float(str(np.float32(number)))
