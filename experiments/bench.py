r"""Measures parts of a step: python -m experiments.bench --item=tiny.

  --item=losses         every rule's loss against an update of --config
  --item=tiny, small    rollout, log-probs, update and whole iterations of one
                        fixed shape; small is SmolLM2-135M's
  --item=machine        products by dtype, and memory bandwidth
  --item=tails          continuous against static batching, lengths that
                        differ much

--only=rollout,learner measures these parts; --dtype=bfloat16, --repeats=5.
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
_DTYPE = flags.DEFINE_enum(
    'dtype', None, ['float32', 'bfloat16'], "By default the item's own.")
_REPEATS = flags.DEFINE_integer(
    'repeats', 0, "Warm calls of a median; 0 takes the item's own number.",
    lower_bound=0)
_ONLY = flags.DEFINE_list('only', [], 'Parts to measure; all by default.')
_JSON = flags.DEFINE_string('json', None, 'File to write the figures to.')


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'Unknown arguments: {argv[1:]}.')
  logging.set_verbosity(logging.WARNING)
  # Here, not above: --help should not wait for jax.
  from rlclip import benchmark, config
  try:
    item = benchmark.ITEMS[_ITEM.value]
    result = item.run(benchmark.Options(
        config.resolve(_CONFIG.value), dtype=_DTYPE.value,
        repeats=_REPEATS.value, only=_ONLY.value))
  except (ValueError, OSError) as error:
    sys.exit(f'{type(error).__name__}: {error}')
  print(item.table(result))
  if _JSON.value:
    path = pathlib.Path(_JSON.value)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1), encoding='utf-8')


if __name__ == '__main__':
  app.run(main)
