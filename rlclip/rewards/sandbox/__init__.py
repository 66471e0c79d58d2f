"""Runs untrusted Python programs against tests, each in processes of its own.

What a program gets: a process tree that is gone when the call returns, an empty
folder, no environment, limits on time, memory, processes and files; where the
kernel gives namespaces, also no network, no other process, and no file but
Python's own, to read. The verdict cannot be forged: the tests run in another
process, and the program's sends plain values to it.

It does not protect against faults of the kernel, against a program that reads
how busy the machine is, or, where there are no namespaces (`isolation`), from
programs that use the network or the files that this user can reach.

The modules of this folder but this one run without rlclip on the path, and so
import one another by their bare names; `launcher` says who is who.
"""
import contextlib
import dataclasses
import functools
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from typing import Iterator, NamedTuple, Sequence

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_PROGRAM_ID = 65534  # as in jail.py
_GRACE_S = 20.0  # beyond its time, for a machine that is too busy to kill


@dataclasses.dataclass(frozen=True)
class Limits:
  """What a program may use.

  Attributes:
    wall_s: seconds, start of the processes included. Less than the deadline of
      a pool, or a slow program fails the reward instead of scoring 0.
    cpu_s: of CPU time, rounded up to a second, for each process.
    memory_bytes: of address space, for each process.
    num_processes: processes and threads at a time.
    file_bytes: of a file, and of all that is printed.
    folder_bytes: of its folder, where there are namespaces.
  """
  wall_s: float = 3.5
  cpu_s: float = 4.0
  memory_bytes: int = 1 << 30
  num_processes: int = 16
  file_bytes: int = 16 << 20
  folder_bytes: int = 64 << 20


class Isolation(NamedTuple):
  """What this machine's kernel gives.

  Attributes:
    namespaces: whether programs get namespaces, and a root, of their own.
    reason: why not, where they do not.
  """
  namespaces: bool
  reason: str = ''

  def __str__(self) -> str:
    if self.namespaces:
      return 'user, PID, mount, network, IPC namespaces'
    return f'NO namespaces: network and files are open ({self.reason})'


class Checked(NamedTuple):
  """What came of tests.

  Attributes:
    passed: whether all did; None where the tests themselves are broken.
    message: the end of a traceback, where they did not.
  """
  passed: bool | None
  message: str


class Printed(NamedTuple):
  """What a program did with its input.

  Attributes:
    exit_code: None where it ran out of time.
    output: what it printed.
  """
  exit_code: int | None
  output: bytes


def check(programs: str | Sequence[tuple[str, str]], tests: str, *,
          preamble: str = '',
          entry_point: str | None = None, limits: Limits = Limits(),
          namespaces: bool | None = None) -> Checked:
  """Runs tests on the functions of a program.

  Args:
    programs: Python source; or pairs of sources that make a program, of which
      the first is taken whose second part alone compiles and defines
      `entry_point`, and the very first where none does.
    tests: source with assertions, run apart from the program: names it does
      not define stand for the program's.
    preamble: source that the tests may use the names of.
    entry_point: a name that stands for the program's in any case.
    limits: for the program, and for the tests.
    namespaces: whether to use them; None where the kernel gives them.

  Raises:
    RuntimeError: the sandbox itself does not work.
  """
  if isinstance(programs, str):
    programs = [('', programs)]
  request = json.dumps({
      'programs': programs, 'tests': tests, 'preamble': preamble,
      'entry_point': entry_point}).encode()
  ended = _run('calls', request, b'', limits, namespaces)
  passed = None if ended.verdict == 'broken' else ended.verdict == 'passed'
  return Checked(passed, ended.log)


def run(program: str, given: str, *, limits: Limits = Limits(),
        namespaces: bool | None = None) -> Printed:
  """Runs a program as `python program.py < given`.

  Args:
    program: Python source.
    given: what it reads.
    limits: for the program.
    namespaces: whether to use them; None where the kernel gives them.

  Raises:
    RuntimeError: the sandbox itself does not work.
  """
  ended = _run('stdio', program.encode('utf-8', 'surrogatepass'),
               given.encode('utf-8', 'surrogatepass'), limits, namespaces)
  return Printed(ended.verdict, ended.output)


@functools.lru_cache(maxsize=None)
def isolation() -> Isolation:
  """Finds out what the kernel gives, by trying.

  Raises:
    RuntimeError: no sandbox works here, even without namespaces.
  """
  # A module that nobody has loaded: Python's folder has to be readable.
  program, limits = b'import colorsys', Limits(wall_s=20.0)
  try:
    ended = _run('stdio', program, b'', limits, True)
    found = Isolation(True)
  except RuntimeError as error:
    ended = _run('stdio', program, b'', limits, False)
    found = Isolation(False, str(error).strip().rpartition('\n')[2])
  if ended.verdict != 0:
    raise RuntimeError(
        f'Programs cannot import from {os.path.dirname(os.__file__)}. Install '
        'Python where every user can read it, or do not run as root.')
  return found


class _Ended(NamedTuple):
  verdict: str | int | None
  log: str
  output: bytes


def _run(mode: str, request: bytes, given: bytes, limits: Limits,
         isolated: bool | None) -> _Ended:
  if isolated is None:
    isolated = isolation().namespaces
  settings = {
      'mode': mode, 'isolated': isolated, 'folders': _python_folders(),
      'limits': dataclasses.asdict(limits)}
  with contextlib.ExitStack() as stack:
    if not isolated:
      settings['folder'] = stack.enter_context(_temporary_folder())
    files = [stack.enter_context(_memory_file(content))
             for content in (request, b'', given, b'')]
    reader, writer = os.pipe()
    stack.callback(os.close, reader)
    try:
      _ask(settings, [files[0], writer, *files[1:]])
    finally:
      os.close(writer)
    data = _read_to_end(reader, time.monotonic() + limits.wall_s + _GRACE_S)
    log, output = _content(files[1]), _content(files[3])
  started, _, verdict = data.partition(b'\n')
  log = log.decode('utf-8', 'replace')[-2000:]
  if not started:
    raise RuntimeError(f'The sandbox for programs does not start:\n{log}')
  return _Ended(json.loads(verdict) if verdict else None, log, output)


def _ask(settings: dict, descriptors: list[int]) -> None:
  """Has the starter of this process run a request, and makes one if needed."""
  message = [json.dumps(settings).encode()]
  try:
    socket.send_fds(_starter(os.getpid()), message, descriptors)
  except BrokenPipeError:  # it was killed
    _starter.cache_clear()
    socket.send_fds(_starter(os.getpid()), message, descriptors)


@functools.lru_cache(maxsize=1)
def _starter(pid: int) -> socket.socket:
  """Starts the process that forks programs; it ends when the socket closes.

  Args:
    pid: of this process: what was made before a fork is the parent's.
  """
  del pid
  # Messages stay whole, whichever thread sends them.
  ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
  code = f'import sys; sys.path.append({_FOLDER!r}); import launcher; '
  environment = {'PYTHONHASHSEED': '0'}  # the same verdict every time
  if 'LD_LIBRARY_PATH' in os.environ:  # some Pythons do not start without
    environment['LD_LIBRARY_PATH'] = os.environ['LD_LIBRARY_PATH']
  with theirs:
    # No site-packages, no user's, nothing from the current folder.
    subprocess.Popen(
        [sys.executable, '-S', '-s', '-P', '-c', code + 'launcher.main()',
         str(theirs.fileno()), f'for {os.getpid()}'],  # ps tells whose it is
        pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL)
  return ours


@functools.lru_cache(maxsize=1)
def _python_folders() -> list[str]:
  """What of the file system a program sees: Python, and what it links to."""
  wanted = [sys.base_prefix, sys.base_exec_prefix, '/usr', '/lib', '/lib64',
            '/nix/store', '/etc/ld.so.cache']
  folders = []
  for path in sorted({p for p in wanted if os.path.lexists(p)}):
    if not any(path.startswith(f'{folder}/') for folder in folders):
      folders.append(path)
  return folders


@contextlib.contextmanager
def _temporary_folder() -> Iterator[str]:
  folder = tempfile.mkdtemp(prefix='program-')
  try:
    if os.geteuid() == 0:
      os.chown(folder, _PROGRAM_ID, _PROGRAM_ID)
    yield folder
  finally:
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _memory_file(content: bytes) -> Iterator[int]:
  descriptor = os.memfd_create('program')
  try:
    with open(descriptor, 'wb', closefd=False) as file:
      file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    yield descriptor
  finally:
    os.close(descriptor)


def _content(descriptor: int) -> bytes:
  return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def _read_to_end(reader: int, deadline: float) -> bytes:
  """Reads until all writers have ended.

  Raises:
    RuntimeError: they did not in time.
  """
  data = b''
  while True:
    left = max(deadline - time.monotonic(), 0.0)
    if not select.select([reader], [], [], left)[0]:
      raise RuntimeError('The sandbox for programs did not end in its time.')
    part = os.read(reader, 4096)
    if not part:
      return data
    data += part
