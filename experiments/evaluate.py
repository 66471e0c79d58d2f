"""Evaluates a run or a model: python -m experiments.evaluate --tasks=gsm8k.

  --config=F --workdir=D    the run's newest checkpoint (--step for another)
  --config=F --model=DIR    a Hugging Face folder or hub id

Prints a table a task, and writes what rlclip.analysis.evaluation lists.
"""
import sys
import time

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
    'output', None, 'Folder for all files; default <workdir>/eval.')


def _evaluate(parts, task, step, num_problems):
  """Draws, scores and shows the answers to one task; returns its Result."""
  from rlclip import assembly, evaluate, metrics, progress
  from rlclip.analysis import evaluation
  e, begun = parts.experiment, time.monotonic()
  with assembly.pool(e, task.reward) as pool, (
      progress.problems(num_problems)) as show:
    answers = assembly.evaluate_task(
        parts, task, pool, metrics.Phases(), show)
  progress.show_evaluation(task.name, evaluate.summary(answers))
  return evaluation.Result(task.name, step, answers, evaluation.settings(
      assembly.evaluation_spec(parts), seed=e.seed,
      num_samples=e.evaluation.num_samples,
      model=_MODEL.value or _WORKDIR.value, seconds=time.monotonic() - begun))


def main(argv):
  if len(argv) > 1 or not _TASKS.value:
    raise app.UsageError('--tasks is needed, and no positional arguments.')
  if (_WORKDIR.value is None) == (_MODEL.value is None):
    raise app.UsageError('Give one of --workdir and --model.')
  logging.set_verbosity(logging.WARNING)  # orbax tells all it does
  from rlclip import assembly, config, progress
  from rlclip.analysis import evaluation
  raw = _CONFIG.value
  if _MODEL.value:
    raw.model.path, raw.warm_start.num_steps = _MODEL.value, 0
  if _NUM_SAMPLES.value:
    raw.evaluation.num_samples = _NUM_SAMPLES.value
  raw.evaluation.tasks = tuple(t for t in _TASKS.value if t != raw.task.name)
  output = _OUTPUT.value or (_WORKDIR.value and f'{_WORKDIR.value}/eval')
  try:
    parts = assembly.build(config.resolve(raw))
    tasks = assembly.evaluation_tasks(parts)
    # A prompt that is too long shows before hours of others.
    sizes = {name: len(assembly.test_prompts(parts, tasks[name]))
             for name in _TASKS.value}
    step, params = (
        (0, assembly.initial_params(parts)) if _MODEL.value else
        assembly.restored_params(parts, _WORKDIR.value, _STEP.value))
    parts.sampler.load_weights(params, step)
    results = []
    for name in _TASKS.value:
      results.append(_evaluate(parts, tasks[name], step, sizes[name]))
      if output:
        progress.show_paths(evaluation.write(output, results))
  except (ValueError, OSError) as error:
    sys.exit(f'{type(error).__name__}: {error}')


if __name__ == '__main__':
  app.run(main)
