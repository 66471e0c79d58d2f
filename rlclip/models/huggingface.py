"""Weights from and to Hugging Face folders, a tensor at a time."""
import contextlib
import json
import os
import shutil
import tempfile
from typing import Iterator

import huggingface_hub
import huggingface_hub.errors
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from rlclip.models import config as config_lib
from rlclip.models import layout
from rlclip.types import Params

WEIGHTS = 'model.safetensors'
INDEX = WEIGHTS + '.index.json'
DTYPES = ('float32', 'bfloat16', 'float16')

# What belongs to the tokenizer, and which ids end a completion.
TOKENIZER_FILES = (
    'tokenizer.json', 'tokenizer_config.json', 'tokenizer.model',
    'special_tokens_map.json', 'added_tokens.json', 'vocab.json',
    'merges.txt', 'chat_template.jinja', 'chat_template.json',
    'generation_config.json')


def load(path: str, shardings: Params | None = None
         ) -> tuple[config_lib.ModelConfig, Params]:
  """Loads a model onto devices; each device reads only its part of a tensor.

  Args:
    path: a Hugging Face folder, or a hub id as 'Qwen/Qwen3-0.6B'.
    shardings: a tree like the parameters; None is the default device. For
      what it takes to make one, see read_config.

  Returns:
    The architecture, and its parameters in float32, layers stacked, as
    transformer.make(config).init gives them.

  Raises:
    ValueError: on an unknown architecture, and on weights that are damaged or
      do not fit config.json.
    FileNotFoundError: without the folder, config.json or the weights.
  """
  folder = fetch(path)
  config = read_config(folder)
  tensors = read_tensors(folder)
  return config, layout.assemble(config, tensors, shardings, folder)


def read_config(path: str) -> config_lib.ModelConfig:
  """The architecture of a folder or hub id alone."""
  file = os.path.join(fetch(path), 'config.json')
  values = _read_json(file)
  try:
    return config_lib.from_hf(values)
  except ValueError as error:
    raise ValueError(f'{file}: {error}') from error


def fetch(path: str) -> str:
  """The local folder of `path`; a hub id is downloaded first.

  Raises:
    FileNotFoundError: where it is neither a folder nor can be downloaded.
  """
  path = os.fspath(path)
  if os.path.isdir(path):
    return path
  is_hub_id = path.count('/') == 1 and path[0] not in '/.~'
  if not is_hub_id:
    raise FileNotFoundError(
        f'No model folder {path!r}. Give a folder with config.json and '
        f'{WEIGHTS}, or a hub id as Qwen/Qwen3-0.6B.')
  try:
    return huggingface_hub.snapshot_download(
        path, allow_patterns=['*.safetensors', '*.json', '*.jinja',
                              '*.model', 'merges.txt'])
  except (OSError, huggingface_hub.errors.HFValidationError) as error:
    raise FileNotFoundError(
        f'{path!r} is no folder here, and downloading it from the Hugging '
        f'Face hub failed: {type(error).__name__}: {error}\nWithout a network, '
        f'copy the model to this machine and give its folder.') from error


def read_tensors(folder: str) -> dict[str, layout.Tensor]:
  """Opens the safetensors of a folder, one file or many.

  Raises:
    FileNotFoundError: where there are none, or one is missing.
    ValueError: on a damaged file or a wrong index.
  """
  index = os.path.join(folder, INDEX)
  if os.path.exists(index):
    weight_map = _read_json(index).get('weight_map')
    if not isinstance(weight_map, dict):
      raise ValueError(f"{index} has no 'weight_map'. Download it again.")
  elif os.path.exists(os.path.join(folder, WEIGHTS)):
    weight_map = None
  else:
    raise FileNotFoundError(
        f'{folder} has neither {WEIGHTS} nor {INDEX}, but '
        f'{sorted(os.listdir(folder))[:20]}. Only safetensors are read.')
  if weight_map is None:
    return _open(os.path.join(folder, WEIGHTS))
  shards = {file: _open(os.path.join(folder, file))
            for file in sorted(set(weight_map.values()))}
  lost = [f'{name} ({file})' for name, file in weight_map.items()
          if name not in shards[file]]
  if lost:
    raise ValueError(
        f'{index} lists {len(lost)} tensors that the files lack: '
        f'{layout.first(lost)}. Download them again.')
  return {name: shards[file][name] for name, file in weight_map.items()}


def save(path: str, config: config_lib.ModelConfig, params: Params, *,
         dtype: str = 'bfloat16', tokenizer_dir: str | None = None,
         max_shard_bytes: int = 4_000_000_000) -> None:
  """Writes a Hugging Face folder that transformers loads; all of it or none.

  Args:
    path: the folder, not there yet.
    config: the architecture.
    params: its parameters, layers stacked.
    dtype: to store, one of DTYPES.
    tokenizer_dir: a folder whose tokenizer files, generation_config.json and
      bos, eos and pad ids are taken over.
    max_shard_bytes: the weights are split into files of at most this size (a
      larger single tensor apart).

  Raises:
    ValueError: on a dtype that is not known.
    FileExistsError: where `path` is there and not empty.
  """
  if dtype not in DTYPES:
    raise ValueError(f'dtype must be one of {DTYPES}, got {dtype!r}.')
  values = config_lib.to_hf(config, dtype)
  with new_folder(path) as folder:
    if tokenizer_dir is not None:
      values |= copy_tokenizer(tokenizer_dir, folder)
    with open(os.path.join(folder, 'config.json'), 'w') as f:
      json.dump(values, f, indent=2)
    _write_tensors(folder, config, params, jnp.dtype(dtype), max_shard_bytes)


@contextlib.contextmanager
def new_folder(path: str) -> Iterator[str]:
  """A folder to write to that becomes `path` at the end, or leaves nothing."""
  path = os.path.abspath(path)
  if os.path.exists(path) and not (os.path.isdir(path)
                                   and not os.listdir(path)):
    raise FileExistsError(
        f'{path} is there already. Remove it or choose another output.')
  os.makedirs(os.path.dirname(path), exist_ok=True)
  folder = tempfile.mkdtemp(
      prefix=f'.{os.path.basename(path)}.', dir=os.path.dirname(path))
  try:
    yield folder
    os.chmod(folder, 0o755)  # mkdtemp's are private
    os.rename(folder, path)
  finally:
    shutil.rmtree(folder, ignore_errors=True)


def tokenizer_files(folder: str) -> list[str]:
  """Those of TOKENIZER_FILES that are there; [] without a tokenizer."""
  found = [name for name in TOKENIZER_FILES
           if os.path.exists(os.path.join(folder, name))]
  return found if set(found) - {'generation_config.json'} else []


def copy_tokenizer(source: str, folder: str) -> dict[str, int | list[int]]:
  """Copies tokenizer files; returns the ids of bos, eos and pad, if known.

  Raises:
    FileNotFoundError: where `source` has no tokenizer.
  """
  found = tokenizer_files(source)
  if not found:
    raise FileNotFoundError(
        f'{source} has no tokenizer; expected {", ".join(TOKENIZER_FILES[:3])} '
        f'or the like.')
  for name in found:
    shutil.copyfile(os.path.join(source, name), os.path.join(folder, name))
  for name in ('config.json', 'generation_config.json'):
    file = os.path.join(source, name)
    if os.path.exists(file):
      values = _read_json(file)
      keys = ('bos_token_id', 'eos_token_id', 'pad_token_id')
      return {key: values[key] for key in keys if values.get(key) is not None}
  return {}


def _open(file) -> dict[str, layout.Tensor]:
  try:
    handle = safetensors.safe_open(file, 'numpy')
  except FileNotFoundError as error:
    raise FileNotFoundError(
        f'{file} is missing. Download it again.') from error
  except safetensors.SafetensorError as error:
    raise ValueError(
        f'{file} ({os.path.getsize(file)} bytes) is truncated or no '
        f'safetensors file: {error}. Download it again.') from error
  tensors = {}
  for name in handle.keys():
    view = handle.get_slice(name)
    if view.get_dtype() not in ('F32', 'BF16', 'F16', 'F64'):
      raise ValueError(
          f'{file}: {name} has dtype {view.get_dtype()}, expected F32, BF16 '
          f'or F16. Quantized weights must be converted first.')
    tensors[name] = layout.Tensor(tuple(view.get_shape()), view.__getitem__)
  return tensors


def _write_tensors(folder, config, params, dtype, max_shard_bytes):
  shapes = layout.stored_shapes(config)
  calls = layout.disassemble(config, params, dtype)
  shards = _shards({name: int(np.prod(shape)) * dtype.itemsize
                    for name, shape in shapes.items()}, max_shard_bytes)
  weight_map = {}
  for i, names in enumerate(shards):
    file = (WEIGHTS if len(shards) == 1 else
            f'model-{i + 1:05}-of-{len(shards):05}.safetensors')
    target = os.path.join(folder, file)
    safetensors.numpy.save_file(
        {name: calls[name]() for name in names}, target, {'format': 'pt'})
    os.chmod(target, 0o644)  # safetensors' are private
    weight_map |= dict.fromkeys(names, file)
  if len(shards) > 1:
    size = sum(int(np.prod(shape)) for shape in shapes.values())
    with open(os.path.join(folder, INDEX), 'w') as f:
      json.dump({'metadata': {'total_size': size * dtype.itemsize},
                 'weight_map': weight_map}, f, indent=2)


def _shards(num_bytes_by_name, limit) -> list[list[str]]:
  shards, size = [[]], 0
  for name, num_bytes in num_bytes_by_name.items():
    if shards[-1] and size + num_bytes > limit:
      shards.append([])
      size = 0
    shards[-1].append(name)
    size += num_bytes
  return shards


def _read_json(file):
  try:
    with open(file, encoding='utf-8') as f:
      values = json.load(f)
  except FileNotFoundError as error:
    raise FileNotFoundError(
        f'{file} is missing. A model folder holds config.json and '
        f'safetensors.') from error
  except (json.JSONDecodeError, UnicodeDecodeError) as error:
    raise ValueError(
        f'{file} ({os.path.getsize(file)} bytes) is no JSON: {error}. '
        f'Download it again.') from error
  if not isinstance(values, dict):
    raise ValueError(
        f'{file} must hold a JSON object, got a {type(values).__name__}.')
  return values
