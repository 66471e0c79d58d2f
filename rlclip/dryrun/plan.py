"""How the work of a config falls to the devices of a slice."""
import dataclasses
import math

from rlclip import config as config_lib
from rlclip import partitioning
from rlclip.dryrun import chips
from rlclip.models import config as model_config
from rlclip.models import groups
from rlclip.sampler import slots as slots_lib

# As the engine's: tokens of a prompt computed at once, prompts at once, and
# prefixes kept for each that full groups would need.
CHUNK, PROMPTS, _SPARE = 256, 4, 4
_SMALLEST_CACHE, _BASE = 64, 4
_DEVICES_A_HOST = {'tpu': 4, 'gpu': 8}


@dataclasses.dataclass(frozen=True)
class Plan:
  """A config on a slice.

  Attributes:
    experiment: the config.
    architecture: of the model.
    slice: the chips.
    mesh: sizes (data, fsdp, tensor) of the learner's.
    host_mesh: likewise of the sampler's, on the devices of one process.
    num_processes: hosts, a process each.
  """
  experiment: config_lib.Experiment
  architecture: model_config.ModelConfig
  slice: chips.Slice
  mesh: tuple[int, int, int]
  host_mesh: tuple[int, int, int]
  num_processes: int

  @property
  def batch_shards(self) -> int:
    """Ways in which the learner's rows are cut."""
    return self.mesh[0] * self.mesh[1]

  @property
  def micro_prompts(self) -> int:
    """Prompts of a micro-batch."""
    e = self.experiment
    return (e.rollout.num_prompts // e.learner.num_mini_batches
            // e.learner.num_micro_batches)

  @property
  def micro_rows(self) -> int:
    """Completions of a micro-batch."""
    return self.micro_prompts * self.experiment.rollout.group_size

  @property
  def is_grouped(self) -> bool:
    """Whether the learner lays a group in one sequence; see models.groups."""
    kind = self.experiment.model.attention
    return kind == 'splash' or (
        kind == 'auto' and self.slice.chip.kind == 'tpu')

  def own_sequences(self, prompts: int) -> tuple[float, float]:
    """(prompts, completions) of so many groups that one device computes."""
    group, shards = self.experiment.rollout.group_size, self.batch_shards
    if self.is_grouped:
      parts = groups.num_parts(prompts, group, shards)
      own = each(prompts * parts, shards)
      return own, own * group / parts
    return each(prompts, shards), each(prompts * group, shards)

  @property
  def num_slots(self) -> int:
    """Of one process."""
    return -(-self.experiment.num_slots // self.num_processes)

  @property
  def itemsize(self) -> int:
    """Bytes of an activation's element."""
    return 2 if self.experiment.model.dtype == 'bfloat16' else 4

  def slot_sizes(self) -> slots_lib.Sizes:
    """Of a process's sampler, once its caches have their largest sizes."""
    r, power = self.experiment.rollout, lambda n: 1 << (n - 1).bit_length()
    slots = self.num_slots
    prompts = -(-r.num_prompts // self.num_processes)
    lines = min(slots, power(r.group_size))
    prefixes = min(power(prompts), slots, _SPARE * -(-slots // lines))
    capacity = _bucket(r.prompt_length - 1, r.prompt_length)
    if capacity > CHUNK:
      capacity = -(-capacity // CHUNK) * CHUNK
    return slots_lib.Sizes(
        slots, prefixes, lines, capacity,
        _bucket(r.completion_length, r.completion_length))


def make(experiment: config_lib.Experiment,
         architecture: model_config.ModelConfig, slice_: chips.Slice,
         devices_a_process: int = 0) -> Plan:
  """Lays the config's mesh on the slice.

  Args:
    experiment: the config.
    architecture: of the model.
    slice_: the chips.
    devices_a_process: 0 takes what such hosts usually have.

  Raises:
    ValueError: a mesh that does not use the devices, with sizes that would; or
      a sequence beyond the model's positions.
  """
  h, r, count = experiment.mesh, experiment.rollout, slice_.num_devices
  total = r.prompt_length + r.completion_length
  if total > architecture.max_positions:
    raise ValueError(
        f'rollout.prompt_length + rollout.completion_length = {total} is more '
        f'than the {architecture.max_positions} positions of the model. Lower '
        f'one of them.')
  sizes = [h.data, h.fsdp, h.tensor]
  known = math.prod(size for size in sizes if size != -1)
  if sizes.count(-1) == 1 and count % known == 0:
    sizes[sizes.index(-1)] = count // known
  if min(sizes) < 1 or math.prod(sizes) != count:
    raise ValueError(
        f'mesh data={h.data} x fsdp={h.fsdp} x tensor={h.tensor} does not use '
        f'the {count} devices of {slice_.name}. Give sizes whose product is '
        f'{count}, as data=1, fsdp={count // max(h.tensor, 1)}, '
        f'tensor={max(h.tensor, 1)}, or one of them as -1.')
  local = min(count, devices_a_process or _DEVICES_A_HOST[slice_.chip.kind])
  host_mesh = partitioning.sizes_within(*sizes[1:], local)
  return Plan(experiment, architecture, slice_, tuple(sizes), host_mesh,
              count // local)


def each(count: int, shards: int) -> float:
  """Of `count` rows those on one device; all where they do not divide."""
  return count / shards if count % shards == 0 else float(count)


def _bucket(size, largest):
  smallest = _SMALLEST_CACHE
  while smallest < size:
    smallest *= _BASE
  return max(1, min(smallest, largest))
