"""Code rewards: what passes, what does not, and what hostile programs get."""
import gzip
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

import pytest

from rlclip.rewards import code, sandbox
from rlclip.rewards.pool import Pool, ScoreItem
from tests.rewards import code_references as references

on_linux = pytest.mark.skipif(
    sys.platform != 'linux', reason='the sandbox is Linux\'s')
pytestmark = on_linux
SHORT = sandbox.Limits(wall_s=2.5, cpu_s=1.0)
SECRET = 8675309
TESTS = [f'assert f(2) == {SECRET}']
SQUARE = 'def f(x):\n  return x * x\n'


def marked_processes():
  """Processes of this one's sandbox besides the one that forks them."""
  found = []
  for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
      line = pathlib.Path(f'/proc/{pid}/cmdline').read_bytes()
      stat = pathlib.Path(f'/proc/{pid}/stat').read_text(encoding='utf-8')
    except OSError:
      continue
    state, parent = stat.rpartition(')')[2].split()[:2]
    if (f'\0for {os.getpid()}\0'.encode() in line and state != 'Z'
        and int(parent) != os.getpid()):
      found.append(int(pid))
  return found


def wait_until_alone():
  deadline = time.monotonic() + 10
  while marked_processes() and time.monotonic() < deadline:
    time.sleep(0.02)
  return not marked_processes()


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
        'operator.eq = lambda *args: True\n'
        'sys.settrace(lambda *args: sys.exit(0))\ndef f(x): return 0'),
    'a patched assert': (
        'import builtins, sys\ndef f(x):\n'
        '  for name, module in list(sys.modules.items()):\n'
        '    if hasattr(module, "check"): module.check = lambda *a: "passed"\n'
        '  __builtins__["__debug__"] = False\n  return 0'),
    'tests in a frame': (
        'import gc, sys\ndef f(x):\n  frame, seen = sys._getframe(), ""\n'
        '  while frame:\n    seen += repr(frame.f_locals) + repr(frame.f_code)'
        '\n    frame = frame.f_back\n'
        f'  seen += str([o for o in gc.get_objects() if type(o) is dict])\n'
        '  key = str(86753 * 100 + 9)\n'
        '  return int(key) if key in seen else 0'),
    'tests in /proc': (
        'import os\ndef f(x):\n  key = str(86753 * 100 + 9).encode()\n'
        '  for pid in os.listdir("/proc"):\n'
        '    for line in open(f"/proc/{pid}/maps"):\n'
        '      low, high = (int(a, 16) for a in line.split()[0].split("-"))\n'
        '      memory = open(f"/proc/{pid}/mem", "rb")\n      memory.seek(low)\n'
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
