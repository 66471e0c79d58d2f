"""GGUF in: weights, rotary scaling, tokenizer, damaged files; conversion."""
import dataclasses
import json
import os

from absl import flags
from absl.testing import flagsaver
import jax
import numpy as np
import pytest
import transformers

from experiments import convert
from rlclip.models import config as config_lib
from rlclip.models import huggingface, transformer

gguf = pytest.importorskip('gguf', reason='needs the extra gguf')
from rlclip.models import gguf as gguf_lib  # noqa: E402
from rlclip.models import gguf_tokenizer  # noqa: E402

GOLDEN = os.path.join(os.path.dirname(__file__), 'golden')
NAMES = {stored: name for name, stored in gguf_lib._NAMES.items()}
LAYER_NAMES = {stored: name for name, stored in gguf_lib._LAYER_NAMES.items()}


def interleaved(rows, heads):
  """llama.cpp's order: dimension i of a head next to i + head_dim / 2."""
  half = rows.shape[0] // heads // 2
  order = [head * 2 * half + j * half + i
           for head in range(heads) for i in range(half) for j in range(2)]
  return rows[order]


def write(path, name, divisors=None, split='smollm', **values):
  """A golden checkpoint as a GGUF file, with a byte-level tokenizer."""
  config = huggingface.read_config(os.path.join(GOLDEN, name))
  writer = gguf.GGUFWriter(path, values.pop('architecture', config.family))
  writer.add_block_count(config.num_layers)
  writer.add_context_length(config.max_positions)
  writer.add_embedding_length(config.hidden_size)
  writer.add_feed_forward_length(config.intermediate_size)
  writer.add_head_count(config.num_heads)
  writer.add_head_count_kv(config.num_kv_heads)
  writer.add_key_length(config.head_dim)
  writer.add_rope_freq_base(config.rope_theta)
  writer.add_layer_norm_rms_eps(config.norm_epsilon)
  add_tokenizer(writer, split)
  tensors = huggingface.read_tensors(os.path.join(GOLDEN, name))
  for stored, tensor in tensors.items():
    array = tensor.read((slice(None),) * len(tensor.shape)).astype(np.float32)
    heads = (config.num_heads if 'q_proj' in stored else
             config.num_kv_heads if 'k_proj' in stored else 0)
    if heads and config.family == 'llama':
      array = interleaved(array, heads)
    if stored.startswith('model.layers.'):
      layer, _, rest = stored.removeprefix('model.layers.').partition('.')
      writer.add_tensor(f'blk.{layer}.{LAYER_NAMES[rest]}', array)
    else:
      writer.add_tensor(NAMES[stored], array)
  if divisors is not None:
    writer.add_tensor('rope_freqs.weight', divisors)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  return path


def add_tokenizer(writer, split):
  """Two special tokens, ids 1 and 2, and enough bytes for the tests."""
  merges = ['Ġ a', '1 2', 'a b']
  tokens = (['<|endoftext|>', '<|im_start|>', '<|im_end|>']
            + sorted(set('ab12Ġ!Ċ')) + ['Ġa', '12', 'ab'])
  writer.add_tokenizer_model('gpt2')
  writer.add_tokenizer_pre(split)
  writer.add_token_list(tokens)
  writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
  writer.add_token_merges(merges)
  writer.add_bos_token_id(1)
  writer.add_eos_token_id(2)
  writer.add_pad_token_id(2)
  writer.add_add_bos_token(False)
  writer.add_chat_template(
      "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>"
      '{% endfor %}')


@pytest.mark.parametrize(
    'name', ['llama', 'qwen2_tied', 'qwen2_untied', 'qwen3'])
def test_a_gguf_file_holds_the_model_it_was_made_of(name, tmp_path):
  config, params = gguf_lib.load(write(tmp_path / 'model.gguf', name))
  expected_config, expected = huggingface.load(os.path.join(GOLDEN, name))
  assert config == expected_config
  jax.tree.map(np.testing.assert_array_equal, params, expected)


def test_llama3_scaling_is_found_from_its_divisors(tmp_path):
  scaled = dataclasses.replace(  # Llama 3.2's
      huggingface.read_config(os.path.join(GOLDEN, 'llama3')), head_dim=64,
      rope_theta=500_000.0,
      rope_scaling=config_lib.RopeScaling(32.0, 1.0, 4.0, 8192))
  plain = dataclasses.replace(scaled, rope_scaling=None)
  divisors = np.float32(transformer.rotary_frequencies(plain)
                        / transformer.rotary_frequencies(scaled))
  assert gguf_lib.with_rope_scaling(plain, divisors) == scaled
  divisors[17] *= 1.01
  with pytest.raises(ValueError, match='no Llama 3 scaling'):
    gguf_lib.with_rope_scaling(plain, divisors)
  # The divisors of a file are not passed over.
  path = write(tmp_path / 'model.gguf', 'llama3', np.float32([1] * 7 + [8]))
  with pytest.raises(ValueError, match='no Llama 3 scaling'):
    gguf_lib.load(path)


@pytest.mark.parametrize('share', [0.0, 0.01, 0.3, 0.9])
def test_a_truncated_file_is_named_with_its_size(share, tmp_path):
  path = write(tmp_path / 'model.gguf', 'llama')
  content = path.read_bytes()
  path.write_bytes(content[:int(share * len(content))])
  with pytest.raises(ValueError, match=r'model.gguf \(\d+ bytes\) is trunc'):
    gguf_lib.load(path)


def test_an_unknown_architecture_is_named(tmp_path):
  path = write(tmp_path / 'model.gguf', 'llama', architecture='mamba')
  with pytest.raises(ValueError, match="'mamba'. Known: llama, qwen2, qwen3"):
    gguf_lib.load(path)


def test_the_tokenizer_splits_digits_and_keeps_special_tokens(tmp_path):
  gguf_tokenizer.save(write(tmp_path / 'model.gguf', 'llama'), tmp_path)
  tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
  text = '<|im_start|>ab a!12\n<|im_end|>'
  assert tokenizer.tokenize(text) == [
      '<|im_start|>', 'ab', 'Ġa', '!', '1', '2', 'Ċ', '<|im_end|>']
  ids = tokenizer.encode(text)
  assert ids[0] == 1 and ids[-1] == 2 and tokenizer.decode(ids) == text
  assert tokenizer.decode(ids, skip_special_tokens=True) == 'ab a!12\n'
  assert (tokenizer.bos_token_id, tokenizer.eos_token_id,
          tokenizer.pad_token_id) == (1, 2, 2)
  assert tokenizer.apply_chat_template(
      [{'role': 'user', 'content': 'a'}], tokenize=False
  ) == '<|im_start|>a<|im_end|>'
  generation = json.loads((tmp_path / 'generation_config.json').read_text())
  assert generation == {
      'bos_token_id': 1, 'eos_token_id': 2, 'pad_token_id': 2}


def test_llama3s_tokenizer_keeps_up_to_three_digits_together(tmp_path):
  path = write(tmp_path / 'model.gguf', 'llama', split='llama-bpe')
  gguf_tokenizer.save(path, tmp_path)
  tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
  assert tokenizer.tokenize('12121') == ['12', '1', '2', '1']


def test_an_unknown_pre_tokenizer_is_named(tmp_path):
  path = write(tmp_path / 'model.gguf', 'llama', split='other')
  with pytest.raises(ValueError, match="pre-tokenizer 'other'; known: smollm"):
    gguf_tokenizer.save(path, tmp_path)


def test_gguf_to_orbax_to_hugging_face_loses_nothing(tmp_path):
  path = str(write(tmp_path / 'model.gguf', 'llama'))
  for source, kind in ((path, 'orbax'), ('orbax', 'hf')):
    with flagsaver.as_parsed(source=str(tmp_path / source), format=kind,
                             output=str(tmp_path / kind), dtype='float32'):
      flags.FLAGS.mark_as_parsed()  # the rest have their defaults
      convert.main([])
  config, params = huggingface.load(str(tmp_path / 'hf'))
  expected_config, expected = huggingface.load(os.path.join(GOLDEN, 'llama'))
  assert config == expected_config
  jax.tree.map(np.testing.assert_array_equal, params, expected)
  assert transformers.AutoTokenizer.from_pretrained(
      tmp_path / 'hf').eos_token_id == 2
  assert json.loads(
      (tmp_path / 'hf' / 'config.json').read_text())['eos_token_id'] == 2


def test_a_step_of_what_is_no_run_is_refused(tmp_path):
  path = str(write(tmp_path / 'model.gguf', 'llama'))
  with flagsaver.as_parsed(source=path, output=str(tmp_path / 'hf'), step='3'):
    flags.FLAGS.mark_as_parsed()
    with pytest.raises(ValueError, match='Only a run has steps'):
      convert.main([])
  assert not (tmp_path / 'hf').exists()
