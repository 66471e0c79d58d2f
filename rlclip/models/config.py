"""Architecture of a decoder, read from and written to Hugging Face's config."""
import dataclasses
import json
import os
from typing import Any, Mapping


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
    kv, heads = self.num_kv_heads * self.head_dim, self.num_heads * self.head_dim
    attention = self.hidden_size * (2 * heads + 2 * kv)
    extras = (heads + 2 * kv) * self.qkv_bias + 2 * self.head_dim * self.qk_norm
    layer = (attention + extras + 3 * self.hidden_size * self.intermediate_size
             + 2 * self.hidden_size)
    tables = (1 if self.tie_embeddings else 2) * self.vocab_size
    return self.num_layers * layer + (tables + 1) * self.hidden_size
