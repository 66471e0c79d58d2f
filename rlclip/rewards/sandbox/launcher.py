"""Starts programs: one process that forks a small tree for every request.

    starter      this file's `main`, made by exec; waits for requests
      guard      one a request; enters the namespaces, keeps the time
        checker  first process of its PID namespace; has the tests
          program  runs the untrusted program; nothing of the tests

The starter and the guard never see a program or a test. When the guard kills
the checker, the kernel kills all in the namespace. The starter costs an import
once; a request costs forks.
"""
import fcntl
import json
import os
import signal
import socket
import sys
import time

import checker
import codec
import jail
import program

# Loaded once, since programs ask for them: none has a state of its own.
for _name in ('bisect', 'collections', 'functools', 'heapq', 'itertools',
              'math', 're', 'string', 'typing'):
  __import__(_name)

_LARGEST_SETTINGS = 1 << 16


def main() -> None:
  """Serves requests until the socket at descriptor argv[1] closes.

  A request is settings as JSON, with the descriptors of the request's file,
  the pipe for the result, the log, and the program's input and output.
  """
  control = socket.socket(fileno=int(sys.argv[1]))
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's
  signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # reaps guards
  os.environ.clear()
  sys.path.pop()  # this folder
  sys.dont_write_bytecode = True
  while True:
    data, descriptors, _, _ = socket.recv_fds(control, _LARGEST_SETTINGS, 5)
    if not data:
      return
    own_pid = os.getpid()
    if not os.fork():
      control.close()
      jail.die_with_parent(own_pid)
      _guard(json.loads(data), *descriptors)
      return  # only the program comes here, to end as programs do
    for descriptor in descriptors:
      os.close(descriptor)


def _guard(settings: dict, request: int, result: int, log: int, given: int,
           output: int) -> None:
  """Runs one request in its time. Returns in the program's process only."""
  os.dup2(log, 2)
  os.close(log)
  signal.signal(signal.SIGCHLD, signal.SIG_DFL)
  signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
  deadline = time.monotonic() + settings['limits']['wall_s']
  null = os.open('/dev/null', os.O_RDWR)
  if settings['isolated']:
    jail.enter_namespaces()
  else:
    jail.become_reaper()
  parent = None if settings['isolated'] else os.getpid()
  inner = os.fork()
  if not inner:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    if _checker(settings, request, result, given, output, null, parent):
      return
    os._exit(0)
  try:
    while not _has_ended(inner):
      left = deadline - time.monotonic()
      if left <= 0:
        break
      signal.sigtimedwait({signal.SIGCHLD}, left)
  finally:
    if settings['isolated']:
      # Where this is back from waiting, all in the namespace has ended.
      _kill(inner)
    else:
      jail.kill_descendants()
    os._exit(0)


def _has_ended(pid: int) -> bool:
  """Whether a child has; it stays to be waited for."""
  found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
  return found is not None


def _kill(pid: int) -> None:
  os.kill(pid, signal.SIGKILL)
  os.waitpid(pid, 0)


def _checker(settings: dict, request: int, result: int, given: int,
             output: int, null: int, parent: int | None) -> bool:
  """Checks a program. Returns true in the program's process, when it is done.

  A failed test ends the process with a traceback and without a result.
  """
  isolated, limits = settings['isolated'], settings['limits']
  is_root, is_stdio = os.geteuid() == 0, settings['mode'] == 'stdio'
  num_tasks = limits['num_processes']
  if isolated:
    owner = (jail.PROGRAM_ID,) * 2 if is_root else (os.geteuid(), os.getegid())
    jail.build_root(settings['folders'], owner=owner[0], group=owner[1],
                    size=limits['folder_bytes'])
  else:
    os.chdir(settings['folder'])
    num_tasks += jail.count_tasks(jail.PROGRAM_ID if is_root else os.geteuid())
  calls, answers = os.pipe(), os.pipe()
  own_pid, child = os.getpid(), os.fork()
  if not child:
    os.setsid()
    ends = (request if is_stdio else calls[0], answers[1])
    _keep_only(*((given, output) if is_stdio else (null, null)), null, *ends)
    jail.set_limits(limits, num_processes=num_tasks)
    jail.drop_privileges(jail.PROGRAM_ID if is_root else None)
    jail.die_with_parent(own_pid)
    _run_program(is_stdio)
    return True
  for descriptor in (calls[0], answers[1], given, output, null):
    os.close(descriptor)
  # The first process of a namespace is safe from signals that it leaves alone.
  signal.signal(signal.SIGINT, signal.SIG_DFL)
  jail.set_limits(limits, num_processes=None)
  jail.drop_privileges(jail.CHECKER_ID if is_root else None)
  jail.hide_memory()
  jail.die_with_parent(parent)
  if codec.receive(answers[0]) != 'started':
    raise OSError('The program\'s process did not start.')
  os.write(result, b'started\n')
  if is_stdio:
    verdict = _exit_code(child)
  else:
    with open(request, encoding='utf-8') as file:
      verdict = checker.check(json.load(file), answers[0], calls[1])
  os.write(result, json.dumps(verdict).encode())
  return False


def _keep_only(*descriptors: int) -> None:
  """Renumbers descriptors from 0 on, and closes all others."""
  # Out of the way first, so that none is overwritten before it has moved.
  safe = [fcntl.fcntl(d, fcntl.F_DUPFD, 100) for d in descriptors]
  for number, descriptor in enumerate(safe):
    os.dup2(descriptor, number)
  os.closerange(len(descriptors), os.sysconf('SC_OPEN_MAX'))


def _run_program(is_stdio: bool) -> None:
  """Runs what descriptor 3 gives; 4 is for answers."""
  sys.argv[:] = ['program.py']
  for name in ('checker', 'codec', 'jail', 'launcher', 'program'):
    del sys.modules[name]
  codec.send(4, 'started')
  if not is_stdio:
    program.serve(3, 4)
    return
  os.close(4)
  with open(3, encoding='utf-8') as file:
    source = file.read()
  program.run(source)


def _exit_code(child: int) -> int:
  """Waits for a child, and for orphans meanwhile."""
  while True:
    pid, status = os.wait()
    if pid == child:
      return os.waitstatus_to_exitcode(status)
