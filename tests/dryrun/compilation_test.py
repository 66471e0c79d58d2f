"""What is compiled is what runs; for a TPU where libtpu is there."""
import importlib.util
import json
import pathlib
import subprocess
import sys

import jax
import pytest

from rlclip.dryrun import chips, compilation
from rlclip.sampler import engine
from tests.dryrun.counting_test import ARCHITECTURE, make_plan

_ROOT = pathlib.Path(__file__).parents[2]
_HAS_LIBTPU = importlib.util.find_spec('libtpu') is not None
needs_libtpu = pytest.mark.skipif(
    not _HAS_LIBTPU, reason="the extra 'tpu' is not installed")


@pytest.fixture(scope='module')
def programs():
  """Of a small config on four of this machine's devices."""
  plan = make_plan(
      rollout__num_prompts=8, rollout__prompt_length=16,
      rollout__completion_length=32, model__remat='layer',
      learner__num_mini_batches=2, algorithm__anchor='old')
  functions = compilation.functions(
      plan, jax.devices()[:4], jax.devices()[:4])
  return plan, {name: compilation.compile_one(lower)
                for name, lower in functions}


def test_every_phase_is_compiled(programs):
  assert list(programs[1]) == ['prefill', 'decode', 'score', 'update']


def test_an_updates_arguments_are_state_reference_and_batch(programs):
  plan, found = programs
  params = ARCHITECTURE.num_params
  # float32: parameters, two moments, the reference; a quarter on a device.
  # Norms are whole on each, and a batch is small.
  expected = 16 * params / 4
  assert expected < found['update'].arguments < 1.1 * expected


def test_a_donated_state_comes_out_in_its_own_place(programs):
  # What comes out besides is metrics.
  assert programs[1]['update'].outputs < 4096


def test_fully_sharded_weights_are_gathered(programs):
  kinds = {c.kind for c in programs[1]['update'].collectives}
  assert 'all-gather' in kinds
  assert kinds & {'all-reduce', 'reduce-scatter'}


def test_slots_have_the_sizes_of_an_engine_that_is_warm():
  plan = make_plan(
      'v5e:1x1', mesh__fsdp=1, rollout__num_prompts=8, rollout__num_slots=16,
      rollout__prompt_length=400, rollout__completion_length=100)
  own = engine.Engine(ARCHITECTURE, seed=0, num_slots=16, max_prompt=400,
                      max_tokens=100)
  own._prepare(8, 8, 400, 100)
  assert plan.slot_sizes() == own._sizes


@pytest.mark.skipif(_HAS_LIBTPU, reason='libtpu is there')
def test_without_libtpu_the_extra_is_named():
  with pytest.raises(ValueError, match=r"rlclip\[tpu\]"):
    compilation.devices(chips.parse('v5e:2x2'))


@needs_libtpu
def test_a_small_config_compiles_for_a_tpu(tmp_path):
  # In a process of its own: libtpu reads the environment once.
  made = subprocess.run(
      # Two hosts, on each of which the sampler's weights are cut.
      [sys.executable, '-m', 'experiments.dryrun', '--config=configs/tiny.py',
       '--topology=v5e:2x4', '--config.mesh.data=1', '--config.mesh.fsdp=4',
       '--config.mesh.tensor=2', f'--json={tmp_path}/report.json'],
      cwd=_ROOT, capture_output=True, text=True, check=False, timeout=1200)
  assert made.returncode == 0, made.stderr[-2000:]
  found = json.loads((tmp_path / 'report.json').read_text(encoding='utf-8'))
  assert not found['analysis_only'] and found['num_devices'] == 8
  assert all(line['program'] for line in found['lines'])
