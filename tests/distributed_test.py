"""Several real processes are one run: the same numbers, an end in time.

All have four devices together, on one machine: gloo carries what they say to
one another.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from rlclip import distributed
from rlclip import metrics as metrics_lib
from rlclip.data import bank

_ROOT = pathlib.Path(__file__).parents[1]
_SECONDS = 600  # a machine may be busy, and a hang must end
_DEVICES = 4
# Every process has a line of its own in them, and a step takes no second.
_FLAGS = [f'--config.{flag}' for flag in (
    'model.architecture.hidden_size=16', 'model.architecture.num_layers=1',
    'model.architecture.intermediate_size=32', 'warm_start.num_steps=20',
    'warm_start.batch_size=16', 'rollout.num_prompts=4',
    'learner.num_mini_batches=1', 'evaluation.num_problems=6',
    'rollout.completion_length=8', 'mesh.fsdp=2', 'algorithm.anchor=old',
    'algorithm.entropy_bonus=0.1', 'reward.also=length_deviation=0.1',
    'reward.deadline=300.0',  # on a busy machine verdicts are late
    # Else Adam makes of rounding, where a gradient is next to nothing, a
    # whole step.
    'optimizer.epsilon=0.001')]


def free_address():
  with socket.socket() as free:
    free.bind(('localhost', 0))
    return f'localhost:{free.getsockname()[1]}'


def start(commands, cache, *, devices, environments=None):
  """Starts processes with so many devices each."""
  base = {
      **os.environ, 'JAX_PLATFORMS': 'cpu',
      'XLA_FLAGS': f'--xla_force_host_platform_device_count={devices} '
                   '--xla_backend_optimization_level=0',  # compiles faster
      'JAX_COMPILATION_CACHE_DIR': str(cache),
      'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0'}
  return [
      subprocess.Popen(
          [sys.executable, *command], cwd=_ROOT, env={**base, **own},
          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
      for command, own in zip(commands, environments or [{}] * len(commands))]


def train(folder, cache, *flags, count):
  """Starts a run of so many processes, of four devices together."""
  address = free_address()
  given = lambda i: [] if count == 1 else [
      f'--config.distributed.coordinator={address}',
      f'--config.distributed.num_processes={count}',
      f'--config.distributed.process_id={i}']
  return start([
      ['-m', 'experiments.train', '--config=configs/tiny.py',
       f'--workdir={folder}', *_FLAGS, *given(i), *flags]
      for i in range(count)], cache, devices=_DEVICES // count)


def finish(processes):
  """(exit status, output) of each; none is left behind."""
  try:
    outputs = [p.communicate(timeout=_SECONDS)[0] for p in processes]
  finally:
    for process in processes:
      process.kill()
  return [(p.returncode, output) for p, output in zip(processes, outputs)]


def wait_for(path, processes):
  """Until a path is there; fails where the run ends before."""
  begun = time.monotonic()
  while not path.exists():
    assert all(p.poll() is None for p in processes), finish(processes)
    assert time.monotonic() - begun < _SECONDS, path
    time.sleep(0.01)


@pytest.fixture(scope='module')
def cache(tmp_path_factory):
  return tmp_path_factory.mktemp('cache')


@pytest.fixture(scope='module')
def begun(tmp_path_factory, cache):
  """A run's folder after its warm start, which is made once, at step 0."""
  folder = tmp_path_factory.mktemp('begun') / 'run'
  [(code, output)] = finish(
      train(folder, cache, '--config.num_steps=0', count=1))
  assert code == 0, output
  return folder


@pytest.fixture(scope='module')
def alone(begun, cache, tmp_path_factory):
  """The folder of a run of one process."""
  folder = tmp_path_factory.mktemp('alone') / 'run'
  shutil.copytree(begun, folder)
  [(code, output)] = finish(train(folder, cache, count=1))
  assert code == 0, output
  return folder


def metrics(folder):
  """Those that do not depend on the machine and the moment."""
  return [{k: v for k, v in line.items() if metrics_lib.is_deterministic(k)}
          for line in metrics_lib.read(folder / 'metrics.jsonl')]


def state(folder, step=4):
  """Parameters and optimizer, whatever devices they were saved from."""
  found = []
  with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
    for item in ('params', 'optimizer'):
      path = folder / 'checkpoints' / str(step) / item
      whole = jax.tree.map(
          lambda _: ocp.RestoreArgs(restore_type=np.ndarray),
          reader.metadata(path).item_metadata.tree)
      found.append(reader.restore(
          path, ocp.args.PyTreeRestore(restore_args=whole)))
  return found


def assert_same_run(folder, other):
  """Parameters to 1e-5, numbers to rounding, completions and verdicts alike."""
  for a, b in zip(jax.tree.leaves(state(folder)), jax.tree.leaves(state(other)),
                  strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)
  lines, expected = metrics(folder), metrics(other)
  assert [line['step'] for line in lines] == [0, 1, 2, 3, 4]
  for line, other_line in zip(lines, expected, strict=True):
    assert line == pytest.approx(other_line, rel=1e-4, abs=1e-5)
  rows = [
      [(row['request_id'], tuple(row['tokens']), row['reward'])
       for row in bank.read(f / 'rollouts').to_pylist()]
      for f in (folder, other)]
  assert rows[0] == rows[1] and len(rows[0]) == 4 * 16
  for step in (0, 2, 4):
    name = f'eval/arithmetic/{step}.jsonl'
    assert (folder / name).read_text() == (other / name).read_text()


def test_the_run_to_compare_with_learns_from_rewards(alone):
  lines = metrics(alone)[1:]
  assert all(line['grad_norm'] > 1e-3 for line in lines)
  assert all(line['reward_std'] > 0 for line in lines)


@pytest.mark.parametrize('count', [2, 4])
def test_several_processes_are_one(alone, begun, cache, tmp_path, count):
  folder = tmp_path / 'run'
  shutil.copytree(begun, folder)
  found = finish(train(folder, cache, count=count))
  assert [code for code, _ in found] == [0] * count, found
  assert_same_run(folder, alone)
  # Process 0 alone shows and writes.
  assert 'arithmetic pass@1' in found[0][1]
  assert not any('pass@1' in output for _, output in found[1:])
  log = (folder / 'log.txt').read_text()
  assert log.count('Continuing from step 0') == 1


@pytest.mark.parametrize('victim, number', [
    (0, signal.SIGKILL), (1, signal.SIGKILL), (1, signal.SIGSTOP)])
def test_without_one_the_others_end_and_the_run_goes_on(
    alone, begun, cache, tmp_path, victim, number):
  folder = tmp_path / 'run'
  shutil.copytree(begun, folder)
  silence = 20 if number == signal.SIGSTOP else 300
  processes = train(
      folder, cache, f'--config.distributed.heartbeat_timeout={silence}',
      count=2)
  wait_for(folder / 'checkpoints' / '1', processes)  # whole under this name
  processes[victim].send_signal(number)
  began = time.monotonic()
  output, _ = processes[1 - victim].communicate(timeout=_SECONDS)
  # A process that is killed is missed at once: its connections are closed.
  assert time.monotonic() - began < 60
  assert processes[1 - victim].returncode == -signal.SIGABRT, output
  assert 128 + signal.SIGABRT == distributed.ABORTED
  assert ('Another process of this run has ended' in output
          or 'another task died' in output), output
  processes[victim].kill()
  processes[victim].communicate()
  [(code, output)] = finish(train(folder, cache, count=1))
  assert code == 0, output
  assert re.search('Continuing from step [123]', output), output
  assert_same_run(folder, alone)


def script(*lines):
  """A program of one process, whose address and number are its arguments."""
  return ['-c', '\n'.join([
      'import sys', 'from rlclip import distributed',
      'address, count, index, *rest = sys.argv[1:]',
      'with distributed.joined(address, num_processes=int(count), '
      'process_id=int(index), start_timeout=60):',
      textwrap.indent(textwrap.dedent('\n'.join(lines)), '  ')])]


def run_scripts(cache, lines, count=2, rest=lambda i: ()):
  address = free_address()
  return finish(start([
      [*script(lines), address, str(count), str(i), *map(str, rest(i))]
      for i in range(count)], cache, devices=1))


def test_values_of_any_size_are_exchanged(cache):
  found = run_scripts(cache, """
      import json
      mine = {'process': int(index), 'text': 'x' * 10 ** int(index)}
      for value in (None, mine, [mine] * 3):
        print(json.dumps(distributed.exchange(value)))
  """, count=3)
  mine = [{'process': i, 'text': 'x' * 10 ** i} for i in range(3)]
  for code, output in found:
    assert code == 0, output
    lines = [json.loads(line) for line in output.splitlines()
             if line.startswith('[') and not line.startswith('[Gloo')]
    assert lines == [[None] * 3, mine, [[each] * 3 for each in mine]]


def test_processes_of_different_configs_all_say_so_and_end(cache):
  found = run_scripts(cache, """
      distributed.require_same({'a': 1, 'b': int(index)}, 'config')
  """)
  for code, output in found:
    assert code == 1
    assert output.splitlines()[-1].startswith(
        'ValueError: All processes of a run need the same config, but b is 0 '
        'in process 0 and 1 in process 1.'), output


def test_an_error_of_one_is_told_by_it_and_ends_the_others(cache):
  began = time.monotonic()
  found = run_scripts(cache, """
      distributed.exchange('answered')
      if index == '1':
        raise KeyError('of process 1')
      distributed.exchange('never answered')
  """)
  assert time.monotonic() - began < 100  # no time-out was waited for
  (code, output), (other_code, other_output) = found
  assert other_code == 1 and "KeyError: 'of process 1'" in other_output
  assert 'Traceback' in other_output
  assert code == -signal.SIGABRT
  assert ('Another process of this run has ended' in output
          or 'another task died' in output), output


def test_an_end_without_an_error_waits_for_the_others(cache):
  found = run_scripts(cache, """
      import time
      time.sleep(int(index))
  """)
  assert [code for code, _ in found] == [0, 0], found


def test_alone_nothing_is_joined_or_exchanged():
  with distributed.joined(''):
    assert distributed.exchange({'a': 1}) == [{'a': 1}]
    assert distributed.is_primary() and not distributed.several()
  with pytest.raises(KeyError):
    with distributed.joined(''):
      raise KeyError('goes on as it is')


@pytest.mark.parametrize('settings, message', [
    (dict(coordinator='node0'), r'coordinator must be .*host:port, got .node0'),
    (dict(coordinator='node0:12'), 'num_processes must be 1 or more'),
    (dict(coordinator='node0:12', num_processes=2),
     'process_id must be 0 to 1, another in each process, got -1'),
    (dict(coordinator='node0:12', num_processes=2, process_id=2),
     'process_id must be 0 to 1, another in each process, got 2'),
    (dict(coordinator='auto', num_processes=2), 'num_processes must be 0'),
    (dict(coordinator='auto', process_id=0), 'process_id must be -1'),
    (dict(coordinator='auto', heartbeat_timeout=0), 'heartbeat_timeout must')])
def test_settings_that_make_no_sense_are_refused(settings, message):
  with pytest.raises(ValueError, match=message):
    with distributed.joined(**settings):
      pass


@pytest.mark.parametrize('index', [0, 1])
def test_a_process_to_which_none_comes_ends_in_time(cache, index):
  [(code, output)] = finish(start([
      ['-c', 'from rlclip import distributed\nwith distributed.joined('
       f'"{free_address()}", num_processes=2, process_id={index}, '
       'start_timeout=3):  pass']], cache, devices=1))
  assert code == -signal.SIGABRT
  assert 'waits for 1 others at localhost' in output.splitlines()[0], output
  assert 'DEADLINE_EXCEEDED' in output, output


def test_auto_without_a_cluster_says_what_to_give(cache):
  [(code, output)] = finish(start([
      ['-c', 'from rlclip import distributed\n'
       'with distributed.joined("auto"):  pass']], cache, devices=1))
  assert code == 1 and 'Give coordinator as host:port' in output, output


def test_auto_takes_slurms_word(cache):
  # JAX makes a port of the job's number: 2^12 of them end at 65535.
  job = str(os.getpid())
  names = {'SLURM_JOB_ID': job, 'SLURM_STEP_NODELIST': 'localhost',
           'SLURM_NTASKS': '2'}
  found = finish(start(
      [['-c', 'from rlclip import distributed\n'
        'with distributed.joined("auto", start_timeout=60):\n'
        f'  print(distributed.exchange({i}), distributed.is_primary())']
       for i in range(2)], cache, devices=1, environments=[
           {**names, 'SLURM_PROCID': str(i), 'SLURM_LOCALID': str(i)}
           for i in range(2)]))
  for i, (code, output) in enumerate(found):
    assert code == 0 and f'[0, 1] {i == 0}' in output, output
