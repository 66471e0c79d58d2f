"""The sandbox: what hostile programs get, and what they leave behind."""
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

import pytest

from rlclip.rewards import code, sandbox
from rlclip.rewards.pool import Pool, ScoreItem

on_linux = pytest.mark.skipif(
    sys.platform != 'linux', reason='the sandbox is Linux\'s')
pytestmark = on_linux
SHORT = sandbox.Limits(wall_s=1.5, cpu_s=1.0)
SECRET = 8675309
TESTS = [f'assert f(2) == {SECRET}']
SQUARE = 'def f(x):\n  return x * x\n'


def marked_processes(owner=None):
  """Processes of a process's sandbox besides the one that forks them."""
  owner = owner or os.getpid()
  found = []
  for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
      line = pathlib.Path(f'/proc/{pid}/cmdline').read_bytes()
      stat = pathlib.Path(f'/proc/{pid}/stat').read_text(encoding='utf-8')
    except OSError:
      continue
    state, parent = stat.rpartition(')')[2].split()[:2]
    if (f'\0for {owner}\0'.encode() in line and state != 'Z'
        and int(parent) != owner):
      found.append(int(pid))
  return found


def wait_until_alone(owner=None):
  deadline = time.monotonic() + 10
  while marked_processes(owner) and time.monotonic() < deadline:
    time.sleep(0.02)
  return not marked_processes(owner)


# Each defines f, never returns SECRET but where it cheats, and must score 0.
HOSTILE = {
    'endless loop': 'while True: pass',
    'endless loop in a call': 'def f(x):\n  while True: pass',
    'fork bomb': (
        'import os\nwhile True:\n  try: os.fork()\n  except OSError: pass'),
    'a thread bomb': (
        'import threading, time\nwhile True:\n'
        '  threading.Thread(target=time.sleep, args=(99,)).start()'),
    '20 GB': 'data = bytearray(20 << 30)\ndef f(x): return 0',
    'a list without end': 'data = []\nwhile True: data.append(data[:] + [0])',
    'endless output': (
        'import os\nwhile True: os.write(1, b"x" * 65536)'),
    'os._exit in a call': 'import os\ndef f(x): os._exit(0)',
    'os._exit': 'import os\nos._exit(0)',
    'sys.exit in a call': 'import sys\ndef f(x): sys.exit(0)',
    'sys.exit': 'import sys\nsys.exit(0)',
    'KeyboardInterrupt': 'def f(x): raise KeyboardInterrupt',
    'stopped': 'import os, signal\ndef f(x): os.kill(0, signal.SIGSTOP)',
    'equals everything': (
        'class Equal:\n  def __eq__(self, other): return True\n'
        '  def __ne__(self, other): return False\n'
        'def f(x): return Equal()'),
    'an int that equals everything': (
        'class Equal(int):\n  def __eq__(self, other): return True\n'
        '  __hash__ = int.__hash__\ndef f(x): return Equal(3)'),
    'patched builtins': (
        'import builtins, sys, operator\n'
        'builtins.AssertionError = SystemExit\n'
        'builtins.isinstance = builtins.all = lambda *args: True\n'
        'operator.eq = lambda *args: True\ndef f(x): return 0'),
    'a trace': (
        'import sys\nsys.settrace(lambda *args: sys.exit(0))\n'
        'def f(x): return 0'),
    'a patched assert': (
        'import builtins, sys\ndef f(x):\n'
        '  for name, module in list(sys.modules.items()):\n'
        '    if hasattr(module, "check"): module.check = lambda *a: 1\n'
        '  __builtins__["__debug__"] = False\n  return 0'),
    'tests in a frame': (
        'import gc, sys\ndef f(x):\n  frame, seen = sys._getframe(), ""\n'
        '  while frame:\n    seen += repr(frame.f_locals) + repr(frame.f_code)'
        '\n    frame = frame.f_back\n'
        '  seen += str([o for o in gc.get_objects() if type(o) is dict])\n'
        '  key = str(86753 * 100 + 9)\n'
        '  return int(key) if key in seen else 0'),
    'tests in /proc': (
        'import os\ndef f(x):\n  key = str(86753 * 100 + 9).encode()\n'
        '  for pid in os.listdir("/proc"):\n'
        '    for line in open(f"/proc/{pid}/maps"):\n'
        '      low, high = [int(a, 16) for a in line.split()[0].split("-")]\n'
        '      memory = open(f"/proc/{pid}/mem", "rb")\n'
        '      memory.seek(low)\n'
        '      if key in memory.read(high - low): return int(key)'),
    'the memory of the checker': (
        'import ctypes, os\nlibc = ctypes.CDLL(None)\ndef f(x):\n'
        f'  return {SECRET} if not libc.ptrace(16, os.getppid(), 0, 0) else 0'),
    'a forged verdict': (
        'import os, struct\nfor fd in range(64):\n  try:\n'
        '    for text in (b"started\\n", b\'"passed"\', b"\\"loaded\\""):\n'
        '      os.write(fd, struct.pack("!I", len(text)) + text)\n'
        '      os.write(fd, text)\n'
        '  except OSError: pass\nos._exit(0)'),
    'a forged answer': (
        'import os, struct\ndef f(x):\n  text = b\'["value", true, []]\'\n'
        '  os.write(4, struct.pack("!I", len(text)) + text)\n  os._exit(0)'),
    'no pipe': 'import os\ndef f(x): os.closerange(0, 64)',
    'a deep answer': (
        'def f(x):\n  deep = []\n  for _ in range(100000): deep = [deep]\n'
        '  return deep'),
    'an answer in itself': 'def f(x):\n  x = []\n  x.append(x)\n  return x',
    'a long answer': 'def f(x): return "x" * (64 << 20)',
    'another type of argument': 'def f(x): raise StopIteration',
    'a child that stays': (
        'import os, signal, time\n'
        'for name in ("SIGTERM", "SIGHUP", "SIGINT"):\n'
        '  signal.signal(getattr(signal, name), signal.SIG_IGN)\n'
        'if not os.fork():\n  os.setsid()\n  if not os.fork():\n'
        '    time.sleep(600)\n  os._exit(0)\ndef f(x): return 0'),
    'killing the parent': (
        f'import os\nfor pid in (os.getppid(), 1, {os.getpid()}, -1):\n  try:\n'
        '    for signal in (2, 15, 9): os.kill(pid, signal)\n'
        '  except OSError: pass\ndef f(x): return 0'),
    'no file limit': (
        'import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))'),
    'a full folder': (
        'for i in range(99):\n'
        '  open(str(i), "wb").write(bytes(8 << 20))\ndef f(x): return 0'),
    'not a program': 'The answer is f(x) = x squared.',
}
WITHOUT_NAMESPACES = (
    'fork bomb', 'a child that stays', 'killing the parent', '20 GB',
    'endless output', 'equals everything', 'a forged verdict', 'endless loop',
    'tests in /proc')


@pytest.mark.parametrize('name', HOSTILE)
def test_a_hostile_program_scores_0_and_leaves_nothing(name):
  start = time.monotonic()
  assert code.score(HOSTILE[name], TESTS, limits=SHORT) == 0.0
  assert time.monotonic() - start < SHORT.wall_s + 5.0
  assert wait_until_alone()


@pytest.mark.parametrize('name', WITHOUT_NAMESPACES)
def test_a_hostile_program_leaves_nothing_without_namespaces(name, tmp_path):
  found = sandbox.check(
      HOSTILE[name], TESTS[0], limits=SHORT, namespaces=False)
  assert found.passed is False
  assert wait_until_alone()


@pytest.mark.parametrize('namespaces', [None, False])
def test_the_same_sandbox_passes_what_is_right(namespaces):
  found = [sandbox.check(SQUARE, f'assert f(3) == {n}', namespaces=namespaces)
           for n in (9, 8)]
  assert [f.passed for f in found] == [True, False]
  assert 'AssertionError' in found[1].message
  printed = sandbox.run(
      'print(input()[::-1])', 'abc\n', namespaces=namespaces)
  assert printed == (0, b'cba\n')


def test_the_attacks_are_programs_and_their_end_is_seen():
  for name, source in HOSTILE.items():
    if name != 'not a program':
      compile(source, name, 'exec')
  program = 'import time\ndef f(x):\n  time.sleep(1.0)\n  return x'
  thread = threading.Thread(
      target=code.score, args=(program, ['assert f(1) == 1']))
  thread.start()
  time.sleep(0.7)
  assert len(marked_processes()) >= 3  # guard, checker, program
  thread.join()
  assert wait_until_alone()


@pytest.mark.parametrize('name', [
    'a child that stays', 'killing the parent', 'a patched assert'])
def test_an_attack_that_does_nothing_does_not_hide_a_right_answer(name):
  # So what scored 0 above was the answer, and the attack had no effect.
  program = HOSTILE[name].replace('return 0', f'return {SECRET}')
  assert code.score(program, TESTS) == 1.0


needs_namespaces = pytest.mark.skipif(
    sys.platform != 'linux' or not sandbox.isolation().namespaces,
    reason='the kernel gives no namespaces')


@needs_namespaces
def test_no_file_outside_the_folder_can_be_written_or_found(tmp_path):
  secret = tmp_path / 'secret'
  secret.write_text('tests', encoding='utf-8')
  targets = [tmp_path / 'x', *(
      pathlib.Path(folder) / f'hostile-{os.getpid()}' for folder in (
          '/tmp', '/dev/shm', '/var/tmp', '/', '/usr', '/root', '/proc',
          pathlib.Path.home(), pathlib.Path(code.__file__).parent))]
  program = (
      'import os\ndef f(paths):\n  done = []\n  for path in paths:\n'
      '    try:\n      open(path, "w").write("x")\n      done.append(path)\n'
      '    except OSError: pass\n  return done, os.listdir(), os.getcwd(),'
      f'dict(os.environ), os.path.exists({str(secret)!r})')
  result = sandbox.check(
      program, f'assert f({list(map(str, targets))}) == ([], [], "/box", {{}}, '
      'False)')
  assert result.passed, result.message
  assert not any(target.exists() for target in targets)
  writes = 'open("x", "w").write("1")\nprint(open("x").read())'
  assert sandbox.run(writes, '') == (0, b'1\n')


@needs_namespaces
def test_no_network_not_even_this_machine():
  with socket.create_server(('127.0.0.1', 0)) as server:
    server.settimeout(0.2)
    port = server.getsockname()[1]
    program = (
        'import socket\ndef f(port):\n  try:\n'
        '    socket.create_connection(("127.0.0.1", port), 1)\n'
        '  except OSError: return "none"\n')
    assert code.score(program, [f'assert f({port}) == "none"']) == 1.0
    with pytest.raises(TimeoutError):
      server.accept()


def test_no_port_stays_open():
  with socket.create_server(('127.0.0.1', 0)) as server:
    port = server.getsockname()[1]
  program = (
      'import os, socket, time\nserver = socket.create_server(("127.0.0.1", '
      f'{port}))\nif not os.fork(): time.sleep(60)\ndef f(): return 1')
  for namespaces in (None, False):
    sandbox.check(program, 'assert f() == 1', namespaces=namespaces)
    with socket.socket() as probe:
      assert probe.connect_ex(('127.0.0.1', port)) != 0


@needs_namespaces
def test_nothing_outlives_a_killed_owner():
  script = (
      'import os, threading, time\nfrom rlclip.rewards import code, sandbox\n'
      f'program = {HOSTILE["a child that stays"]!r} + "\\nwhile True: pass"\n'
      'threading.Thread(target=code.score, args=(program, ["assert f(1)"]), '
      'kwargs={"limits": sandbox.Limits(wall_s=60, cpu_s=60)}).start()\n'
      'time.sleep(1.5)\nprint(os.getpid(), flush=True)\n')
  with subprocess.Popen(
      [sys.executable, '-c', script], stdout=subprocess.PIPE, text=True,
      env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)}) as owner:
    pid = int(owner.stdout.readline())
    running = marked_processes(pid)
    owner.kill()
  assert len(running) >= 4
  assert wait_until_alone(pid)


def test_threads_share_the_sandbox():
  found = [None] * 6

  def score(i):
    found[i] = code.score(SQUARE, [f'assert f({i}) == {i * i + i % 2}'])

  threads = [threading.Thread(target=score, args=(i,)) for i in range(6)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert found == [1.0, 0.0] * 3


def test_the_pool_runs_it_and_gives_up_in_time():
  responses = [f'```python\n{SQUARE}```', 'while True: pass', 'none']
  with Pool({'code(wall_s=1.5)': 1.0}) as pool:
    result = pool.score([
        ScoreItem('', text, (), {'tests': ['assert f(3) == 9']})
        for text in responses])
  assert result.rewards == [1.0, 0.0, 0.0]
  assert result.failures == ()
