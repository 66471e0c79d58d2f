"""Checks a config on this machine: python -m experiments.doctor --config=F.

Devices, versions, what the code sandbox has, mesh, the table of parameters and
their axes, what is wrong with the data, the sampler's log-probs against the
learner's on the same weights, ratio 1 and KL 0 at step 0.
Exits with 1 where sampler and learner disagree.
"""
import sys

from absl import app, logging
from ml_collections import config_flags

_CONFIG = config_flags.DEFINE_config_file(
    'config', 'configs/tiny.py', 'An experiment.', lock_config=True)

# Largest |sampler - learner| in nats that rounding explains, by dtype.
_TOLERANCE = {'float32': 1e-4, 'bfloat16': 0.5}


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'Unknown arguments: {argv[1:]}.')
  logging.set_verbosity(logging.WARNING)
  from rlclip import distributed
  with distributed.joined(**_CONFIG.value.distributed):
    _examine()


def _examine():
  import jax
  import rich.console

  from rlclip import assembly, config, diagnose, distributed, workdir
  from rlclip.data import report
  console = rich.console.Console(quiet=not distributed.is_primary())
  for name, version in workdir.versions().items():
    console.print(f'{name:18} {version}', highlight=False)
  for device in jax.devices():
    console.print(f'device             {device}', highlight=False)
  from rlclip.rewards import sandbox
  try:
    programs = sandbox.isolation()
  except RuntimeError as error:
    programs = f'NONE: {error}'
  console.print(f'code sandbox       {programs}', highlight=False)
  try:
    experiment = config.resolve(_CONFIG.value)
    parts = assembly.build(experiment)
    assembly.check_rows(parts)
    params = assembly.initial_params(parts)
  except (ValueError, OSError) as error:
    sys.exit(f'{type(error).__name__}: {error}')
  sizes = dict(parts.partitioner.mesh.shape)
  console.print(f'mesh               {sizes}', highlight=False)
  console.print(diagnose.parameter_table(parts))
  console.print(f'{parts.model.config.num_params:,} parameters')

  with assembly.pool(experiment, parts.task.reward) as workers:
    for found in assembly.check_data(parts, workers):
      console.print('\n'.join(report.lines(found)), highlight=False,
                    markup=False)

  found = diagnose.agreement(parts, params)
  tolerance = _TOLERANCE[experiment.model.dtype]
  agrees = found.max_difference <= tolerance
  console.print(
      f'sampler - learner  max {found.max_difference:.2e}, mean '
      f'{found.mean_difference:.2e} nats over {found.num_tokens} tokens '
      f'({"within" if agrees else "BEYOND"} {tolerance:g}), mean ratio '
      f'{found.mean_ratio:.6f}', highlight=False)
  console.print(
      f'step 0             log-ratio within {found.max_drift:.1e}, clip '
      f'fraction {found.clip_fraction:g}, KL {found.divergence:.1e} nats',
      highlight=False)
  if not agrees or found.clip_fraction:
    sys.exit('The sampler and the learner do not agree on the same weights.')


if __name__ == '__main__':
  app.run(main)
