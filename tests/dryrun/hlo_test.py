"""Collectives read off programs that XLA has compiled here, and off text."""
import functools

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec
import numpy as np
import pytest

from rlclip.dryrun import hlo

_MESH = jax.sharding.Mesh(
    np.asarray(jax.devices()), ('x',), axis_types=(AxisType.Auto,))
_ROUNDS = 5


def _compiled(function, *shapes):
  return jax.jit(function).lower(*shapes).compile().as_text()


def _mapped(function, out=PartitionSpec()):
  return jax.shard_map(
      function, mesh=_MESH, in_specs=PartitionSpec('x'), out_specs=out,
      check_vma=False)


@pytest.fixture(scope='module')
def rows():
  return jax.ShapeDtypeStruct(
      (64, 16), jnp.float32,
      sharding=NamedSharding(_MESH, PartitionSpec('x')))


def test_an_all_reduce_of_eight_devices(rows):
  text = _compiled(_mapped(lambda x: jax.lax.psum(x, 'x')), rows)
  (found,) = hlo.collectives(text)
  # 8 rows of 16 numbers on a device.
  assert found == hlo.Collective('all-reduce', 8 * 16 * 4, 8, 1, True)
  assert found.seconds(1000.0) == pytest.approx(512 * 2 * 7 / 8 / 1000)


def test_a_collective_in_a_loop_counts_as_often_as_the_loop_runs(rows):
  def loop(x):
    step = lambda _, y: jnp.tanh(jax.lax.psum(y, 'x'))
    return jax.lax.fori_loop(0, _ROUNDS, step, x)
  found = hlo.collectives(_compiled(_mapped(loop), rows))
  assert [(c.kind, c.count, c.exact) for c in found] == [
      ('all-reduce', _ROUNDS, True)]


def test_a_loop_of_unknown_length_is_counted_once_and_said_to_be(rows):
  def loop(x):
    more = lambda y: jnp.sum(y) < 1e6
    return jax.lax.while_loop(more, lambda y: jax.lax.psum(y, 'x') + 1, x)
  found = hlo.collectives(_compiled(_mapped(loop), rows))
  assert [(c.count, c.exact) for c in found] == [(1, False)]


def test_a_sharded_product_gathers_its_weights():
  weights = jax.ShapeDtypeStruct(
      (32, 64), jnp.float32,
      sharding=NamedSharding(_MESH, PartitionSpec('x')))
  gather = functools.partial(jax.lax.all_gather, axis_name='x', tiled=True)
  found = hlo.collectives(_compiled(_mapped(gather), weights))
  # Of an all-gather all that comes out counts.
  assert [(c.kind, c.bytes, c.group) for c in found] == [
      ('all-gather', 32 * 64 * 4, 8)]


_SPREAD = """
HloModule m

%part.1 (p: bf16[4,8]) -> bf16[32,8] {
  %p = bf16[4,8]{1,0} parameter(0)
  ROOT %g = bf16[32,8]{1,0:T(8,128)(2,1)} all-gather(%p), channel_id=7, \
replica_groups=mesh['a'=2,'b'=8] {'b'}, dimensions={0}
}

%part.2 (q: bf16[4,8]) -> bf16[32,8] {
  %q = bf16[4,8]{1,0} parameter(0)
  ROOT %h = bf16[32,8]{1,0} all-gather(%q), channel_id=7, \
replica_groups=mesh['a'=2,'b'=8] {'b'}, dimensions={0}
}

ENTRY %main (a: bf16[4,8]) -> bf16[32,8] {
  %a = bf16[4,8]{1,0} parameter(0)
  %f = bf16[32,8]{1,0} fusion(%a), kind=kCustom, calls=%part.1
  %s = (f32[2,8]{1,0}, f32[16,8]{1,0}, u32[]) collective-permute-start(%a), \
channel_id=9, source_target_pairs={{0,1},{1,0}}
  %r = f32[2,8]{1,0} reduce-scatter(%a), channel_id=10, \
replica_groups=[2,8]<=[16], dimensions={0}, to_apply=%add
  ROOT %e = bf16[32,8]{1,0} fusion(%a), kind=kCustom, calls=%part.2
}
"""


def test_one_collective_that_stands_in_two_fusions_counts_once():
  found = {c.kind: c for c in hlo.collectives(_SPREAD)}
  assert found['all-gather'] == hlo.Collective(
      'all-gather', 32 * 8 * 2, 8, 1, True)
  assert found['collective-permute'].bytes == 16 * 8 * 4
  # What goes in is the group's times what comes out.
  assert found['reduce-scatter'].bytes == 8 * 2 * 8 * 4


def test_a_text_without_an_entry_is_refused():
  with pytest.raises(ValueError, match='ENTRY'):
    hlo.collectives('no module')
