"""Which settings would save most memory, by the estimates of memory.py."""
import dataclasses
import math
from typing import Any, Iterator, NamedTuple

from rlclip import config as config_lib
from rlclip.dryrun import chips, memory
from rlclip.dryrun import plan as plan_lib


class Advice(NamedTuple):
  """A change of one setting.

  Attributes:
    change: as on the command line.
    saved: bytes of a device that it would save, by the estimate.
    fits: whether the estimate would then fit.
  """
  change: str
  saved: float
  fits: bool


def best(plan: plan_lib.Plan, count: int = 3) -> list[Advice]:
  """The changes that would save most, each by itself.

  Changes that the config's own checks refuse are left out, as are those that
  save nothing.
  """
  before = memory.total(plan)
  found = []
  for change, other in _candidates(plan):
    try:
      config_lib.resolve(config_lib.as_dict(other.experiment))
      other = plan_lib.make(
          other.experiment, other.architecture, other.slice,
          math.prod(plan.host_mesh))
    except ValueError:
      continue
    after = memory.total(other)
    found.append(Advice(change, before - after, after <= other.slice.usable))
  found = [advice for advice in found if advice.saved > 0]
  return sorted(found, key=lambda advice: -advice.saved)[:count]


def _candidates(plan) -> Iterator[tuple[str, plan_lib.Plan]]:
  """Changes of the config, and of the slice."""
  e = plan.experiment
  for changes in _settings(plan):
    other = e
    for key, value in changes.items():
      group, name = key.split('.')
      part = dataclasses.replace(getattr(other, group), **{name: value})
      other = dataclasses.replace(other, **{group: part})
    text = ' '.join(f'--config.{key}={value}' for key, value in changes.items())
    yield text, dataclasses.replace(plan, experiment=other)
  larger = dataclasses.replace(
      plan.slice, name=f'{plan.slice.num_chips * 2} chips',
      num_chips=plan.slice.num_chips * 2,
      num_devices=plan.slice.num_devices * 2)
  if e.mesh.fsdp == -1:
    text = f'a slice of {larger.num_chips} {_kind(larger.chip)} chips'
    yield text, dataclasses.replace(plan, slice=larger)


def _settings(plan) -> list[dict[str, Any]]:
  e, (data, fsdp, tensor) = plan.experiment, plan.mesh
  options = [
      {'model.remat': 'layer'},
      {'model.dtype': 'bfloat16'},
      {'learner.num_micro_batches': 2 * e.learner.num_micro_batches},
      {'learner.num_micro_batches': 4 * e.learner.num_micro_batches},
      {'learner.logits_chunk': max(1, e.learner.logits_chunk // 4)},
      {'rollout.num_slots': max(1, e.num_slots // 2)},
      {'mesh.data': 1, 'mesh.fsdp': data * fsdp, 'mesh.tensor': tensor}]
  if fsdp % 2 == 0:
    options.append({'mesh.data': data, 'mesh.fsdp': fsdp // 2,
                    'mesh.tensor': 2 * tensor})
  return options


def _kind(chip: chips.Chip) -> str:
  return next(name for name, each in chips.CHIPS.items() if each is chip)
