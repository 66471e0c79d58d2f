r"""Measures parts of a step: python -m experiments.bench --item=losses.

  --item=losses    every rule's loss against an update of --config
"""
import json
import pathlib
import sys

from absl import app, flags, logging
from ml_collections import config_flags

_CONFIG = config_flags.DEFINE_config_file(
    'config', 'configs/smollm2_arithmetic.py', 'Sizes, model and learner.',
    lock_config=True)
_ITEM = flags.DEFINE_string('item', None, 'What to measure.', required=True)
_JSON = flags.DEFINE_string('json', None, 'File to write the figures to.')


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'Unknown arguments: {argv[1:]}.')
  logging.set_verbosity(logging.WARNING)
  # Here, not above: --help should not wait for jax.
  from rlclip import benchmark, config
  try:
    item = benchmark.ITEMS[_ITEM.value]
    result = item(config.resolve(_CONFIG.value))
  except (ValueError, OSError) as error:
    sys.exit(f'{type(error).__name__}: {error}')
  print(benchmark.table(result))
  if _JSON.value:
    path = pathlib.Path(_JSON.value)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1), encoding='utf-8')


if __name__ == '__main__':
  app.run(main)
