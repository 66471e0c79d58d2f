r"""What a config would need and take on chips that are not attached.

python -m experiments.dryrun --config=configs/papers/gapo.py:sequence \
  --topology=v6e:4x4

compiles the learner's and the sampler's own functions for that slice of TPUs
(the extra `tpu`), from shapes alone. --backend=gpu --topology=h100:8 estimates
by arithmetic. --papers=configs/papers/slices.py makes the table of the papers.
Exits with 1 where the config does not fit.
"""
import json
import os
import pathlib
import runpy
import sys

from absl import app, flags, logging
from ml_collections import config_flags

_CONFIG = config_flags.DEFINE_config_file(
    'config', None, 'An experiment, as configs/quickstart.py.',
    lock_config=True)
_TOPOLOGY = flags.DEFINE_string(
    'topology', None, "A slice: 'v5e:8x8', 'v6e:4x4', 'v5p:2x2x4', 'h100:8'.")
_BACKEND = flags.DEFINE_enum(
    'backend', 'tpu', ['tpu', 'gpu'], 'gpu: by arithmetic alone.')
_MODEL = flags.DEFINE_string(
    'model_config', None,
    "The model's config.json, where config.model.path is not on the disk.")
_ANALYSIS = flags.DEFINE_bool(
    'analysis_only', False, 'By arithmetic alone; nothing is compiled.')
_LENGTH = flags.DEFINE_float(
    'mean_length', 0, 'Of completions, in tokens; 0 takes the longest.')
_JSON = flags.DEFINE_string('json', None, 'File to write the report to.')
_PAPERS = flags.DEFINE_string(
    'papers', None, 'A file with ROWS, as configs/papers/slices.py: a table.')
_ONLY = flags.DEFINE_list('only', [], 'With --papers: rows to compile now.')
_MODELS = flags.DEFINE_string(
    'models', None, 'With --papers: a folder of <org>__<name>.json.')
_OUTPUT = flags.DEFINE_string(
    'output', 'docs/results/papers.md', 'With --papers: the table.')


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'Unknown arguments: {argv[1:]}.')
  logging.set_verbosity(logging.WARNING)
  # The TPUs are described, not attached; JAX itself runs on the host.
  os.environ['JAX_PLATFORMS'] = 'cpu'
  from rlclip.dryrun import papers, report, running
  try:
    if _PAPERS.value:
      rows = runpy.run_path(_PAPERS.value)['ROWS']
      papers.write(rows, pathlib.Path(_OUTPUT.value),
                   models=_MODELS.value, only=_ONLY.value)
      return
    if _CONFIG.value is None or not _TOPOLOGY.value:
      raise ValueError(
          'Expected --config and --topology, as --config=configs/quickstart.py '
          '--topology=v5e:2x2; or --papers.')
    made = running.run(
        _CONFIG.value, _TOPOLOGY.value, backend=_BACKEND.value,
        config_json=_MODEL.value, analysis_only=_ANALYSIS.value,
        mean_length=_LENGTH.value, name=config_flags.get_config_filename(
            flags.FLAGS['config']))
  except (ValueError, OSError) as error:
    sys.exit(f'{type(error).__name__}: {error}')
  report.show(made)
  if _JSON.value:
    path = pathlib.Path(_JSON.value)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report.as_dict(made), indent=1),
                    encoding='utf-8')
  sys.exit(0 if made.fits else 1)


if __name__ == '__main__':
  app.run(main)
