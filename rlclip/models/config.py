"""Architecture of a decoder, read from and written to Hugging Face's config."""
import dataclasses
from typing import Any, Mapping

# Family -> its class in transformers. What else a family means is in from_hf.
ARCHITECTURES = {
    'llama': 'LlamaForCausalLM',
    'qwen2': 'Qwen2ForCausalLM',
    'qwen3': 'Qwen3ForCausalLM',
}


@dataclasses.dataclass(frozen=True)
class RopeScaling:
  """Llama 3's rescaling of rotary frequencies; it acts at every length."""
  factor: float
  low_freq_factor: float
  high_freq_factor: float
  original_max_positions: int


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """One transformer for Llama, Qwen2/2.5, Qwen3 and SmolLM2.

  Attributes:
    family: 'llama', 'qwen2' or 'qwen3'; names the Hugging Face layout.
    vocab_size: rows of the embedding, often more than the tokenizer's tokens.
    hidden_size: width of the residual stream.
    num_layers: decoder layers.
    num_heads: query heads.
    num_kv_heads: key and value heads, a divisor of num_heads.
    head_dim: width of a head; not always hidden_size / num_heads.
    intermediate_size: width of the gated MLP.
    rope_theta: base of the rotary frequencies.
    rope_scaling: Llama 3's, or None.
    norm_epsilon: of every RMSNorm.
    tie_embeddings: whether the output head is the embedding.
    qkv_bias: bias on query, key and value (Qwen2).
    qk_norm: RMSNorm over head_dim on query and key (Qwen3).
    max_positions: positions the model was made for.
    initializer_range: std of random weights.
  """
  family: str
  vocab_size: int
  hidden_size: int
  num_layers: int
  num_heads: int
  num_kv_heads: int
  head_dim: int
  intermediate_size: int
  rope_theta: float = 10_000.0
  rope_scaling: RopeScaling | None = None
  norm_epsilon: float = 1e-6
  tie_embeddings: bool = True
  qkv_bias: bool = False
  qk_norm: bool = False
  max_positions: int = 2048
  initializer_range: float = 0.02

  def __post_init__(self):
    if self.num_heads % self.num_kv_heads:
      raise ValueError(
          f'num_heads must be a multiple of num_kv_heads, got '
          f'{self.num_heads} and {self.num_kv_heads}.')
    if self.head_dim % 2:
      raise ValueError(
          f'head_dim must be even (rotary pairs), got {self.head_dim}.')

  @property
  def num_params(self) -> int:
    """Parameters, a tied head counted once."""
    kv = self.num_kv_heads * self.head_dim
    heads = self.num_heads * self.head_dim
    attention = self.hidden_size * (2 * heads + 2 * kv)
    extras = (heads + 2 * kv) * self.qkv_bias + 2 * self.head_dim * self.qk_norm
    layer = (attention + extras + 3 * self.hidden_size * self.intermediate_size
             + 2 * self.hidden_size)
    tables = (1 if self.tie_embeddings else 2) * self.vocab_size
    return self.num_layers * layer + (tables + 1) * self.hidden_size


def from_hf(values: Mapping[str, Any]) -> ModelConfig:
  """Reads the keys of a config.json, spelled as in transformers 4 or 5.

  What the published files leave unsaid is filled in as transformers does:
  Qwen2 has biases on query, key and value, a missing head_dim is
  hidden_size / num_attention_heads, and sliding_window counts only where
  use_sliding_window is true.

  Args:
    values: the parsed file.

  Returns:
    ModelConfig.

  Raises:
    ValueError: on an unknown architecture, a missing key, or a feature that
      this transformer does not compute.
  """
  family = values.get('model_type')
  if family not in ARCHITECTURES:
    raise ValueError(
        f'Unknown architecture: model_type {family!r} (architectures '
        f"{values.get('architectures')}). Known model types: "
        f'{", ".join(ARCHITECTURES)}.')
  required = ('vocab_size', 'hidden_size', 'intermediate_size',
              'num_hidden_layers', 'num_attention_heads',
              'max_position_embeddings', 'rms_norm_eps')
  if family != 'llama':
    required += ('num_key_value_heads',)
  missing = [key for key in required if values.get(key) is None]
  if missing:
    raise ValueError(
        f'The {family} config lacks {", ".join(missing)}. Complete its '
        f'config.json.')
  _refuse_unsupported(family, values)
  theta, scaling = _rope(values)
  heads = values['num_attention_heads']
  return ModelConfig(
      family=family,
      vocab_size=values['vocab_size'],
      hidden_size=values['hidden_size'],
      num_layers=values['num_hidden_layers'],
      num_heads=heads,
      num_kv_heads=values.get('num_key_value_heads') or heads,
      head_dim=_head_dim(family, values),
      intermediate_size=values['intermediate_size'],
      rope_theta=theta,
      rope_scaling=scaling,
      norm_epsilon=values['rms_norm_eps'],
      tie_embeddings=bool(values.get('tie_word_embeddings', False)),
      qkv_bias=family == 'qwen2',
      qk_norm=family == 'qwen3',
      max_positions=values['max_position_embeddings'],
      initializer_range=values.get('initializer_range', 0.02))


def to_hf(config: ModelConfig, dtype: str) -> dict[str, Any]:
  """The config.json of `config`, for transformers 4 and 5 alike.

  Args:
    config: the architecture.
    dtype: of the stored tensors, as 'bfloat16'.

  Raises:
    ValueError: where `config` is none of the known families' layouts.
  """
  biased, normed = config.family == 'qwen2', config.family == 'qwen3'
  if (config.family not in ARCHITECTURES
      or (config.qkv_bias, config.qk_norm) != (biased, normed)):
    raise ValueError(
        f'No Hugging Face layout for family {config.family!r} with qkv_bias='
        f'{config.qkv_bias} and qk_norm={config.qk_norm}. qwen2 has the '
        f'biases, qwen3 the norms, llama neither.')
  rope, scaling = {'rope_type': 'default'}, None
  if config.rope_scaling is not None:
    s = config.rope_scaling
    rope = scaling = {
        'rope_type': 'llama3',
        'factor': s.factor,
        'low_freq_factor': s.low_freq_factor,
        'high_freq_factor': s.high_freq_factor,
        'original_max_position_embeddings': s.original_max_positions,
    }
  values = {
      'architectures': [ARCHITECTURES[config.family]],
      'model_type': config.family,
      'vocab_size': config.vocab_size,
      'hidden_size': config.hidden_size,
      'intermediate_size': config.intermediate_size,
      'num_hidden_layers': config.num_layers,
      'num_attention_heads': config.num_heads,
      'num_key_value_heads': config.num_kv_heads,
      'head_dim': config.head_dim,
      'hidden_act': 'silu',
      'rms_norm_eps': config.norm_epsilon,
      'tie_word_embeddings': config.tie_embeddings,
      'max_position_embeddings': config.max_positions,
      'initializer_range': config.initializer_range,
      'rope_theta': config.rope_theta,
      'rope_scaling': scaling,
      'rope_parameters': {**rope, 'rope_theta': config.rope_theta},
      'torch_dtype': dtype,
      'dtype': dtype,
  }
  if config.family != 'qwen2':  # there it follows from the type
    values['attention_bias'] = False
  if config.family == 'llama':
    values['mlp_bias'] = False
  else:
    values['use_sliding_window'] = False
  return values


def _refuse_unsupported(family, values):
  """Stops on what would load without complaint and compute something else."""
  sliding = values.get('use_sliding_window') or 'sliding_attention' in (
      values.get('layer_types') or ())
  # Qwen2 ignores attention_bias: its biases follow from the type.
  biased = values.get('attention_bias') and family != 'qwen2'
  reasons = {
      'use_sliding_window: attention is over the full context': sliding,
      'attention_bias: it would add a bias to the attention output': biased,
      'mlp_bias': values.get('mlp_bias'),
      'quantization_config: convert the weights to bfloat16 first':
          values.get('quantization_config'),
      f"hidden_act {values.get('hidden_act')!r}: only silu is":
          values.get('hidden_act', 'silu') not in ('silu', 'swish'),
      f"partial_rotary_factor {values.get('partial_rotary_factor')}":
          values.get('partial_rotary_factor', 1.0) != 1.0,
  }
  found = [reason for reason, present in reasons.items() if present]
  if found:
    raise ValueError(
        f'This {family} config asks for what is not supported: '
        f'{"; ".join(found)}. Choose another model.')


def _head_dim(family, values):
  if values.get('head_dim') is not None:
    return values['head_dim']
  if family == 'qwen3':
    return 128  # the type's own default, whatever the width
  width, heads = values['hidden_size'], values['num_attention_heads']
  if width % heads:
    raise ValueError(
        f'head_dim is not given, and hidden_size {width} is no multiple of '
        f'num_attention_heads {heads}. Add head_dim to config.json.')
  return width // heads


def _rope(values):
  """(rope_theta, RopeScaling or None) from either spelling."""
  rope = {**(values.get('rope_scaling') or {}),
          **(values.get('rope_parameters') or {})}
  theta = rope.get('rope_theta', values.get('rope_theta', 10_000.0))
  kind = rope.get('rope_type', rope.get('type', 'default'))
  if kind == 'default':
    return float(theta), None
  if kind != 'llama3':
    raise ValueError(
        f"rope_type must be 'default' or 'llama3', got {kind!r}. A model "
        f'that was trained without it may run with rope_scaling null, for '
        f'as many positions as it was trained for.')
  keys = ('factor', 'low_freq_factor', 'high_freq_factor',
          'original_max_position_embeddings')
  missing = [key for key in keys if rope.get(key) is None]
  if missing:
    raise ValueError(
        f'rope_type llama3 needs {", ".join(keys)}; config.json lacks '
        f'{", ".join(missing)}.')
  return float(theta), RopeScaling(*(rope[key] for key in keys))
