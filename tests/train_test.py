"""The whole line on the tiny config: it runs, resumes bit-equal, refuses."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

from rlclip import metrics

_ROOT = pathlib.Path(__file__).parents[1]
_SECONDS = 240


def environment(cache):
  """One device, and a compilation cache: the restarts would recompile."""
  return {
      **os.environ, 'XLA_FLAGS': '', 'JAX_PLATFORMS': 'cpu',
      'JAX_COMPILATION_CACHE_DIR': str(cache),
      'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0'}


# The same with or without a thread of the sampler's own, whatever the lag.
_TRAIN = '''
import sys
from configs import tiny
from rlclip import config, train
in_thread, folder, *changes = sys.argv[1:]
c = tiny.get_config()
for change in changes:
  key, value = change.removeprefix('--config.').split('=')
  c.update_from_flattened_dict({key: type(c[key])(value)})
train.train(config.resolve(c), folder, in_thread=in_thread == 'True')
'''


def start(folder, cache, *flags, in_thread=None):
  """Starts a run; with `in_thread`, by the function and not by the main."""
  by = (['-m', 'experiments.train', '--config=configs/tiny.py',
         f'--workdir={folder}'] if in_thread is None else
        ['-c', _TRAIN, str(in_thread), str(folder)])
  return subprocess.Popen(
      [sys.executable, *by, *flags],
      cwd=_ROOT, env=environment(cache), stdout=subprocess.PIPE,
      # A shell's background jobs ignore SIGINT, and so would their children.
      preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
      stderr=subprocess.STDOUT, text=True)


def finish(folder, cache, *flags, in_thread=None):
  process = start(folder, cache, *flags, in_thread=in_thread)
  output, _ = process.communicate(timeout=_SECONDS)
  return process.returncode, output


def end_at(process, folder, wanted, number):
  """Sends a signal once a step has its line, or at start-up; the output."""
  begun = time.monotonic()
  while process.poll() is None and time.monotonic() - begun < _SECONDS:
    path = folder / 'metrics.jsonl'
    steps = ([json.loads(line)['step'] for line in
              path.read_text().splitlines(keepends=True)
              if line.endswith('\n')] if path.exists() else [])
    if (folder / 'log.txt').exists() if wanted is None else wanted in steps:
      process.send_signal(number)
      break
    time.sleep(0.002)
  return process.communicate(timeout=_SECONDS)[0]


@pytest.fixture(scope='module')
def cache(tmp_path_factory):
  return tmp_path_factory.mktemp('cache')


@pytest.fixture(scope='module')
def whole(tmp_path_factory, cache):
  """(folder, output) of a run that nothing interrupted."""
  folder = tmp_path_factory.mktemp('whole') / 'run'
  code, output = finish(folder, cache)
  assert code == 0, output
  return folder, output


def deterministic_lines(folder):
  return [{k: v for k, v in line.items() if metrics.is_deterministic(k)}
          for line in metrics.read(folder / 'metrics.jsonl')]


def arrays(folder, step=4):
  """The arrays of a checkpoint."""
  import jax
  import orbax.checkpoint as ocp
  with ocp.StandardCheckpointer() as reader:
    trees = [reader.restore(folder / 'checkpoints' / str(step) / item)
             for item in ('params', 'optimizer')]
  return [np.asarray(leaf) for leaf in jax.tree.leaves(trees)]


def assert_same_runs(folder, other, step=4):
  assert deterministic_lines(folder) == deterministic_lines(other)
  assert_same_states(folder, other, step)


def assert_same_states(folder, other, step=4):
  """Bit by bit: parameters, optimizer, every rollout."""
  for a, b in zip(arrays(folder, step), arrays(other, step), strict=True):
    np.testing.assert_array_equal(a, b)
  for path in sorted((other / 'rollouts').glob('*.parquet')):
    assert pq.read_table(folder / 'rollouts' / path.name).equals(
        pq.read_table(path))


def test_the_line_runs_and_leaves_everything_behind(whole):
  folder, output = whole
  lines = metrics.read(folder / 'metrics.jsonl')
  assert [line['step'] for line in lines] == [0, 1, 2, 3, 4]
  # The sizes come first, the table of before and after last.
  assert output.splitlines()[0].split() == ['prompts', 'a', 'step', '8']
  assert 'arithmetic pass@1' in output and 'TensorBoard' in output
  for name in ('config.json', 'versions.json', 'log.txt', 'tb',
               'checkpoints/4', 'rollouts/00000004.parquet',
               'eval/arithmetic/0.jsonl', 'eval/arithmetic/4.jsonl'):
    assert (folder / name).exists(), name


def test_metrics_have_the_names_of_trl_and_the_phases(whole):
  lines = metrics.read(whole[0] / 'metrics.jsonl')
  for name in ('reward', 'reward_std', 'frac_reward_zero_std', 'entropy',
               'completions/mean_length', 'completions/clipped_ratio',
               'clip_ratio/low_mean', 'clip_ratio/high_mean',
               'clip_ratio/region_mean', 'grad_norm', 'loss',
               'learning_rate', 'num_tokens',
               'time/sample', 'time/reward', 'time/update', 'time/sync',
               'compile/count', 'compile/seconds', 'eval/arithmetic/pass@1'):
    assert name in lines[-1], name
  # Not in every step has a group of this model answers of both kinds.
  assert max(line['grad_norm'] for line in lines[1:]) > 0


def test_the_bank_holds_what_was_sampled(whole):
  table = pq.read_table(whole[0] / 'rollouts' / '00000002.parquet').to_pylist()
  assert len(table) == 32 and {row['step'] for row in table} == {2}
  assert {row['weights'] for row in table} == {1}
  # Advantages sum to zero in every group of four.
  sums = np.array([row['advantage'] for row in table]).reshape(8, 4).sum(1)
  np.testing.assert_allclose(sums, 0, atol=1e-5)
  for row in table:
    assert len(row['tokens']) == len(row['behavior_logps']) <= 12
    right = row['text'].split('#')[-1].strip() == row['gold']
    if right and '#' in row['text']:
      assert row['reward'] == 1
    assert row['rewards'] == [('arithmetic', row['reward'])]


def test_killed_at_any_step_it_ends_bit_equal(whole, cache, tmp_path):
  folder = tmp_path / 'run'
  kills = 0
  # Kill at start-up, and as soon as each of these steps has its line.
  for wanted in (None, 0, 1, 3):
    process = start(folder, cache)
    end_at(process, folder, wanted, signal.SIGKILL)
    kills += process.returncode == -signal.SIGKILL
  code, output = finish(folder, cache)
  assert code == 0, output
  assert kills >= 3
  assert_same_runs(folder, whole[0])


def test_how_and_how_often_it_is_evaluated_changes_nothing_else(
    whole, cache, tmp_path):
  # `whole` is evaluated every second step, with one sample of temperature 1.
  code, output = finish(tmp_path / 'run', cache, *(
      f'--config.evaluation.{flag}' for flag in (
          'every=1', 'num_samples=3', 'temperature=0.5', 'top_k=4',
          'num_problems=5')))
  assert code == 0, output
  runs = []
  for folder in (whole[0], tmp_path / 'run'):
    lines = deterministic_lines(folder)
    assert sum('eval/arithmetic/pass@1' in line for line in lines) == (
        3 if folder is whole[0] else 5)
    runs.append([{key: value for key, value in line.items()
                  if not key.startswith('eval/')} for line in lines])
  assert runs[0] == runs[1]
  assert_same_states(tmp_path / 'run', whole[0])


def test_what_a_run_has_taken_comes_back_with_its_checkpoint(cache, tmp_path):
  # Refills move the place in the data, and the reference moves too.
  flags = [f'--config.{flag}' for flag in (
      'num_steps=6', 'checkpoint.every=2', 'algorithm.name=grpo',
      'rollout.max_refills=2', 'reference.every=3',
      'algorithm.width_dial=target_clip_share', 'algorithm.estimator=exact',
      'reward.overlong_buffer=8')]
  whole, folder = tmp_path / 'whole', tmp_path / 'run'
  code, output = finish(whole, cache, *flags)
  assert code == 0, output
  lines = metrics.read(whole / 'metrics.jsonl')[1:]
  assert [line['reference/age'] for line in lines] == [0, 1, 2, 0, 1, 2]
  assert sorted(p.name for p in (whole / 'reference').iterdir())[-1] == '6'
  rows = [row for path in sorted((whole / 'rollouts').glob('*.parquet'))
          for row in pq.read_table(path).to_pylist()]
  # No prompt comes twice, and no request has another's id.
  assert [row['request_id'] for row in rows] == list(range(len(rows)))
  assert len(rows) > 6 * 32
  trained = [row for row in rows if not row['dropped']]
  assert lines[-1]['num_tokens'] == sum(
      len(row['prompt_tokens']) + len(row['tokens']) for row in trained)
  # As if killed after step 6, before its checkpoint: it goes on from step 4,
  # whose reference is the policy after step 3.
  shutil.copytree(whole, folder)
  shutil.rmtree(folder / 'checkpoints' / '6')
  code, output = finish(folder, cache, *flags)
  assert code == 0, output
  assert 'Continuing from step 4' in output
  assert_same_runs(folder, whole, step=6)


def test_a_thread_that_is_not_ahead_changes_nothing(whole, cache, tmp_path):
  code, output = finish(tmp_path / 'run', cache, in_thread=True)
  assert code == 0, output
  assert_same_runs(tmp_path / 'run', whole[0])


def test_rollouts_ahead_lag_as_said_and_outlive_an_interrupt(cache, tmp_path):
  # Refills: where a step begins is known once those before it are sampled.
  flags = [f'--config.{flag}' for flag in (
      'num_steps=6', 'checkpoint.every=2', 'rollout.max_refills=2',
      'rollout.max_staleness=2', 'algorithm.name=grpo',
      'reward.overlong_buffer=8')]
  whole, folder = tmp_path / 'whole', tmp_path / 'run'
  code, output = finish(whole, cache, *flags)
  assert code == 0, output
  lines = metrics.read(whole / 'metrics.jsonl')[1:]
  assert [line['staleness/max'] for line in lines] == [0, 1, 2, 2, 2, 2]
  assert all(line['staleness/mean'] == line['staleness/max'] for line in lines)
  rows = [row for path in sorted((whole / 'rollouts').glob('*.parquet'))
          for row in pq.read_table(path).to_pylist()]
  assert {(row['step'], row['weights']) for row in rows} == {
      (1, 0), (2, 0), (3, 0), (4, 1), (5, 2), (6, 3)}
  assert [row['request_id'] for row in rows] == list(range(len(rows)))
  assert len(rows) > 6 * 32
  process = start(folder, cache, *flags)
  output = end_at(process, folder, 3, signal.SIGINT)
  assert process.returncode != 0 and 'KeyboardInterrupt' in output
  assert len(list((folder / 'ahead').iterdir())) >= 2
  # It goes on without a thread, and ends as the one with a thread did.
  code, output = finish(folder, cache, *flags, in_thread=False)
  assert code == 0, output
  assert re.search(r'Continuing from step [24]', output)
  assert_same_runs(folder, whole, step=6)
  # Beyond its end nothing was sampled that a longer run could go on with.
  code, output = finish(folder, cache, *flags, '--config.num_steps=7')
  assert code == 1 and 'config differs: num_steps = 7, was 6' in output


def test_a_finished_run_started_again_only_shows_its_end(whole, cache):
  before = (whole[0] / 'metrics.jsonl').read_bytes()
  code, output = finish(whole[0], cache)
  assert code == 0 and 'arithmetic pass@1' in output
  assert (whole[0] / 'metrics.jsonl').read_bytes() == before


def test_another_config_in_the_same_folder_is_refused(whole, cache):
  code, output = finish(whole[0], cache, '--config.rollout.group_size=2')
  assert code == 1
  assert 'config differs: rollout.group_size = 2, was 4' in output


def test_a_second_process_on_a_folder_is_refused(cache, tmp_path):
  folder = tmp_path / 'run'
  first = start(folder, cache)
  while first.poll() is None and not (folder / 'config.json').exists():
    time.sleep(0.01)
  code, output = finish(folder, cache)
  first.kill()
  first.communicate()
  assert code == 1 and f'process {first.pid} on' in output


def test_a_gradient_that_is_not_finite_stops_the_run(cache, tmp_path):
  # At this rate the first updates already leave float32's range.
  code, output = finish(
      tmp_path / 'run', cache, '--config.optimizer.learning_rate=1e38',
      '--config.optimizer.max_grad_norm=0.0',
      # A gradient even where no group has answers of both kinds.
      '--config.algorithm.entropy_bonus=0.01')
  assert code == 1
  assert re.search(r'NonfiniteGradient: .* in step \d is not finite', output)
  # The checkpoint it names is there.
  good = re.search(r'last good checkpoint is (.*)\. Lower', output).group(1)
  assert pathlib.Path(good).is_dir()


@pytest.mark.parametrize('flag, message', [
    ('--config.rollout.group_sise=2', 'group_sise'),
    ('--config.rollout.group_size=many', 'group_size'),
    ('--config.learner.num_mini_batches=3', 'a divisor of rollout.num_prom'),
    ('--config.rollout.prompt_length=2', 'Raise --config.rollout.prompt_leng'),
    ('--config.rollout.max_staleness=-1', 'max_staleness must be 0 (wait) or'),
])
def test_a_bad_flag_stops_before_step_0(cache, tmp_path, flag, message):
  code, output = finish(tmp_path / 'run', cache, flag)
  assert code != 0 and message in output
  assert not (tmp_path / 'run' / 'rollouts').exists()
