"""Converts a model between Hugging Face folders, GGUF files and orbax.

A run's folder is a source too: its policy, adapters merged.

python -m experiments.convert --source=model.gguf --output=models/smollm2
python -m experiments.convert --source=Qwen/Qwen3-0.6B --output=models/qwen3
python -m experiments.convert --source=runs/a --step=100 --output=models/a
"""
import json
import os
import tempfile

from absl import app, flags
import orbax.checkpoint as ocp

from rlclip import export
from rlclip.models import config as config_lib
from rlclip.models import huggingface, layout

_SOURCE = flags.DEFINE_string(
    'source', None, 'Hugging Face folder, hub id, .gguf file, a run, or a '
    'folder written with --format=orbax.', required=True)
_OUTPUT = flags.DEFINE_string(
    'output', None, 'Folder to write; not there yet.', required=True)
_FORMAT = flags.DEFINE_enum(
    'format', 'hf', ['hf', 'orbax'], 'hf: config.json, safetensors and the '
    'tokenizer. orbax: the same, but float32 weights in params/.')
_DTYPE = flags.DEFINE_enum(
    'dtype', 'float32', huggingface.DTYPES, 'Of the safetensors.')
_STEP = flags.DEFINE_integer('step', None, "A run's; default the newest.")
_ORBAX = 'params'


def load(source, scratch):
  """(config, params, folder of the tokenizer or None) of any source."""
  if _STEP.value is not None or export.is_run(source):
    return export.policy(source, scratch, _STEP.value)
  if source.endswith('.gguf'):
    from rlclip.models import gguf, gguf_tokenizer  # need the extra `gguf`
    config, params = gguf.load(source)
    gguf_tokenizer.save(source, scratch)
    return config, params, scratch
  folder = huggingface.fetch(source)
  weights = os.path.abspath(os.path.join(folder, _ORBAX))
  if os.path.isdir(weights):
    config = huggingface.read_config(folder)
    with ocp.StandardCheckpointer() as checkpointer:
      params = checkpointer.restore(
          weights, layout.abstract_params(config))
  else:
    config, params = huggingface.load(folder)
  return config, params, folder if huggingface.tokenizer_files(folder) else None


def save_orbax(path, config, params, tokenizer_dir):
  """config.json and tokenizer as in a Hugging Face folder, and params/."""
  values = config_lib.to_hf(config, 'float32')
  with huggingface.new_folder(path) as folder:
    if tokenizer_dir is not None:
      values |= huggingface.copy_tokenizer(tokenizer_dir, folder)
    with open(os.path.join(folder, 'config.json'), 'w') as f:
      json.dump(values, f, indent=2)
    with ocp.StandardCheckpointer() as checkpointer:
      checkpointer.save(os.path.join(folder, _ORBAX), params)


def main(_):
  with tempfile.TemporaryDirectory() as scratch:
    config, params, tokenizer_dir = load(_SOURCE.value, scratch)
    if _FORMAT.value == 'orbax':
      save_orbax(_OUTPUT.value, config, params, tokenizer_dir)
    else:
      huggingface.save(_OUTPUT.value, config, params, dtype=_DTYPE.value,
                       tokenizer_dir=tokenizer_dir)
  print(f'{config.family}, {config.num_params:,} parameters -> '
        f'{os.path.abspath(_OUTPUT.value)}')


if __name__ == '__main__':
  app.run(main)
