"""The processes that run reward functions: one parent that forks workers.

The parent imports the reward functions and then does nothing but fork and kill
workers on request, so that a fresh worker costs milliseconds, not an import of
sympy. It is single-threaded and never runs a reward, so forking is safe and it
always answers. It is started by exec from a process that has jax and threads,
and imports neither: `multiprocessing` would import that process's main module.

Nothing outlives the process that made the pool: the kernel kills the parent
when that process dies (Linux; elsewhere the closed socket ends it), and the
workers when the parent dies.
"""
import ctypes
import json
import math
from multiprocessing.connection import Connection
import os
import pickle
import resource
import signal
import socket
import struct
import sys
import traceback
from typing import Any, Callable, Sequence

from rlclip import rewards

_REQUEST = struct.Struct('!cq')  # b'F' to fork or b'K' to kill; a pid
_REPLY = struct.Struct('!q')  # the pid
_PR_SET_PDEATHSIG = 1


def main() -> None:
  """Runs as `python -c ... FD PID MEMORY_BYTES NAMES`; see `Workers`."""
  descriptor, owner, memory, names = sys.argv[1:]
  control = socket.socket(fileno=int(descriptor))
  _die_with_parent(int(owner))
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's
  os.dup2(2, 1)
  limit, hard = int(memory), resource.getrlimit(resource.RLIMIT_AS)[1]
  if hard != resource.RLIM_INFINITY:
    limit = min(limit, hard)
  resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
  functions, error = _contained(
      lambda: [rewards.get(name) for name in json.loads(names)])
  message = json.dumps(error).encode()
  control.sendall(_REPLY.pack(len(message)) + message)
  if not error:
    _fork_and_kill(control, functions)


def read_exactly(control: socket.socket, size: int) -> bytes:
  """Reads `size` bytes; EOFError where the other end is closed."""
  data = b''
  while len(data) < size:
    part = control.recv(size - len(data))
    if not part:
      raise EOFError('The other end of the socket is closed.')
    data += part
  return data


def start_reply(control: socket.socket) -> str:
  """What went wrong at the start; empty where nothing did."""
  size, = _REPLY.unpack(read_exactly(control, _REPLY.size))
  return json.loads(read_exactly(control, size))


def fork(control: socket.socket, descriptor: int) -> int:
  """Asks for a worker that serves the given socket; returns its pid."""
  socket.send_fds(control, [_REQUEST.pack(b'F', 0)], [descriptor])
  return _REPLY.unpack(read_exactly(control, _REPLY.size))[0]


def kill(control: socket.socket, pid: int) -> None:
  """Asks for a worker and all its children to be killed and reaped."""
  control.sendall(_REQUEST.pack(b'K', pid))
  read_exactly(control, _REPLY.size)


def _fork_and_kill(control: socket.socket, functions) -> None:
  own_pid = os.getpid()
  while True:
    data, descriptors, _, _ = socket.recv_fds(control, _REQUEST.size, 1)
    if not data:
      return
    if len(data) < _REQUEST.size:
      data += read_exactly(control, _REQUEST.size - len(data))
    action, pid = _REQUEST.unpack(data)
    if action == b'F':
      pid = os.fork()
      if not pid:
        control.close()
        _serve(descriptors[0], own_pid, functions)
      os.close(descriptors[0])
    else:
      _kill_group(pid)
    control.sendall(_REPLY.pack(pid))


def _kill_group(pid: int) -> None:
  # The worker leads its session, unless it has not come that far.
  for send in (os.killpg, os.kill):
    try:
      send(pid, signal.SIGKILL)
    except ProcessLookupError:
      pass
  os.waitpid(pid, 0)


def _serve(descriptor: int, parent: int, functions) -> None:
  """Scores chunks until the socket closes. Never returns.

  A chunk that comes in the meantime takes the place of what is left of the
  last one. An empty one is answered, so that its sender knows that it has.
  """
  os.setsid()
  _die_with_parent(parent)
  connection = Connection(descriptor)
  try:
    while True:
      chunk = pickle.loads(connection.recv_bytes())
      for unit, index, item in chunk:
        value, error = _call(functions[index], pickle.loads(item))
        connection.send_bytes(json.dumps((unit, value, error)).encode())
        if connection.poll():
          break
      if not chunk:
        connection.send_bytes(json.dumps((None, None, '')).encode())
  except (EOFError, OSError):
    os._exit(0)
  finally:
    os._exit(1)  # a BaseException must not run into the parent's loop


def _contained(call: Callable[[], Any]) -> tuple[Any, str]:
  """What foreign code returns, and what it raises, as text; one is empty.

  A reward may raise anything, and that is the failure of one answer, or of the
  start: the owner is told and decides. Here alone all errors are caught; what
  is no Exception (SystemExit, KeyboardInterrupt) ends the worker.
  """
  try:
    return call(), ''
  except Exception as error:
    # The last frames and the start of the message: a message may be as long as
    # the answer it is about.
    lines = traceback.format_exception(error, limit=-3)
    return None, ''.join(line[:2000] for line in lines)


def _call(function, item: tuple) -> tuple[float | None, str]:
  """Value and error of a reward function; one of the two is empty."""
  prompt, completion, tokens, fields = item

  def scored() -> float | None:
    value = function(prompt, completion, tokens, **fields)
    return None if value is None else float(value)

  value, error = _contained(scored)
  if value is not None and not math.isfinite(value):
    return None, f'Expected a finite reward or None, got {value}.'
  return value, error


def _die_with_parent(parent: int) -> None:
  if sys.platform == 'linux':
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
  if os.getppid() != parent:  # it died before we asked
    os._exit(1)


def command(descriptor: int, memory: int, names: Sequence[str]) -> list[str]:
  """The command line that starts the parent of the workers."""
  return [
      sys.executable, '-c', 'from rlclip.rewards import worker; worker.main()',
      str(descriptor), str(os.getpid()), str(memory), json.dumps(list(names))]
