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
    'output', None, 'Folder for <task>/<step>.jsonl; default <workdir>/eval.')


def _load(parts):
  """Returns (step, parameters): of a run's checkpoint, or of a model."""
  from rlclip import assembly, checkpoint
  if _MODEL.value:
    return 0, assembly.initial_params(parts)
  keeper = checkpoint.Checkpointer(
      pathlib.Path(_WORKDIR.value) / 'checkpoints', read_only=True)
  step, params, _ = keeper.restore_params(
      assembly.abstract_state(parts).params, _STEP.value)
  keeper.close()
  return step, params


def main(argv):
  if len(argv) > 1 or not _TASKS.value:
    raise app.UsageError('--tasks is needed, and no positional arguments.')
  if (_WORKDIR.value is None) == (_MODEL.value is None):
    raise app.UsageError('Give one of --workdir and --model.')
  logging.set_verbosity(logging.WARNING)  # orbax tells all it does
  from rlclip import assembly, config, evaluate, metrics
  raw = _CONFIG.value
  if _MODEL.value:
    raw.model.path, raw.warm_start.num_steps = _MODEL.value, 0
  if _NUM_SAMPLES.value:
    raw.evaluation.num_samples = _NUM_SAMPLES.value
  others = tuple(t for t in _TASKS.value if t != raw.task.name)
  raw.evaluation.tasks = others
  output = _OUTPUT.value or (_WORKDIR.value and f'{_WORKDIR.value}/eval')
  try:
    parts = assembly.build(config.resolve(raw))
    tasks = assembly.evaluation_tasks(parts)
    prompts = {name: assembly.test_prompts(parts, tasks[name])
               for name in _TASKS.value}
    step, params = _load(parts)
    parts.sampler.load_weights(params, step)
    for name in _TASKS.value:
      with assembly.pool(parts.experiment, tasks[name].reward) as pool:
        answers = evaluate.run(
            parts.sampler, pool, parts.tokenizer.decode, prompts[name],
            assembly.evaluation_spec(parts),
            num_samples=parts.experiment.evaluation.num_samples,
            phase=metrics.Phases())
      for measure, estimate in evaluate.summary(answers).items():
        print(f'{name} {measure} {estimate} ({estimate.num_problems} problems,'
              f' step {step})', flush=True)
      if output:
        evaluate.write(pathlib.Path(output) / name / f'{step}.jsonl', answers)
  except (ValueError, OSError) as error:
    sys.exit(f'{type(error).__name__}: {error}')


if __name__ == '__main__':
  app.run(main)
