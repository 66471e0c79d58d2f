"""The real functions, compiled for a slice from shapes alone.

The learner's update and score and the sampler's functions are lowered with
abstract arguments on devices that only describe a slice: nothing is allocated.
"""
import functools
import os
import re
import time
from typing import Any, Callable, Iterator

import jax
import jax.numpy as jnp

from rlclip import assembly, partitioning
from rlclip.dryrun import chips, hlo
from rlclip.dryrun import plan as plan_lib
from rlclip.dryrun import report
from rlclip.models import transformer
from rlclip.sampler import draw
from rlclip.sampler import requests as requests_lib
from rlclip.sampler import slots as slots_lib
from rlclip.types import Batch

# What libtpu asks a machine for that is not one of a pod.
_ENVIRONMENT = {
    'TPU_SKIP_MDS_QUERY': '1', 'TPU_WORKER_HOSTNAMES': 'localhost',
    'TPU_ACCELERATOR_TYPE': 'v5litepod-4'}
_HOST = {2: '2x2', 3: '2x2x1'}  # a host's chips, by the torus's dimensions
_NO_ROOM = re.compile(r'Used ([\d.]+)([KMGT]) of ([\d.]+)([KMGT]) hbm')
_UNITS = {'K': 2 ** 10, 'M': 2 ** 20, 'G': 2 ** 30, 'T': 2 ** 40}


def devices(slice_: chips.Slice) -> tuple[list[Any], list[Any]]:
  """Descriptions of a slice's devices, and of those of one of its hosts.

  A host's are a slice of their own: the compiler numbers what it compiles for
  from 0, wherever that lies in a larger slice.

  Raises:
    ValueError: libtpu is not there, or knows no such slice.
  """
  for key, value in _ENVIRONMENT.items():
    os.environ.setdefault(key, value)
  try:
    import libtpu
    del libtpu
  except ImportError as error:
    raise ValueError(
        "Compiling for a TPU that is not attached needs the package libtpu. "
        "Install the extra 'tpu': pip install 'rlclip[tpu]'. Without it "
        '--analysis_only estimates by arithmetic.') from error
  found = _described(slice_.name)
  if all(d.process_index == found[0].process_index for d in found):
    return found, found
  chip = slice_.name.partition(':')[0]
  return found, _described(f'{chip}:{_HOST[slice_.chip.dims]}')


def _described(name: str) -> list[Any]:
  from jax.experimental import topologies
  try:
    return list(topologies.get_topology_desc(
        platform='tpu', topology_name=name).devices)
  except jax.errors.JaxRuntimeError as error:
    raise ValueError(
        f'libtpu knows no slice {name!r}: {error}. Take one that is sold, as '
        f"'v5e:4x4', 'v6e:8x8' or 'v5p:2x2x4'.") from error


def functions(plan: plan_lib.Plan, found: list[Any], host: list[Any]
              ) -> Iterator[tuple[str, Callable[[], jax.stages.Lowered]]]:
  """(name, call that lowers it) of what an RL step runs on devices.

  Args:
    plan: the config on its slice.
    found: the slice's devices, or as many others.
    host: those of one process.
  """
  e = plan.experiment
  if e.sampler.kind == 'local':
    yield from _sampler(plan, host)
  mesh = partitioning.make(*plan.mesh, devices=found)
  model, spec, learner = assembly.learner(e, plan.architecture, mesh)
  state = _abstract(
      jax.eval_shape(lambda key: learner.init(model.init(key)),
                     jax.random.key(0)), learner.shardings)
  batch = lambda prompts: _abstract_batch(plan, mesh, prompts)
  if spec.needs_old:
    whole = batch(e.rollout.num_prompts)
    yield 'score', lambda: learner.score.lower(state.params, whole)
  part = batch(e.rollout.num_prompts // e.learner.num_mini_batches)
  others = [state.params if needed else None for needed in (
      spec.needs_reference, spec.needs_anchor_policy)]
  yield 'update', lambda: learner.update.lower(state, others[0], part,
                                               others[1])


def compile_one(
    lower: Callable[[], jax.stages.Lowered],
    options: dict[str, Any] | None = None) -> report.Program:
  """Compiles one function and reads what the compiler says of it.

  Raises:
    jax.errors.JaxRuntimeError: it does not compile for another reason than
      that it takes too much memory.
  """
  start = time.monotonic()
  try:
    compiled = lower().compile(compiler_options=options)
  except jax.errors.JaxRuntimeError as error:
    match = _NO_ROOM.search(str(error))
    if match is None:
      raise
    return report.Program(
        needed=float(match[1]) * _UNITS[match[2]],
        seconds=time.monotonic() - start)
  memory, costs = compiled.memory_analysis(), compiled.cost_analysis()
  return report.Program(
      memory.argument_size_in_bytes,
      memory.output_size_in_bytes - memory.alias_size_in_bytes,
      memory.temp_size_in_bytes, 0, costs.get('flops', 0),
      tuple(hlo.collectives(compiled.as_text())), time.monotonic() - start)


def _abstract(tree, shardings):
  return jax.tree.map(
      lambda leaf, sharding: jax.ShapeDtypeStruct(
          leaf.shape, leaf.dtype, sharding=sharding), tree, shardings)


def _abstract_batch(plan, mesh, num_prompts) -> Batch:
  """Shapes of so many prompts' batch, at their largest."""
  r = plan.experiment.rollout
  rows, length = num_prompts * r.group_size, r.completion_length
  shape = jax.ShapeDtypeStruct
  ints, floats = jnp.int32, jnp.float32
  batch = Batch(
      prompts=shape((num_prompts, r.prompt_length), ints),
      prompt_lengths=shape((num_prompts,), ints),
      completions=shape((rows, length), ints),
      mask=shape((rows, length), bool),
      behavior_logps=shape((rows, length), floats),
      old_logps=shape((rows, length), floats),
      advantages=shape((rows,), floats), rewards=shape((rows,), floats),
      group_mean=shape((rows,), floats), group_size=shape((rows,), floats),
      truncated=shape((rows,), bool))
  return _abstract(batch, mesh.batch_shardings(batch))


def _sampler(plan, host):
  """The sampler's functions on the devices of one process."""
  e, sizes = plan.experiment, plan.slot_sizes()
  mesh = partitioning.make(*plan.host_mesh, devices=host)
  dtype = jnp.dtype(e.model.dtype)
  model = transformer.make(
      plan.architecture, dtype=dtype, decoding=True, constrain=mesh.constrain)
  given = transformer.make(plan.architecture)
  learned = jax.eval_shape(given.init, jax.random.key(0))
  learned = _abstract(learned, mesh.tree_shardings(given.axes, learned))
  params = _laid(jax.jit(lambda params: jax.tree.map(
      lambda x: x.astype(dtype),
      transformer.decoding_params(plan.architecture, params))).lower(learned))
  slots = _laid(jax.jit(lambda: slots_lib.empty(
      model, sizes, requests_lib.MAX_STOP_IDS, dtype, mesh.constrain)).lower())
  whole = lambda *shape, dtype=jnp.int32: jax.ShapeDtypeStruct(
      shape, dtype, sharding=mesh.replicated())
  count = plan_lib.PROMPTS
  chunk = min(plan_lib.CHUNK, sizes.prefix_capacity)
  yield 'prefill', lambda: jax.jit(
      functools.partial(slots_lib.prefill, model), static_argnames='later',
      donate_argnums=1).lower(
          params, slots, whole(count, chunk), whole(count), whole(count),
          whole(count), later=sizes.prefix_capacity > chunk)
  key = jax.eval_shape(lambda: jax.random.key(0))
  key = whole(*key.shape, dtype=key.dtype)
  yield 'decode', lambda: jax.jit(
      functools.partial(slots_lib.decode_round, model,
                        num_steps=e.rollout.steps_per_round),
      static_argnames='mode', donate_argnums=2).lower(
          params, key, slots, whole(), mode=draw.Mode())


def _laid(lowered):
  """Abstract outputs of a function, laid as the compiler lays them."""
  return _abstract(lowered.out_info, lowered.compile().output_shardings)
