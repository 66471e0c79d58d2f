"""Evaluates a run or a model: python -m experiments.evaluate --tasks=gsm8k.

  --config=F --workdir=D    the run's newest checkpoint (--step for another)
  --config=F --model=DIR    a Hugging Face folder or hub id
"""
import pathlib
import sys

from absl import app, flags, logging
from ml_collections import config_flags

_CONFIG = config_flags.DEFINE_config_file(
    'config', 'configs/default.py', 'Lengths, sampling and reward settings.',
    lock_config=True)
_WORKDIR = flags.DEFINE_string('workdir', None, "A run's folder.")
_MODEL = flags.DEFINE_string('model', None, 'A Hugging Face folder or hub id.')
_TASKS = flags.DEFINE_list('tasks', None, 'Task names; test splits are used.')
_NUM_SAMPLES = flags.DEFINE_integer(
    'num_samples', None, 'Answers a problem; default as in the config.')
_STEP = flags.DEFINE_integer('step', None, 'Checkpoint; default the newest.')
_OUTPUT = flags.DEFINE_string(
    'output', None, 'Folder for eval/<task>/<step>.jsonl; default --workdir.')


def main(argv):
  if len(argv) > 1 or not _TASKS.value:
    raise app.UsageError('--tasks is needed, and no positional arguments.')
  if (_WORKDIR.value is None) == (_MODEL.value is None):
    raise app.UsageError('Give one of --workdir and --model.')
  logging.set_verbosity(logging.WARNING)  # orbax tells all it does
  from rlclip import config, evaluate_model
  raw = _CONFIG.value
  if _MODEL.value:
    raw.model.path = _MODEL.value
  if _NUM_SAMPLES.value:
    raw.evaluation.num_samples = _NUM_SAMPLES.value
  output = _OUTPUT.value or _WORKDIR.value
  try:
    evaluate_model.evaluate(
        config.resolve(raw), _TASKS.value, workdir=_WORKDIR.value,
        step=_STEP.value, output=pathlib.Path(output) if output else None)
  except (ValueError, OSError) as error:
    sys.exit(f'{type(error).__name__}: {error}')


if __name__ == '__main__':
  app.run(main)
