"""The pool: order, deadlines, deaths, threads, and nothing left behind."""
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from rlclip.rewards.pool import Pool, ScoreItem

on_linux = pytest.mark.skipif(
    sys.platform != 'linux', reason='reads /proc')
FAULTY = 'tests.rewards.faulty:'


def items(completions, **fields):
  return [ScoreItem('', c, (), fields) for c in completions]


def is_running(pid):
  try:
    with open(f'/proc/{int(pid)}/stat', encoding='utf-8') as stat:
      return stat.read().rpartition(')')[2].split()[0] != 'Z'
  except FileNotFoundError:
    return False


def wait_until_gone(pids):
  deadline = time.monotonic() + 10
  while any(map(is_running, pids)) and time.monotonic() < deadline:
    time.sleep(0.02)
  return not any(map(is_running, pids))


@pytest.fixture(scope='module')
def pool():
  with Pool({FAULTY + 'hang': 1.0}, deadline_s=1.0) as made:
    yield made


def test_hangs_cost_their_own_answers_and_no_more(pool):
  # Towers of powers that never finish, and never release the interpreter.
  completions = [
      'hang' if i % 32 == 0 else 'x' * (i % 9) for i in range(256)]
  start = time.monotonic()
  result = pool.score(items(completions))
  assert time.monotonic() - start < 1.0 + 2.0
  assert result.rewards == [
      None if i % 32 == 0 else i % 9 for i in range(256)]
  assert (result.num_timeouts, result.num_errors) == (8, 0)
  assert [f.item for f in result.failures] == list(range(0, 256, 32))


def test_the_slow_come_back_and_are_not_replaced_again_and_again():
  with Pool({FAULTY + 'pid_after': 1.0}, num_workers=2) as made:
    slow = made.score(items(['0.4'] * 12)).rewards
    quick = made.score(items(['0'] * 64)).rewards
  # While they are slow, two more work; each new one costs a start.
  assert None not in slow and len(set(slow)) <= 6
  assert set(quick) <= set(slow)


def test_what_the_slow_hold_up_is_scored_once_and_in_order():
  # Of each chunk one is slow: its successors are taken from it.
  lengths = [0.3 if i % 16 == 0 else 0.0 for i in range(128)]
  with Pool({FAULTY + 'sleep': 1.0, FAULTY + 'as_number': 1.0}) as made:
    result = made.score(items([f'{x}' for x in lengths]))
  assert result.rewards == [1 + x for x in lengths]


def test_threads_get_their_own_answers(pool):
  results = {}

  def score(length):
    results[length] = pool.score(items(['x' * length] * 50)).rewards

  threads = [threading.Thread(target=score, args=(i,)) for i in range(8)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert results == {i: [i] * 50 for i in range(8)}


def test_no_items_give_no_scores(pool):
  assert pool.score([]).rewards == []


def test_weights_add_up_and_zero_only_watches():
  weights = {'arithmetic': 2.0, 'final_answer': 0.5,
             FAULTY + 'unscorable': 0.0}
  with Pool(weights) as made:
    result = made.score(items(['#### 4', '4', '#### 5', 'none'], gold='4'))
  assert result.rewards == [2.5, 2.0, 0.5, 0.0]
  assert result.by_function['arithmetic'] == [1, 1, 0, 0]
  assert result.by_function[FAULTY + 'unscorable'] == [None] * 4


def test_one_reward_that_is_none_makes_the_total_none():
  with Pool({'final_answer': 1.0, FAULTY + 'unscorable': 1.0}) as made:
    assert made.score(items(['#### 4'])).rewards == [None]


@pytest.mark.parametrize('on_failure, lost', [('none', None), ('zero', 0.0)])
def test_a_death_is_an_error_and_worth_what_the_setting_says(
    on_failure, lost):
  with Pool({FAULTY + 'die': 1.0}, on_failure=on_failure) as made:
    result = made.score(items(['a', 'die', 'b', 'die', 'c']))
  assert result.rewards == [1, lost, 1, lost, 1]
  assert (result.num_timeouts, result.num_errors) == (0, 2)


def test_an_exception_and_a_nan_are_told():
  with Pool({FAULTY + 'fail': 1.0}) as made:
    result = made.score(items(['a', 'raise', 'nan', 'b']))
  assert result.rewards == [1, None, None, 1]
  raised, nan = result.failures
  assert (raised.item, raised.kind) == (1, 'error')
  assert 'KeyError' in raised.message and 'no such column' in raised.message
  assert (nan.item, 'got nan' in nan.message) == (2, True)


def test_an_exception_is_logged_with_its_sample_and_function(caplog):
  with Pool({FAULTY + 'fail': 1.0}) as made:
    made.score([ScoreItem('the prompt', 'raise', (), {'level': '7'})] * 5)
  text = caplog.text
  for part in (FAULTY + 'fail', 'the prompt', "'raise'", "{'level': '7'}",
               'KeyError', 'no such column', 'faulty.py'):
    assert part in text
  assert text.count('KeyError: ') == 3 and '2 more rewards failed' in text


def test_an_exception_stops_the_run_where_asked():
  with Pool({FAULTY + 'fail': 1.0}, on_failure='raise') as made:
    assert made.score(items(['a'])).rewards == [1]
    with pytest.raises(RuntimeError, match='(?s)faulty:fail.*no such column'):
      made.score(items(['a', 'raise']))
    assert made.score(items(['a'])).rewards == [1]
  with Pool({FAULTY + 'hang': 1.0}, on_failure='raise',
            deadline_s=0.5) as made:  # a timeout is no exception
    assert made.score(items(['hang', 'x'])).rewards == [None, 1]


def test_memory_is_limited():
  with Pool({FAULTY + 'greedy': 1.0}, memory_bytes=1 << 29) as made:
    result = made.score(items(['1000', str(1 << 30)]))
  assert result.rewards == [1000, None]
  assert 'MemoryError' in result.failures[0].message


def test_a_call_has_a_deadline_of_its_own():
  with Pool({FAULTY + 'sleep': 1.0}, batch_deadline_s=0.5) as made:
    start = time.monotonic()
    result = made.score(items(['0', *['60'] * 40]))
    assert time.monotonic() - start < 2.5
    assert result.rewards == [1.0] + [None] * 40
    assert result.num_timeouts == 40
    assert made.score(items(['0'])).rewards == [1.0]


@pytest.mark.parametrize('module', ['jax', 'tensorflow', 'torch', 'flax'])
def test_workers_never_import(module):
  weights = {'math': 0.0, 'arithmetic': 0.0, FAULTY + 'loaded': 1.0}
  with Pool(weights, num_workers=1) as made:
    result = made.score(items([module, 'sympy'], gold='1'))
  assert result.rewards == [0.0, 1.0]


def test_plain_numbers_pass_at_2000_a_second():
  with Pool({'math': 1.0}, num_workers=2) as made:
    batch = items(['so \\boxed{1,234}'] * 4000, gold='1234')
    start = time.monotonic()
    result = made.score(batch)
    assert time.monotonic() - start < 2.0
  assert sum(result.rewards) == 4000


def test_close_leaves_no_process():
  made = Pool({FAULTY + 'pid': 1.0}, num_workers=2)
  pids = set(made.score(items(['a'] * 64)).rewards)
  made.close()
  made.close()
  assert wait_until_gone(pids)
  with pytest.raises(RuntimeError, match='closed'):
    made.score(items(['a']))


@on_linux
def test_pools_leave_no_open_file():
  before = len(os.listdir('/proc/self/fd'))
  for _ in range(3):
    with Pool({FAULTY + 'die': 1.0}) as made:
      made.score(items(['a', 'die', 'b']))
  assert len(os.listdir('/proc/self/fd')) == before


def test_close_wakes_those_who_wait():
  made = Pool({FAULTY + 'sleep': 1.0}, deadline_s=60.0)
  threading.Timer(0.3, made.close).start()
  with pytest.raises(RuntimeError, match='closed'):
    made.score(items(['60']))


@on_linux
def test_nothing_outlives_a_killed_process():
  program = (
      'import os, threading\n'
      'from rlclip.rewards.pool import Pool, ScoreItem\n'
      'pool = Pool({"tests.rewards.faulty:pid": 1.0, '
      '"tests.rewards.faulty:hang": 1.0}, deadline_s=600.0)\n'
      'pids = pool.score([ScoreItem("", "a")] * 64)\n'
      'print(*set(pids.by_function["tests.rewards.faulty:pid"]), flush=True)\n'
      'pool.score([ScoreItem("", "hang")] * 2)\n')
  with subprocess.Popen(
      [sys.executable, '-c', program], stdout=subprocess.PIPE, text=True,
      env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)}) as owner:
    pids = [float(pid) for pid in owner.stdout.readline().split()]
    time.sleep(0.3)
    running = [is_running(pid) for pid in pids]
    owner.send_signal(signal.SIGKILL)
  assert any(running)  # where the machine is busy, one may have been replaced
  assert wait_until_gone(pids)


def test_an_unknown_reward_is_named_at_the_start():
  with pytest.raises(ValueError, match='Did you mean .*arithmetic'):
    Pool({'arithmetik': 1.0})
  with pytest.raises(ValueError, match='tests.rewards.faulty:nothing'):
    Pool({FAULTY + 'nothing': 1.0})


def test_arguments_out_of_range_are_named():
  with pytest.raises(ValueError, match='at least one worker|one worker'):
    Pool({'arithmetic': 1.0}, num_workers=0)
  with pytest.raises(ValueError, match='on_failure'):
    Pool({'arithmetic': 1.0}, on_failure='ignore')
