"""Folders in and out: equal after a round trip, clear when damaged."""
import json
import os
import shutil
import stat

from huggingface_hub import constants
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from rlclip import partitioning
from rlclip.models import huggingface, transformer

GOLDEN = os.path.join(os.path.dirname(__file__), 'golden')
FAMILIES = ('llama', 'llama3', 'qwen2_tied', 'qwen2_untied', 'qwen3')


def copy(name, tmp_path, **changes):
  """A golden checkpoint, with some tensors replaced (None: dropped)."""
  folder = str(tmp_path / name)
  shutil.copytree(os.path.join(GOLDEN, name), folder)
  file = os.path.join(folder, huggingface.WEIGHTS)
  tensors = safetensors.numpy.load_file(file) | changes
  safetensors.numpy.save_file(
      {k: v for k, v in tensors.items() if v is not None}, file)
  return folder


def assert_equal(ours, theirs):
  jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.parametrize('name', FAMILIES)
def test_a_model_saved_in_many_files_is_loaded_equal(name, tmp_path):
  config, params = huggingface.load(os.path.join(GOLDEN, name))
  out = str(tmp_path / 'out')
  huggingface.save(out, config, params, dtype='float32',
                   max_shard_bytes=20_000)
  assert len([f for f in os.listdir(out) if f.endswith('.safetensors')]) > 2
  loaded_config, loaded = huggingface.load(out)
  assert loaded_config == config
  assert_equal(loaded, params)


def test_parameters_are_float32_and_stacked_as_init_gives_them():
  config, params = huggingface.load(os.path.join(GOLDEN, 'qwen3'))
  expected = jax.eval_shape(transformer.make(config).init, jax.random.key(0))
  facts = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype), tree)
  assert facts(params) == facts(expected)
  stored = safetensors.numpy.load_file(
      os.path.join(GOLDEN, 'qwen3', huggingface.WEIGHTS))
  np.testing.assert_array_equal(  # [out, in] there, [layer, in, out] here
      params['layers']['mlp']['down']['kernel'][1],
      stored['model.layers.1.mlp.down_proj.weight'].astype(np.float32).T)


@pytest.mark.parametrize('dtype', ['bfloat16', 'float16'])
def test_saving_rounds_once(dtype, tmp_path):
  config, params = huggingface.load(os.path.join(GOLDEN, 'llama3'))
  huggingface.save(str(tmp_path / 'out'), config, params, dtype=dtype)
  _, loaded = huggingface.load(str(tmp_path / 'out'))
  assert_equal(loaded, jax.tree.map(
      lambda x: x.astype(dtype).astype(jnp.float32), params))


def test_loading_onto_a_mesh_gives_the_same_numbers_in_parts():
  path = os.path.join(GOLDEN, 'qwen2_untied')
  _, whole = huggingface.load(path)
  partitioner = partitioning.make(fsdp=2, tensor=2, devices=jax.devices()[:4])
  model = transformer.make(huggingface.read_config(path))
  shardings = partitioner.tree_shardings(
      model.axes, jax.eval_shape(model.init, jax.random.key(0)))
  _, params = huggingface.load(path, shardings)
  assert_equal(params, whole)
  kernel = params['layers']['mlp']['gate']['kernel']
  assert kernel.shape == (2, 32, 48)
  assert kernel.addressable_shards[3].data.shape == (2, 16, 24)


def test_a_stored_tied_head_is_accepted_if_it_is_the_embedding(tmp_path):
  table = safetensors.numpy.load_file(os.path.join(
      GOLDEN, 'llama', huggingface.WEIGHTS))['model.embed_tokens.weight']
  folder = copy('llama', tmp_path, **{'lm_head.weight': table})
  config, params = huggingface.load(folder)
  assert config.tie_embeddings and 'head' not in params
  folder = copy('llama', tmp_path / 'other', **{'lm_head.weight': table + 1})
  with pytest.raises(ValueError, match='lm_head.weight differs'):
    huggingface.load(folder)


def test_stored_rotary_frequencies_are_ignored(tmp_path):
  name = 'model.layers.0.self_attn.rotary_emb.inv_freq'
  huggingface.load(copy('llama', tmp_path, **{name: np.ones(8, np.float32)}))


ONES = np.ones((3, 5), np.float32)


@pytest.mark.parametrize('name, changes, message', [
    ('llama', {'model.norm.weight': None}, '1 missing: model.norm.weight'),
    ('qwen2_untied', {'lm_head.weight': None}, '1 missing: lm_head.weight'),
    ('llama', {'model.extra': ONES}, '1 unexpected: model.extra'),
    ('llama', {'model.layers.1.mlp.up_proj.weight': ONES},
     r'model.layers.1.mlp.up_proj.weight is \(3, 5\), expected \(48, 48\)'),
    ('llama', {'model.norm.weight': ONES.astype(np.int8)}, 'dtype I8'),
])
def test_tensors_that_do_not_fit_are_named(name, changes, message, tmp_path):
  with pytest.raises(ValueError, match=message):
    huggingface.load(copy(name, tmp_path, **changes))


@pytest.mark.parametrize('kept', [0, 7, 300, 30_000, -1])
def test_a_truncated_file_is_named_with_its_size(kept, tmp_path):
  folder = copy('llama', tmp_path)
  file = os.path.join(folder, huggingface.WEIGHTS)
  with open(file, 'rb') as f:
    content = f.read()[:kept]
  with open(file, 'wb') as f:
    f.write(content)
  with pytest.raises(
      ValueError, match=rf'model.safetensors \({len(content)} bytes\)'):
    huggingface.load(folder)


def test_a_missing_shard_and_a_wrong_index_are_named(tmp_path):
  config, params = huggingface.load(os.path.join(GOLDEN, 'llama'))
  out = str(tmp_path / 'out')
  huggingface.save(out, config, params, max_shard_bytes=20_000)
  index = os.path.join(out, huggingface.INDEX)
  with open(index) as f:
    values = json.load(f)
  values['weight_map']['lost'] = min(values['weight_map'].values())
  with open(index, 'w') as f:
    json.dump(values, f)
  with pytest.raises(ValueError, match='1 tensors that the files lack: lost'):
    huggingface.load(out)
  os.remove(os.path.join(out, min(values['weight_map'].values())))
  with pytest.raises(FileNotFoundError, match='model-00001.*is missing'):
    huggingface.load(out)


@pytest.mark.parametrize('content, message', [
    ('{"model_type": "mamba"}', 'config.json: Unknown architecture'),
    ('{"model_type', 'config.json .* is no JSON'),
    ('[]', 'must hold a JSON object'),
])
def test_a_bad_config_is_named(content, message, tmp_path):
  folder = copy('llama', tmp_path)
  with open(os.path.join(folder, 'config.json'), 'w') as f:
    f.write(content)
  with pytest.raises(ValueError, match=message):
    huggingface.load(folder)


def test_a_folder_that_is_not_there_or_empty_is_named(tmp_path):
  with pytest.raises(FileNotFoundError, match='No model folder'):
    huggingface.load(str(tmp_path / 'nowhere'))
  with pytest.raises(FileNotFoundError, match='config.json is missing'):
    huggingface.load(str(tmp_path))


def test_a_hub_id_without_a_network_says_what_to_do(monkeypatch):
  monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', True)
  with pytest.raises(FileNotFoundError, match='Without a network, copy'):
    huggingface.load('some-organization/some-model')


def test_saving_keeps_the_tokenizer_and_its_ids(tmp_path):
  config, params = huggingface.load(os.path.join(GOLDEN, 'llama'))
  source = tmp_path / 'source'
  source.mkdir()
  files = {'tokenizer.json': {'a': 1}, 'generation_config.json': {'b': 2},
           'config.json': {'eos_token_id': [2, 7], 'vocab_size': 3}}
  for name, values in files.items():
    (source / name).write_text(json.dumps(values))
  out = tmp_path / 'out'
  huggingface.save(str(out), config, params, tokenizer_dir=str(source))
  for name in ('tokenizer.json', 'generation_config.json'):
    assert json.loads((out / name).read_text()) == files[name]
  values = json.loads((out / 'config.json').read_text())
  assert values['eos_token_id'] == [2, 7] and values['vocab_size'] == 64
  # Other users can read it.
  assert all(stat.S_IMODE(f.stat().st_mode) & 0o044 for f in out.iterdir())


def test_a_failed_save_leaves_nothing(tmp_path):
  config, params = huggingface.load(os.path.join(GOLDEN, 'llama'))
  with pytest.raises(FileNotFoundError, match='has no tokenizer'):
    huggingface.save(str(tmp_path / 'out'), config, params,
                     tokenizer_dir=str(tmp_path))
  assert os.listdir(tmp_path) == []


def test_a_save_never_overwrites(tmp_path):
  config, params = huggingface.load(os.path.join(GOLDEN, 'llama'))
  (tmp_path / 'notes').write_text('mine')
  with pytest.raises(FileExistsError, match='is there already'):
    huggingface.save(str(tmp_path), config, params)
  assert (tmp_path / 'notes').read_text() == 'mine'
