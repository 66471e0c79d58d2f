"""What every rule is at w = 1, and that no cut, padding or device matters."""
import jax
import numpy as np

from rlclip.oracle import examples
from rlclip.oracle.certificates import programs
from rlclip.oracle.certificates.bandit import distance
from rlclip.oracle.certificates.certificate import register
from rlclip.oracle.certificates.programs import GROUP_SIZE, GROUPS, WIDTH
from rlclip.trust_region import levels

_PADDING = 3  # columns


# Whatever no algorithm has is among the subjects too.
_AXES = ('gate:*', 'bounds:*', 'level:*', 'reduction:*', 'mismatch:*',
         'penalty:*')


def _plain_at_one():
  """Keys of rules that remove no gradient at w = 1."""
  return tuple(key for key in examples.distinct_keys()
               if not examples.spec(key).gate.blocks_at_one)


def _cuttable():
  """Keys of rules that look at one group at a time."""
  return tuple(key for key in examples.distinct_keys()
               if not examples.spec(key).whole_batch)


@register('at_ratio_one_it_is_reinforce', subjects=_plain_at_one,
          covers=('bounds:*', 'level:*', 'reduction:*', 'mismatch:*'))
def at_ratio_one_it_is_reinforce(seed: int, keys) -> dict[str, float]:
  """Where p is the sampler, a rule has the gradient of A log p.

  Beside what its penalty and bonus do where A = 0, and with completions of one
  length, which all reductions and levels treat alike. In units where the mean
  weight of a token is 1, and by the gate's own scale where it has one. Rules
  that may remove a gradient at w = 1 are left out.
  """
  drawn = programs.draw(seed)
  here = drawn.tokens['behavior_logps']
  tokens = dict.fromkeys(
      ('behavior_logps', 'old_logps', 'reference_logps'), here)
  tokens['mask'] = np.ones(here.shape, bool)
  moving = drawn.moving | {'logps': here, 'statistics': 0 * here}
  rows = drawn.rows
  with_a, without = (
      programs.run(_over_devices(_pad(drawn._replace(
          moving=moving, tokens=tokens, rows=rows | {'advantages': a}))), keys)
      for a in (rows['advantages'], 0 * rows['advantages']))
  want = np.zeros_like(with_a[keys[0]].gradients['logps'])
  want[:GROUPS * GROUP_SIZE, :WIDTH] = -rows['advantages'][:, None]
  errors = {}
  for key in keys:
    gradients = jax.tree.map(
        np.subtract, with_a[key].gradients, without[key].gradients)
    gradients['logps'] = gradients['logps'] / _token_weight(key) - want
    errors[key] = max(distance(g, 0) for g in gradients.values())
  return errors


@register('micro_batches_are_the_full_batch', subjects=_cuttable,
          covers=('level:*', 'reduction:*', 'mismatch:*', 'penalty:*'))
def micro_batches_are_the_full_batch(seed: int, keys) -> dict[str, float]:
  """Losses, weights and gradients of parts add up to those of the whole.

  For parts of whole groups, each padded by itself; rules that look at whole
  batches are left out.
  """
  halves = [programs.draw(2 * seed), programs.draw(2 * seed + 1)]
  both = jax.tree.map(lambda *x: np.concatenate(x), *halves)
  whole = programs.run(_over_devices(_pad(both, rows=0)), keys)
  parts = [programs.run(half, keys) for half in halves]
  joined = {}
  for key in keys:
    one, other = (part[key] for part in parts)
    joined[key] = programs.Result(
        one.total + other.total, one.weight + other.weight, *jax.tree.map(
            lambda *x: np.concatenate(x), one[2:], other[2:]))
  return {key: _trimmed_distance(whole[key], joined[key]) for key in keys}


@register('padded_is_trimmed', covers=_AXES,
          subjects=examples.distinct_keys)
def padded_is_trimmed(seed: int, keys) -> dict[str, float]:
  """Padding of any content, in columns, rows and holes, changes nothing.

  Sums over the padded width are held to one constant, as that width is what
  they divide by.
  """
  batch = programs.draw(seed)
  trimmed = programs.run(batch, keys)
  padded = programs.run(_over_devices(_pad(batch)), keys)
  return {key: _trimmed_distance(padded[key], trimmed[key]) for key in keys}


@register('many_devices_are_one', covers=_AXES,
          subjects=examples.distinct_keys)
def many_devices_are_one(seed: int, keys) -> dict[str, float]:
  """A batch laid over all devices has the loss and gradient of one device.

  Over as many devices as divide it, eight at most; on a machine with one the
  certificate says nothing. Eight on a CPU take
  XLA_FLAGS=--xla_force_host_platform_device_count=8.
  """
  batch = programs.draw(seed)
  alone = programs.run(batch, keys)
  spread = programs.run(_over_devices(_pad(batch)), keys)
  return {key: _trimmed_distance(spread[key], alone[key]) for key in keys}


def _over_devices(batch: programs.Batch):
  """Rows laid over the devices; whatever is padded here is, too.

  So that one program answers several questions.
  """
  num = next(n for n in (8, 4, 2, 1) if n <= len(jax.devices()))
  mesh = jax.sharding.Mesh(np.array(jax.devices()[:num]), ('data',))
  with jax.enable_x64(True):
    return jax.device_put(batch, jax.sharding.NamedSharding(
        mesh, jax.sharding.PartitionSpec('data')))


def _pad(batch: programs.Batch, rows: int = GROUPS * GROUP_SIZE):
  """Adds columns and rows, and puts inf and nan wherever the mask is False."""
  rng = np.random.default_rng(0)
  bad = lambda shape: rng.choice([np.nan, np.inf, -np.inf], shape)
  wider = lambda x: np.pad(x, ((0, rows), (0, _PADDING)))
  mask = wider(batch.tokens['mask'])
  pad = lambda x: x if x.dtype == bool else np.where(mask, x, bad(x.shape))
  padded = jax.tree.map(lambda x: pad(wider(x)), batch._replace(rows={}))
  return padded._replace(rows={
      k: np.where(mask.any(-1), np.pad(v, (0, rows)), bad(len(mask)))
      for k, v in batch.rows.items()})


def _trimmed_distance(padded: programs.Result, trimmed: programs.Result):
  """Largest difference; padding counts with its own gradient, which is 0."""
  def difference(a, b):
    a = np.array(a)
    a[:len(b), :b.shape[1]] -= b
    return distance(a, 0)

  return max(distance(padded.total, trimmed.total),
             distance(padded.weight, trimmed.weight),
             *jax.tree.leaves(jax.tree.map(
                 difference, padded[2:], trimmed[2:])))


def _token_weight(key):
  """Weight of each token's gradient where all completions have WIDTH tokens."""
  spec = programs.spec(key)
  mask = np.ones((1, WIDTH), bool)
  with jax.enable_x64(True):
    tokens = spec.reduction(mask).tokens
    level = levels.get(spec.level)
    weight = jax.grad(lambda x: (tokens * level(x, mask)).sum())(
        np.zeros(mask.shape))
  return float(weight[0, 0]) * spec.gate.scale
