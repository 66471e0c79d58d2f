"""config.json of the models that matter, in both spellings; refusals."""
import json
import os

import pytest

from rlclip.models import config as config_lib

FOLDER = os.path.join(
    os.environ.get('RLCLIP_DATA', os.path.join('..', 'shared', 'data')),
    '..', 'models')
# Parameters with tied embeddings counted once, head_dim, rope_theta, tied.
FACTS = {
    'Qwen__Qwen3-0.6B': (596_049_920, 128, 1e6, True),
    'Qwen__Qwen3-1.7B': (1_720_574_976, 128, 1e6, True),
    'Qwen__Qwen3-4B': (4_022_468_096, 128, 1e6, True),
    'Qwen__Qwen3-8B': (8_190_735_360, 128, 1e6, False),
    'Qwen__Qwen2.5-0.5B-Instruct': (494_032_768, 64, 1e6, True),
    'Qwen__Qwen2.5-7B-Instruct': (7_615_616_512, 128, 1e6, False),
    'Qwen__Qwen2.5-Math-1.5B': (1_543_714_304, 128, 1e4, True),
    'deepseek-ai__DeepSeek-R1-Distill-Qwen-1.5B': (
        1_777_088_000, 128, 1e4, False),
    'meta-llama__Llama-3.2-1B-Instruct': (1_235_814_400, 64, 5e5, True),
    'meta-llama__Llama-3.2-3B-Instruct': (3_212_749_824, 128, 5e5, True),
    'HuggingFaceTB__SmolLM2-135M-Instruct': (134_515_008, 64, 1e5, True),
    'HuggingFaceTB__SmolLM2-360M-Instruct': (361_821_120, 64, 1e5, True),
}
LLAMA3 = config_lib.RopeScaling(32.0, 1.0, 4.0, 8192)
SMALL = {
    'model_type': 'llama', 'vocab_size': 10, 'hidden_size': 8,
    'intermediate_size': 12, 'num_hidden_layers': 1, 'num_attention_heads': 2,
    'num_key_value_heads': 1, 'max_position_embeddings': 32,
    'rms_norm_eps': 1e-6}


@pytest.mark.parametrize('name', FACTS)
def test_published_configs_have_their_published_size(name):
  file = os.path.join(FOLDER, f'{name}.json')
  if not os.path.exists(file):
    pytest.skip(f'{file} is absent; set RLCLIP_DATA to the data beside it')
  with open(file) as f:
    config = config_lib.from_hf(json.load(f))
  assert (config.num_params, config.head_dim, config.rope_theta,
          config.tie_embeddings) == FACTS[name]
  assert config.rope_scaling == (LLAMA3 if 'Llama' in name else None)
  assert config.qkv_bias == ('Qwen2.5' in name or 'R1' in name)
  assert config.qk_norm == ('Qwen3' in name)
  # What is written is read back the same, whichever spelling is dropped.
  written = config_lib.to_hf(config, 'bfloat16')
  for dropped in ({'rope_theta', 'rope_scaling', 'torch_dtype'},
                  {'rope_parameters', 'dtype'}):
    kept = {k: v for k, v in written.items() if k not in dropped}
    assert config_lib.from_hf(kept) == config


def test_counts_the_parameters_of_a_small_model():
  # Embedding 10 x 8, norm 8; a layer: q, o 8 x 8, k, v 8 x 4, three 8 x 12,
  # two norms 8.
  layer = 2 * 64 + 2 * 32 + 3 * 96 + 2 * 8
  config = config_lib.from_hf(SMALL | {'tie_word_embeddings': True})
  assert config.num_params == 88 + layer
  untied = config_lib.from_hf(SMALL | {'tie_word_embeddings': False})
  assert untied.num_params == 168 + layer
  qwen2 = config_lib.from_hf(
      SMALL | {'model_type': 'qwen2', 'tie_word_embeddings': True})
  assert qwen2.num_params == 88 + layer + 8 + 2 * 4


def test_a_missing_head_dim_follows_the_type():
  assert config_lib.from_hf(SMALL).head_dim == 4
  assert config_lib.from_hf(SMALL | {'model_type': 'qwen3'}).head_dim == 128


def test_a_sliding_window_that_is_off_is_ignored():
  values = SMALL | {'model_type': 'qwen2', 'sliding_window': 4,
                    'use_sliding_window': False}
  assert config_lib.from_hf(values).qkv_bias


@pytest.mark.parametrize('change, message', [
    ({'model_type': 'mamba'}, "model_type 'mamba'.*llama, qwen2, qwen3"),
    ({'model_type': None}, 'Known model types: llama, qwen2, qwen3'),
    ({'vocab_size': None, 'rms_norm_eps': None},
     'lacks vocab_size, rms_norm_eps'),
    ({'use_sliding_window': True, 'sliding_window': 4}, 'use_sliding_window'),
    ({'layer_types': ['sliding_attention']}, 'use_sliding_window'),
    ({'attention_bias': True}, 'attention_bias'),
    ({'mlp_bias': True}, 'mlp_bias'),
    ({'hidden_act': 'gelu'}, "hidden_act 'gelu'"),
    ({'quantization_config': {'bits': 4}}, 'quantization_config'),
    ({'rope_scaling': {'type': 'linear', 'factor': 2.0}}, "got 'linear'"),
    ({'rope_parameters': {'rope_type': 'yarn', 'rope_theta': 1e4}},
     "got 'yarn'"),
    ({'rope_scaling': {'rope_type': 'llama3', 'factor': 8.0}},
     'lacks low_freq_factor'),
    ({'num_key_value_heads': 3}, 'multiple of num_kv_heads'),
    ({'hidden_size': 9}, 'no multiple'),
])
def test_what_would_be_computed_wrongly_is_refused(change, message):
  with pytest.raises(ValueError, match=message):
    config_lib.from_hf(SMALL | change)
