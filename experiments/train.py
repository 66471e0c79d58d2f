"""Trains an experiment: python -m experiments.train --config=F --workdir=D."""
import sys

from absl import app, flags, logging
from ml_collections import config_flags

_CONFIG = config_flags.DEFINE_config_file(
    'config', None, 'An experiment, as configs/quickstart.py.',
    lock_config=True)
_WORKDIR = flags.DEFINE_string(
    'workdir', None, "The run's folder; a run that ended early continues.")
flags.mark_flags_as_required(['config', 'workdir'])


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'Unknown arguments: {argv[1:]}.')
  logging.set_verbosity(logging.WARNING)  # orbax tells all it does
  # Here, not above: --help should not wait for jax.
  from rlclip import distributed
  try:
    # First: whatever else is imported may already touch a device.
    with distributed.joined(**_CONFIG.value.distributed):
      from rlclip import config, train
      train.train(config.resolve(_CONFIG.value), _WORKDIR.value)
  except distributed.MENDABLE as error:
    # log.txt has the stack.
    sys.exit(f'{type(error).__name__}: {error}')


if __name__ == '__main__':
  app.run(main)
