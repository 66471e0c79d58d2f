"""A run's policy as a plain model: weights, architecture and tokenizer."""
import json
import os
import pathlib

from rlclip import assembly
from rlclip import config as config_lib
from rlclip import workdir
from rlclip.models import config as model_config
from rlclip.models import huggingface
from rlclip.types import Params

# Where and how a run samples is no matter here, nor are its devices.
_HERE = {
    'sampler': {'kind': 'local', 'urls': (), 'weights_folder': ''},
    'mesh': {'data': -1, 'fsdp': 1, 'tensor': 1},
    'rollout': {'num_slots': 1}}


def is_run(path: str | os.PathLike) -> bool:
  """Whether a folder is a run's."""
  return workdir.RunFolder(pathlib.Path(path)).checkpoints.is_dir()


def policy(path: str | os.PathLike, scratch: str | os.PathLike,
           step: int | None = None
           ) -> tuple[model_config.ModelConfig, Params, str]:
  """Reads the policy out of a run's checkpoint, its adapters merged.

  Args:
    path: the run's folder.
    scratch: a folder for a tokenizer that no pretrained model came with.
    step: None takes the newest.

  Returns:
    The architecture, the weights, and a folder with the tokenizer's files.

  Raises:
    FileNotFoundError, ValueError: there is no such run or checkpoint.
  """
  if not is_run(path):
    raise ValueError(
        f'Expected the folder of a run, with checkpoints/, got {path}. Only a '
        f'run has steps.')
  folder = workdir.RunFolder(pathlib.Path(path))
  values = json.loads(folder.config.read_text(encoding='utf-8'))
  values |= {group: {**values[group], **keys} for group, keys in _HERE.items()}
  experiment = config_lib.resolve(values)
  parts = assembly.build(experiment)
  _, params = assembly.restored_params(parts, path, step)
  if experiment.model.path:
    return parts.model.config, params, huggingface.fetch(experiment.model.path)
  parts.tokenizer.save(scratch)
  return parts.model.config, params, str(scratch)
