"""The run's folder: one process at a time, one config, whole files."""
import errno
import json
import logging
import os
import pathlib
import resource
import signal
import subprocess
import sys
import textwrap

import pytest

from rlclip import workdir

_CONFIG = {'seed': 0, 'num_steps': 10, 'rollout': {'group_size': 8},
           'evaluation': {'tasks': ('gsm8k',)}, 'task': {'options': {}}}
_SECONDS = 60


def test_config_and_versions_are_written_as_json(tmp_path):
  with workdir.open_run(tmp_path / 'new' / 'run', _CONFIG) as folder:
    config = json.loads(folder.config.read_text())
    versions = json.loads(folder.versions.read_text())
  assert config == {**_CONFIG, 'evaluation': {'tasks': ['gsm8k']}}
  assert versions['python'] == '.'.join(map(str, sys.version_info[:3]))
  assert {'jax', 'numpy', 'orbax-checkpoint'} <= set(versions)


def test_the_same_config_continues(tmp_path):
  for _ in range(2):
    with workdir.open_run(tmp_path, _CONFIG) as folder:
      assert folder.path == tmp_path


@pytest.mark.parametrize('changed, message', [
    ({**_CONFIG, 'seed': 1, 'num_steps': 20}, 'seed = 1, was 0'),
    ({**_CONFIG, 'rollout': {'group_size': 4}},
     'rollout.group_size = 4, was 8'),
    ({**_CONFIG, 'rollout': {}}, r'rollout = {}, was missing'),
    ({**_CONFIG, 'extra': None}, 'extra = None, was missing'),
    ({**_CONFIG, 'task': {'options': {'digits': 2}}},
     r'task.options = missing, was {}'),
])
def test_another_config_is_refused_by_its_first_key(
    tmp_path, changed, message):
  with workdir.open_run(tmp_path, _CONFIG):
    pass
  with pytest.raises(ValueError, match=f'{message}.*another --workdir'):
    with workdir.open_run(tmp_path, changed):
      pass
  with workdir.open_run(tmp_path, _CONFIG):
    pass


def test_a_longer_run_may_go_on_and_says_so(tmp_path):
  with workdir.open_run(tmp_path, _CONFIG):
    pass
  longer = {**_CONFIG, 'num_steps': 20, 'evaluation': {'tasks': []}}
  with workdir.open_run(tmp_path, longer) as folder:
    pass
  assert 'num_steps = 20, was 10' in folder.log.read_text()
  assert json.loads(folder.config.read_text())['num_steps'] == 20


def test_other_versions_are_told(tmp_path):
  with workdir.open_run(tmp_path, _CONFIG) as folder:
    pass
  versions = json.loads(folder.versions.read_text())
  folder.versions.write_text(json.dumps({**versions, 'jax': '0.0.1'}))
  with workdir.open_run(tmp_path, _CONFIG):
    pass
  assert f'jax {versions["jax"]}; it began with 0.0.1' in folder.log.read_text()


def test_a_damaged_config_is_named(tmp_path):
  (tmp_path / 'config.json').write_text('{"seed": ')
  with pytest.raises(ValueError, match='config.json is no JSON'):
    with workdir.open_run(tmp_path, _CONFIG):
      pass


_HOLDS = textwrap.dedent('''
    import os, sys, time
    from rlclip import workdir
    with workdir.open_run(sys.argv[1], {'seed': 0}):
      if sys.argv[2] == 'fork' and os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(60)
        os._exit(0)
      if sys.argv[2] == 'hold':
        print(os.getpid(), flush=True)
      time.sleep(60)
''')


def _holder(path, how):
  process = subprocess.Popen(
      [sys.executable, '-c', _HOLDS, str(path), how],
      stdout=subprocess.PIPE, text=True)
  return process, int(process.stdout.readline())


def test_a_second_process_is_refused_with_the_pid_of_the_first(tmp_path):
  process, pid = _holder(tmp_path, 'hold')
  try:
    with pytest.raises(BlockingIOError, match=f'process {pid} on .* does'):
      with workdir.open_run(tmp_path, {'seed': 0}):
        pass
  finally:
    process.kill()
    process.communicate(timeout=_SECONDS)
  with workdir.open_run(tmp_path, {'seed': 0}):  # freed by SIGKILL
    pass


def test_a_forked_worker_does_not_hold_the_lock_on(tmp_path):
  process, worker = _holder(tmp_path, 'fork')
  try:
    process.kill()
    process.wait(timeout=_SECONDS)
    os.kill(worker, 0)  # it lives
    with workdir.open_run(tmp_path, {'seed': 0}):
      pass
  finally:
    os.kill(worker, signal.SIGKILL)
    process.communicate(timeout=_SECONDS)


def test_other_processes_of_a_run_share_the_folder(tmp_path):
  with workdir.open_run(tmp_path, _CONFIG):
    with workdir.open_run(tmp_path, _CONFIG, is_primary=False) as folder:
      assert folder.path == tmp_path


def test_the_log_holds_ours_and_warnings_of_others(tmp_path):
  with workdir.open_run(tmp_path, _CONFIG) as folder:
    logging.getLogger('rlclip.train').info('step 1')
    logging.getLogger('other').info('chatter')
    logging.getLogger('other').warning('trouble')
  logging.getLogger('rlclip.train').info('after the end')
  text = folder.log.read_text()
  assert 'INFO rlclip.train: step 1' in text
  assert 'WARNING other: trouble' in text
  assert 'chatter' not in text and 'after the end' not in text


def test_the_log_holds_the_error_that_ended_the_run(tmp_path):
  with pytest.raises(ZeroDivisionError):
    with workdir.open_run(tmp_path, _CONFIG) as folder:
      print(1 / 0)
  assert 'ZeroDivisionError: division by zero' in folder.log.read_text()


def test_a_failed_write_keeps_the_earlier_file(tmp_path):
  path = tmp_path / 'a' / 'file.json'
  workdir.write_atomically(path, 'first')
  unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (1000, unlimited[1]))
  try:
    with pytest.raises(OSError, match='Make room') as caught:
      workdir.write_atomically(path, 'second' * 1000)
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
  assert caught.value.errno == errno.EFBIG
  assert path.read_text() == 'first'
  assert os.listdir(path.parent) == ['file.json']


@pytest.mark.parametrize('error', [
    OSError(errno.ENOSPC, 'No space left on device'),
    ValueError("Failed to write: No space left [os_error_code='28']")])
def test_a_full_disk_is_told_with_its_errno(error):
  with pytest.raises(OSError, match='the disk is full. Kept. Make') as caught:
    with workdir.disk_errors('x', 'Kept. '):
      raise error
  assert caught.value.errno == errno.ENOSPC


def test_a_finished_run_is_followed_by_a_dated_one(tmp_path):
  path = tmp_path / 'quickstart'
  assert workdir.next_folder(path) == path
  (tmp_path / 'quickstart-seed1').mkdir()  # another seed's
  for name in ('quickstart', 'quickstart-20260101-000000'):
    folder = workdir.RunFolder(pathlib.Path(tmp_path / name))
    folder.path.mkdir()
    folder.config.write_text('{"num_steps": 2}')
    folder.metrics.write_text('{"step": 1}\n')
    assert workdir.next_folder(path) == folder.path  # unfinished: go on
    folder.metrics.write_text('{"step": 1}\n{"step": 2}\n')
    fresh = workdir.next_folder(path)
    assert fresh.name.startswith('quickstart-2') and not fresh.exists()
