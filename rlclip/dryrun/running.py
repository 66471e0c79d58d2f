"""From a config and a slice's name to a report."""
import dataclasses
import json
import logging
import os
import pathlib
from typing import Any, Mapping

from rlclip import assembly
from rlclip import config as config_lib
from rlclip.data import tokenizer
from rlclip.dryrun import chips, compilation, hlo, memory
from rlclip.dryrun import plan as plan_lib
from rlclip.dryrun import report
from rlclip.models import config as model_config
from rlclip.models import huggingface

_log = logging.getLogger(__name__)


def run(config: Mapping[str, Any], topology: str, *, backend: str = 'tpu',
        config_json: str | os.PathLike | None = None,
        analysis_only: bool = False, mean_length: float = 0,
        name: str = '', part: pathlib.Path | None = None) -> report.Report:
  """Estimates, and where the memory could suffice compiles.

  Args:
    config: as configs/default.py has its keys.
    topology: the slice, 'v5e:8x8' or 'h100:8'.
    backend: 'tpu', or 'gpu' for arithmetic alone.
    config_json: the model's; None reads that of config.model.path.
    analysis_only: compile nothing.
    mean_length: of completions, as in counting.phases.
    name: of the config, for the report.
    part: a file that keeps what is compiled, program by program, for a call
      that goes on after an interruption.

  Raises:
    ValueError: what the config's own checks say; a slice that is none, or not
      of this backend; libtpu missing.
    OSError: the model's config cannot be read.
  """
  experiment = config_lib.resolve(config)
  slice_ = chips.parse(topology)
  if slice_.chip.kind != backend:
    raise ValueError(
        f'{topology} is no {backend} slice. Give --backend='
        f'{slice_.chip.kind}, or another --topology.')
  architecture = _architecture(experiment, config_json)
  compiles = backend == 'tpu' and not analysis_only
  found, host = [], []
  if compiles:
    found, host = compilation.devices(slice_)
    slice_ = dataclasses.replace(slice_, num_devices=len(found))
  plan = plan_lib.make(experiment, architecture, slice_, len(host))
  programs = _read(part)
  held = sum(memory.resident(plan).values())
  _log.info('Estimated %.2f GiB a device of %.2f.',
            memory.total(plan) / chips.GIB, slice_.hbm / chips.GIB)
  # What lies there throughout is certain: no compiler finds room for more.
  if compiles and held <= slice_.usable:
    for phase, lower in compilation.functions(plan, found, host):
      if phase in programs:
        continue
      programs[phase] = compilation.compile_one(lower)
      if part is not None:
        part.write_text(json.dumps(
            {k: dataclasses.asdict(v) for k, v in programs.items()}),
                        encoding='utf-8')
      _log.info('%s: %.2f GiB, compiled in %.0f s.', phase,
                programs[phase].total / chips.GIB, programs[phase].seconds)
  return report.make(
      plan, programs, config=name, mean_length=mean_length,
      model=experiment.model.path or 'random weights')


def _read(part) -> dict[str, report.Program]:
  """What an interrupted call has compiled."""
  if part is None or not part.exists():
    return {}
  found = json.loads(part.read_text(encoding='utf-8'))
  for sizes in found.values():
    sizes['collectives'] = tuple(
        hlo.Collective(**each) for each in sizes['collectives'])
  return {name: report.Program(**sizes) for name, sizes in found.items()}


def _architecture(experiment, path) -> model_config.ModelConfig:
  e = experiment
  if path:
    return model_config.from_hf(
        json.loads(pathlib.Path(path).read_text(encoding='utf-8')))
  if e.model.path:
    return huggingface.read_config(e.model.path)
  task = assembly.get_task(e, e.task.name, e.task.options)
  return assembly.architecture(e, tokenizer.character_tokenizer(task.alphabet))
