"""Draws tiny random checkpoints and stores transformers' logits of them.

python -m tests.models.golden.make      (needs the extra `torch`)

Each family becomes a folder here: config.json and model.safetensors as a user
would have them, and golden.npz with `tokens` int32[B, T] and their float32
`logits` [B, T, V]. T is three times the llama3 scaling's original positions.
"""
import json
import os
import shutil

import numpy as np
import torch
import transformers

_HERE = os.path.dirname(__file__)
_SHAPE = dict(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, hidden_act='silu',
    max_position_embeddings=128, bos_token_id=1, eos_token_id=2)
LENGTH = 96

# As published: transformers 4's spelling, head_dim only where it is written.
FAMILIES = {
    'llama': _SHAPE | dict(  # SmolLM2: three query heads to one, no head_dim
        model_type='llama', architectures=['LlamaForCausalLM'],
        hidden_size=48, num_attention_heads=3, num_key_value_heads=1,
        rms_norm_eps=1e-5, rope_theta=100000, rope_scaling=None,
        rope_interleaved=False, tie_word_embeddings=True,
        attention_bias=False, mlp_bias=False, torch_dtype='bfloat16'),
    'llama3': _SHAPE | dict(
        model_type='llama', architectures=['LlamaForCausalLM'], head_dim=16,
        rms_norm_eps=1e-5, tie_word_embeddings=True, attention_bias=False,
        mlp_bias=False, torch_dtype='float32',
        # Wavelengths of 6 to 35 positions: kept, mixed and slowed ones.
        rope_theta=100.0, rope_scaling=dict(
            rope_type='llama3', factor=32.0, low_freq_factor=1.0,
            high_freq_factor=4.0, original_max_position_embeddings=32)),
    'qwen2_tied': _SHAPE | dict(
        model_type='qwen2', architectures=['Qwen2ForCausalLM'],
        rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=True,
        use_sliding_window=False, sliding_window=16, max_window_layers=1,
        torch_dtype='bfloat16'),
    'qwen2_untied': _SHAPE | dict(
        model_type='qwen2', architectures=['Qwen2ForCausalLM'],
        rms_norm_eps=1e-6, rope_theta=10000, tie_word_embeddings=False,
        use_sliding_window=False, sliding_window=16, max_window_layers=2,
        torch_dtype='float16'),
    'qwen3': _SHAPE | dict(
        model_type='qwen3', architectures=['Qwen3ForCausalLM'], head_dim=16,
        rms_norm_eps=1e-6, rope_theta=1000000, rope_scaling=None,
        tie_word_embeddings=True, attention_bias=False, sliding_window=None,
        use_sliding_window=False, max_window_layers=2,
        torch_dtype='bfloat16'),
}
# Saved by transformers 5, so that its spelling is met as well.
NEW_SPELLING = ('llama3', 'qwen3')


def draw(values, folder: str, seed: int, new_spelling: bool = False) -> None:
  """Writes a random checkpoint with the config.json `values`."""
  os.makedirs(folder, exist_ok=True)
  file = os.path.join(folder, 'config.json')
  with open(file, 'w') as f:
    json.dump(values, f, indent=2)
  config = transformers.AutoConfig.from_pretrained(folder)
  model = transformers.AutoModelForCausalLM.from_config(
      config, dtype=torch.float32)
  generator = torch.Generator().manual_seed(seed)
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      noise = torch.randn(parameter.shape, generator=generator)
      # Norms and biases away from their 1 and 0, attention away from uniform.
      scale = 1 / parameter.shape[-1] ** .5 if parameter.ndim > 1 else .3
      parameter.copy_(noise * scale + name.endswith('norm.weight'))
  model.to(getattr(torch, values['torch_dtype'])).save_pretrained(folder)
  os.remove(os.path.join(folder, 'generation_config.json'))
  if not new_spelling:
    with open(file, 'w') as f:
      json.dump(values, f, indent=2)


def logits(folder: str, tokens: np.ndarray, dtype: str = 'float32',
           **kwargs) -> np.ndarray:
  """transformers' logits [B, T, V] of the checkpoint in `folder`."""
  model = transformers.AutoModelForCausalLM.from_pretrained(
      folder, dtype=getattr(torch, dtype), attn_implementation='eager',
      **kwargs)
  with torch.no_grad():
    return model.eval()(torch.tensor(tokens, dtype=torch.long)).logits.numpy()


def main():
  for seed, (name, values) in enumerate(FAMILIES.items()):
    folder = os.path.join(_HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    draw(values, folder, seed, name in NEW_SPELLING)
    tokens = np.random.default_rng(seed).integers(
        values['vocab_size'], size=(1, LENGTH), dtype=np.int32)
    np.savez_compressed(os.path.join(folder, 'golden.npz'), tokens=tokens,
                        logits=logits(folder, tokens))
    size = sum(entry.stat().st_size for entry in os.scandir(folder))
    print(f'{name}: {size:,} bytes')


if __name__ == '__main__':
  main()
