"""The mesh, and the rules that lay logical axes on it. Nobody else knows it."""
import dataclasses
import math
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
import numpy as np

MESH_AXES = ('data', 'fsdp', 'tensor')

# Logical axis -> mesh axis or axes. Parameters and activations alike.
AXIS_RULES = (
    ('batch', ('data', 'fsdp')),
    ('embed', 'fsdp'),
    ('heads', 'tensor'),
    ('kv_heads', 'tensor'),
    ('mlp', 'tensor'),
    ('vocab', 'tensor'),
    ('layers', None),
    ('length', None),
    ('embed_activation', None),
)


@dataclasses.dataclass(frozen=True)
class Partitioner:
  """A mesh and its axis rules.

  Attributes:
    mesh: over MESH_AXES, Auto axis types.
    rules: pairs (logical axis, mesh axes).
  """
  mesh: Mesh
  rules: tuple[tuple[str, Any], ...] = AXIS_RULES

  @property
  def num_batch_shards(self) -> int:
    """How many ways the leading axis of a batch is cut."""
    axes = dict(self.rules)['batch']
    return math.prod(self.mesh.shape[axis] for axis in axes)

  def spec(self, axes, shape) -> PartitionSpec:
    """Lays logical `axes` on the mesh; one that does not divide stays whole.

    Raises:
      ValueError: on an axis without a rule, or two that take one mesh axis.
    """
    rules = dict(self.rules)
    entries, taken = [], set()
    for axis, size in zip(axes, shape, strict=True):
      if axis is not None and axis not in rules:
        raise ValueError(
            f'No rule for the logical axis {axis!r}; known: {sorted(rules)}. '
            f'Add a pair to AXIS_RULES.')
      target = rules[axis] if axis is not None else None
      parts = (target,) if isinstance(target, str) else tuple(target or ())
      if taken & set(parts):
        raise ValueError(
            f'Logical axes {axes} put two dimensions on the mesh axis '
            f'{sorted(taken & set(parts))}. Change AXIS_RULES.')
      divides = size % math.prod(self.mesh.shape[p] for p in parts) == 0
      taken |= set(parts) if divides else set()
      entries.append(target if divides else None)
    return PartitionSpec(*entries)

  def sharding(self, axes, shape) -> NamedSharding:
    """NamedSharding of an array with these logical axes."""
    return NamedSharding(self.mesh, self.spec(axes, shape))

  def replicated(self) -> NamedSharding:
    return NamedSharding(self.mesh, PartitionSpec())

  def tree_shardings(self, axes_tree, abstract_tree):
    """Shardings of a tree, from a tree of axis tuples beside its shapes."""
    return jax.tree.map(
        lambda leaf, axes: self.sharding(axes, leaf.shape),
        abstract_tree, axes_tree)

  def batch_shardings(self, batch):
    """Leading axis over the batch axes, the rest whole."""
    return jax.tree.map(
        lambda leaf: self.sharding(
            ('batch',) + (None,) * (np.ndim(leaf) - 1), np.shape(leaf)), batch)

  def put(self, batch):
    """Lays a batch on the mesh; every process has all of it, and the same.

    Each takes the rows of its own devices. Nothing is compared or sent.
    """
    return jax.tree.map(
        lambda x, sharding: jax.make_array_from_callback(
            np.shape(x), sharding, lambda index: np.asarray(x)[index]),
        batch, self.batch_shardings(batch))

  def constrain(self, array, axes):
    """A sharding constraint by logical axes, inside jit."""
    if self.mesh.size == 1:
      return array
    return jax.lax.with_sharding_constraint(
        array, self.sharding(axes, array.shape))

  def local(self, function, axes_in, axes_out):
    """A function of arrays that each device runs on its own parts of them.

    Args:
      function: of as many arrays as there are `axes_in`.
      axes_in: logical axes of each.
      axes_out: of the one array that it returns, of the first one's shape.

    Returns:
      The function of whole arrays, inside jit.
    """
    if self.mesh.size == 1:
      return function

    def run(*arrays):
      specs = tuple(self.spec(axes, x.shape)
                    for axes, x in zip(axes_in, arrays, strict=True))
      return jax.shard_map(
          function, mesh=self.mesh, in_specs=specs,
          out_specs=self.spec(axes_out, arrays[0].shape),
          check_vma=False)(*arrays)
    return run


def within_process(partitioner: Partitioner) -> Partitioner:
  """A mesh of this process's devices, by the same rules.

  Parameters are cut as they are on the whole mesh, as far as the devices go:
  what needs several to fit takes several here. The rest are replicas.
  """
  devices, sizes = jax.local_devices(), partitioner.mesh.shape
  made = make(*sizes_within(sizes['fsdp'], sizes['tensor'], len(devices)),
              devices=devices)
  return dataclasses.replace(made, rules=partitioner.rules)


def sizes_within(fsdp: int, tensor: int, num_devices: int
                 ) -> tuple[int, int, int]:
  """Sizes of the mesh of `num_devices` of a larger mesh's devices."""
  tensor = math.gcd(tensor, num_devices)
  fsdp = math.gcd(fsdp, num_devices // tensor)
  return num_devices // tensor // fsdp, fsdp, tensor


def make(data: int = 1, fsdp: int = 1, tensor: int = 1,
         devices=None) -> Partitioner:
  """Builds the mesh; one size may be -1 (all devices that are left).

  Args:
    data: replicas of everything.
    fsdp: ways to cut batch and parameters.
    tensor: ways to cut heads, mlp and vocabulary.
    devices: defaults to all of jax.devices().

  Returns:
    The Partitioner.

  Raises:
    ValueError: where the sizes do not use exactly the devices there are.
  """
  devices = jax.devices() if devices is None else list(devices)
  sizes = [data, fsdp, tensor]
  if sizes.count(-1) > 1 or any(s < 1 and s != -1 for s in sizes):
    raise ValueError(
        f'mesh sizes must be positive, at most one -1, got data={data}, '
        f'fsdp={fsdp}, tensor={tensor}.')
  known = math.prod(s for s in sizes if s != -1)
  if -1 in sizes and len(devices) % known == 0:
    sizes[sizes.index(-1)] = len(devices) // known
  if -1 in sizes or math.prod(sizes) != len(devices):
    would = ', '.join(
        ' x '.join(map(str, each)) for each in _nearest(sizes, len(devices)))
    raise ValueError(
        f'mesh data={data} x fsdp={fsdp} x tensor={tensor} does not use the '
        f'{len(devices)} devices there are. Give sizes whose product is '
        f'{len(devices)}, or one of them as -1. The nearest that would do: '
        f'{would}.')
  # Auto, said out loud: make_mesh defaults to Explicit axes in new versions,
  # under which Linen's partitioning metadata asserts.
  grid = np.asarray(devices).reshape(sizes)
  return Partitioner(Mesh(grid, MESH_AXES, axis_types=(AxisType.Auto,) * 3))


def _nearest(sizes, count, most=3):
  """Sizes whose product is `count`: first those that change fewest of them."""
  divisors = [n for n in range(1, count + 1) if count % n == 0]
  found = [(data, fsdp, count // (data * fsdp))
           for data in divisors for fsdp in divisors
           if count % (data * fsdp) == 0]

  def distance(other):
    pairs = [(a, b) for a, b in zip(sizes, other) if a != -1]
    return (sum(a != b for a, b in pairs),
            sum(abs(math.log(a / b)) for a, b in pairs))

  return sorted(found, key=distance)[:most]
