"""metrics.jsonl is whole and repeatable; times and compilations are counted."""
import json
import math
import os
import resource
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tensorboardX import proto

from rlclip import metrics, types, workdir


def _folder(tmp_path):
  return workdir.RunFolder(tmp_path)


def _write(tmp_path, steps, **options):
  writer = metrics.Writer(_folder(tmp_path), **options)
  for step in steps:
    writer.write(step, {'reward': step / 2})
  writer.close()


def _steps(tmp_path):
  return [line['step'] for line in metrics.read(tmp_path / 'metrics.jsonl')]


def test_a_line_a_step_with_sorted_keys(tmp_path):
  writer = metrics.Writer(_folder(tmp_path), tensorboard=False)
  writer.write(0, {'reward': 0.5, 'kl': np.float32(0.1)})
  # No close: a line is in the file when `write` returns.
  assert (tmp_path / 'metrics.jsonl').read_text() == (
      '{"kl": 0.10000000149011612, "reward": 0.5, "step": 0}\n')
  writer.close()


def test_nonfinite_values_are_valid_json_and_come_back(tmp_path):
  writer = metrics.Writer(_folder(tmp_path), tensorboard=False)
  writer.write(1, {'kl': math.inf, 'loss': math.nan, 'reward': 1.0})
  writer.close()
  text = (tmp_path / 'metrics.jsonl').read_text()

  def refuse(name):
    raise ValueError(name)
  assert json.loads(text, parse_constant=refuse) == {
      'kl': None, 'loss': None, 'reward': 1.0, 'step': 1,
      'nonfinite': {'kl': 'inf', 'loss': 'nan'}}
  (line,) = metrics.read(tmp_path / 'metrics.jsonl')
  assert line['kl'] == math.inf and math.isnan(line['loss'])


def test_a_resumed_run_drops_what_it_will_write_again(tmp_path):
  _write(tmp_path, range(6))
  _write(tmp_path, [4, 5, 6], keep_through=3)
  assert _steps(tmp_path) == [0, 1, 2, 3, 4, 5, 6]
  _write(tmp_path, [0])
  assert _steps(tmp_path) == [0]


@pytest.mark.parametrize('torn', [
    '{"reward": 0.', '{"reward": 0.5, "step": 9}', '\x00\x00\x00\n', '7\n'])
def test_a_torn_last_line_is_dropped(tmp_path, torn):
  _write(tmp_path, [0, 1])
  with open(tmp_path / 'metrics.jsonl', 'a') as file:
    file.write(torn)
  assert _steps(tmp_path) == [0, 1]
  _write(tmp_path, [2], keep_through=9)
  assert _steps(tmp_path) == [0, 1, 2]


def test_a_damaged_line_within_is_named(tmp_path):
  (tmp_path / 'metrics.jsonl').write_text('{"step": 0}\n{"st\n{"step": 2}\n')
  with pytest.raises(ValueError, match='metrics.jsonl, line 2: expected a JS'):
    metrics.Writer(_folder(tmp_path), keep_through=2)


def test_a_step_is_written_once(tmp_path):
  _write(tmp_path, [0, 1])
  writer = metrics.Writer(_folder(tmp_path), keep_through=1)
  with pytest.raises(ValueError, match='holds step 1 already, got step 1'):
    writer.write(1, {})
  writer.close()


def test_a_full_disk_leaves_whole_lines(tmp_path):
  writer = metrics.Writer(_folder(tmp_path), tensorboard=False)
  writer.write(1, {'reward': 1.0})
  size = (tmp_path / 'metrics.jsonl').stat().st_size
  unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (size + 9, unlimited[1]))
  try:
    with pytest.raises(OSError, match='The lines before are whole. Make room'):
      writer.write(2, {'reward': 1.0})
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
  assert (tmp_path / 'metrics.jsonl').stat().st_size == size
  writer.write(2, {'reward': 1.0})
  writer.close()
  assert _steps(tmp_path) == [1, 2]


def _events(path):
  """(step, tag, value) of every scalar in the event files, oldest first."""
  found = []
  for file in sorted(path.iterdir()):  # as TensorBoard does
    data, at = file.read_bytes(), 0
    while at < len(data):  # uint64 length, 4 bytes crc, event, 4 bytes crc
      length = int.from_bytes(data[at:at + 8], 'little')
      event = proto.event_pb2.Event.FromString(data[at + 12:at + 12 + length])
      at += length + 16
      found += [(event.step, value.tag, value.simple_value)
                for value in event.summary.value]
      if event.session_log.status == proto.event_pb2.SessionLog.START:
        found.append((event.step, 'restart', 0.0))
  return found


def test_tensorboard_holds_the_same_and_is_purged_on_resume(tmp_path):
  _write(tmp_path, [0, 1, 2])
  _write(tmp_path, [2], keep_through=1)
  events = _events(tmp_path / 'tb')
  assert [e for e in events if e[1] == 'reward'] == [
      (0, 'reward', 0.0), (1, 'reward', 0.5), (2, 'reward', 1.0),
      (2, 'reward', 1.0)]
  # TensorBoard hides what an earlier file holds from this step on.
  assert (2, 'restart', 0.0) in events


def test_without_tensorboard_there_is_no_folder(tmp_path):
  _write(tmp_path, [0], tensorboard=False)
  assert os.listdir(tmp_path) == ['metrics.jsonl']


def test_wandb_that_is_not_installed_is_told(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, 'wandb', None)
  with pytest.raises(ImportError, match=r'pip install -e .\[wandb\]'):
    metrics.Writer(_folder(tmp_path), wandb={'project': 'x'})


def test_means_are_divided_on_the_host():
  got = metrics.to_floats({
      'reward': types.Mean(jnp.float32(3.0), jnp.float32(4.0)),
      'empty': types.Mean(jnp.float32(0.0), jnp.int32(0)),
      'grad_norm': jnp.float32(2.5), 'learning_rate': np.float64(1e-3),
      'num_tokens': 7})
  assert got == {'reward': 0.75, 'empty': 0.0, 'grad_norm': 2.5,
                 'learning_rate': 1e-3, 'num_tokens': 7.0}
  assert all(type(value) is float for value in got.values())


def test_what_differs_between_equal_runs_is_marked():
  assert not metrics.is_deterministic('time/sample')
  assert not metrics.is_deterministic('compile/count')
  assert metrics.is_deterministic('clip_ratio/region_mean')
  assert metrics.is_deterministic('timely')


def test_a_phase_within_a_phase_counts_for_itself():
  phases = metrics.Phases()
  with phases('update'):
    time.sleep(0.02)
    with phases('sync'):
      time.sleep(0.04)
  with phases('update'):
    time.sleep(0.02)
  time.sleep(0.02)
  taken = phases.take()
  assert 0.04 <= taken['time/update'] and 0.04 <= taken['time/sync']
  # Exact by construction: every moment is counted for one phase or none.
  unnamed = taken['time/step'] - taken['time/update'] - taken['time/sync']
  assert unnamed >= 0.02
  assert phases.take().keys() == {'time/step'}


def test_threads_have_phases_of_their_own_at_a_time():
  phases = metrics.Phases()
  both, left = threading.Barrier(2), threading.Event()

  def sample():
    with phases('sample'):
      both.wait()
      time.sleep(0.04)
      left.wait()

  thread = threading.Thread(target=sample)
  thread.start()
  with phases('update'):
    both.wait()
    time.sleep(0.06)
  first = phases.take()
  left.set()
  thread.join()
  second = phases.take()
  # What another thread is still in counts where it ends, once and whole.
  assert first.keys() == {'time/update', 'time/step'}
  assert 0.06 <= first['time/update'] <= first['time/step']
  assert second.keys() == {'time/sample', 'time/step'}
  assert second['time/sample'] >= 0.06


def test_a_phase_that_fails_is_left():
  phases = metrics.Phases()
  with pytest.raises(ZeroDivisionError):
    with phases('reward'):
      print(1 / 0)
  time.sleep(0.01)
  assert phases.take()['time/reward'] < 0.01


def test_a_function_compiles_once_and_again_for_a_new_shape():
  compilations = metrics.Compilations()
  f = jax.jit(lambda x: x * 3 + 1)
  inputs = [np.ones(3, np.float32), np.ones(3, np.float32) * 2,
            np.ones(4, np.float32)]
  counts = []
  for x in inputs:
    f(x)
    taken = compilations.take()
    counts.append(taken['compile/count'])
    assert (taken['compile/seconds'] > 0) == (taken['compile/count'] > 0)
  compilations.close()
  assert counts == [1, 0, 1]
  f(np.ones(5, np.float32))
  assert compilations.take()['compile/count'] == 0


@pytest.mark.parametrize('name', ['step', 'nonfinite'])
def test_a_metric_may_not_take_a_key_of_the_line(tmp_path, name):
  writer = metrics.Writer(_folder(tmp_path), tensorboard=False)
  with pytest.raises(ValueError, match=f'cannot be called {name!r}'):
    writer.write(0, {name: 1.0})
  writer.close()
  assert metrics.read(tmp_path / 'metrics.jsonl') == []
