"""What a process may do: namespaces, a root of its own, limits, privileges.

Linux's calls by way of libc: Python has `os.unshare` since 3.12 only, and no
`mount`. Nothing here imports rlclip.
"""
import ctypes
import os
import resource
import signal

# Of the uids that a sandbox of root maps: the one that runs the tests, and the
# one that runs the program.
CHECKER_ID, PROGRAM_ID = 65533, 65534
BOX = '/box'  # the program's folder, where there are namespaces

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_MOVE, _MS_REC, _MS_PRIVATE = (
    1, 2, 4, 4096, 8192, 16384, 1 << 18)
_SYS_MOUNT_SETATTR = 442  # on every architecture; Linux 5.12
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_CAPABILITY_VERSION = 0x20080522

_LIBC = ctypes.CDLL(None, use_errno=True)


def enter_namespaces() -> None:
  """Moves to new user, mount, network, IPC, UTS and (for children) PID ones.

  Root keeps its uid and maps two more, without which programs would be root as
  far as files are concerned; anyone else maps the own uid alone.

  Raises:
    OSError: the kernel does not allow it.
  """
  flags = _NEWUSER | _NEWNS | _NEWNET | _NEWIPC | _NEWUTS | _NEWPID
  if os.geteuid():
    uid, gid = os.geteuid(), os.getegid()
    _call('unshare', flags)
    _write('/proc/self/setgroups', 'deny')
    _write('/proc/self/uid_map', f'{uid} {uid} 1')
    _write('/proc/self/gid_map', f'{gid} {gid} 1')
    return
  # Several uids can be mapped from outside only.
  reader, writer = os.pipe()
  owner = os.getpid()
  helper = os.fork()
  if not helper:
    try:
      os.close(writer)
      os.read(reader, 1)
      ids = ''.join(f'{i} {i} 1\n' for i in (0, CHECKER_ID, PROGRAM_ID))
      _write(f'/proc/{owner}/uid_map', ids)
      _write(f'/proc/{owner}/gid_map', ids)
      os._exit(0)
    finally:
      os._exit(1)
  try:
    _call('unshare', flags)
    os.write(writer, b'.')
  finally:
    os.close(reader)
    os.close(writer)
    _, status = os.waitpid(helper, 0)
  if status:
    raise OSError('uids cannot be mapped into a new user namespace')


def build_root(folders: list[str], *, owner: int, group: int,
               size: int) -> None:
  """Swaps the file system for a read-only one that holds Python and no more.

  There is no /proc, no /tmp and no home in it; only the empty folder BOX can
  be written to, in memory, and is gone with the namespace.

  Args:
    folders: what is shown, at the same place: files, folders or links.
    owner: uid of BOX.
    group: gid of BOX.
    size: of all in BOX, in bytes.
  """
  _mount(None, '/', None, _MS_REC | _MS_PRIVATE)
  root = '/sys'  # exists everywhere, and holds nothing that is needed
  _mount('tmpfs', root, 'tmpfs', _MS_NOSUID | _MS_NODEV, 'mode=755,size=1m')
  devices = [f'/dev/{name}' for name in ('null', 'zero', 'urandom', 'random')]
  for path in [*folders, *devices]:
    target = root + path
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):
      os.symlink(os.readlink(path), target)
    elif os.path.exists(path):
      if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
      else:
        os.close(os.open(target, os.O_CREAT, 0o644))
      _mount(path, target, None, _MS_BIND | _MS_REC)
  os.mkdir(root + BOX)
  _set_attributes(root, _MS_RDONLY | _MS_NOSUID)
  _mount('tmpfs', root + BOX, 'tmpfs', _MS_NOSUID | _MS_NODEV,
         f'mode=700,uid={owner},gid={group},size={size},nr_inodes=1024')
  os.chdir(root)
  _mount('.', '/', None, _MS_MOVE)
  os.chroot('.')
  os.chdir(BOX)


def drop_privileges(uid: int | None) -> None:
  """Gives up capabilities for good, and root where `uid` is given."""
  if uid is not None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
  header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
  _call('capset', header, (ctypes.c_uint32 * 6)())
  _call('prctl', _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def hide_memory() -> None:
  """Keeps processes of the same user from tracing this one."""
  _call('prctl', _PR_SET_DUMPABLE, 0, 0, 0, 0)


def die_with_parent(parent: int | None = None) -> None:
  """Has the kernel kill this process when its parent dies.

  A change of uid undoes it, so it comes after `drop_privileges`.

  Args:
    parent: its pid, to notice that it has died before; None where it is in
      another PID namespace.
  """
  _call('prctl', _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
  if parent is not None and os.getppid() != parent:
    os._exit(1)


def become_reaper() -> None:
  """Makes orphans of this process's descendants its children."""
  _call('prctl', _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_descendants() -> None:
  """Kills all that descends from this process, while there is any.

  For where no PID namespace does it. A descendant that forks faster than it is
  found is stopped by its limit on processes.
  """
  while True:
    parents = _parents()
    found, grown = {os.getpid()}, True
    while grown:
      new = {pid for pid, parent in parents.items() if parent in found} - found
      found |= new
      grown = bool(new)
    for pid in found - {os.getpid()}:
      try:
        os.kill(pid, signal.SIGKILL)
      except ProcessLookupError:
        pass
    try:
      os.waitpid(-1, 0)
    except ChildProcessError:
      return


def set_limits(limits: dict, *, num_processes: int | None) -> None:
  """Sets the limits of this process and what it starts.

  Args:
    limits: `sandbox.Limits` as a dict.
    num_processes: of its uid; None leaves them as they are.
  """
  cpu = max(1, -(-limits['cpu_s'] // 1))
  wanted = {
      'CPU': cpu, 'AS': limits['memory_bytes'], 'CORE': 0,
      'FSIZE': limits['file_bytes'], 'NOFILE': 64, 'NPROC': num_processes,
      'MEMLOCK': 0, 'MSGQUEUE': 0}
  for name, value in wanted.items():
    number = getattr(resource, f'RLIMIT_{name}')
    hard = resource.getrlimit(number)[1]
    if value is not None:
      value = int(value)
      value = value if hard == resource.RLIM_INFINITY else min(value, hard)
      # Hard as well as soft: the soft one of CPU time sends a signal that a
      # program can ignore.
      resource.setrlimit(number, (value, value))


def count_tasks(uid: int) -> int:
  """Threads of a user, as the limit on processes counts them."""
  count = 0
  for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
      if os.stat(f'/proc/{pid}').st_uid == uid:
        count += len(os.listdir(f'/proc/{pid}/task'))
    except OSError:
      pass  # it has ended
  return count


def _parents() -> dict[int, int]:
  parents = {}
  for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
      with open(f'/proc/{pid}/stat', 'rb') as stat:
        parents[int(pid)] = int(stat.read().rpartition(b')')[2].split()[1])
    except OSError:
      pass  # it has ended
  return parents


def _set_attributes(path: str, attributes: int) -> None:
  """mount_setattr(2) on a mount and all below it."""
  values = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
  _call('syscall', ctypes.c_long(_SYS_MOUNT_SETATTR), _AT_FDCWD,
        path.encode(), _AT_RECURSIVE, values,
        ctypes.c_size_t(ctypes.sizeof(values)))


def _mount(source: str | None, target: str, kind: str | None, flags: int,
           options: str = '') -> None:
  encode = lambda text: None if text is None else text.encode()
  _call('mount', encode(source), encode(target), encode(kind),
        ctypes.c_ulong(flags), encode(options) or None)


def _write(path: str, text: str) -> None:
  with open(path, 'w', encoding='ascii') as file:
    file.write(text)


def _call(name: str, *arguments) -> None:
  if getattr(_LIBC, name)(*arguments):
    number = ctypes.get_errno()
    raise OSError(number, f'{name}: {os.strerror(number)}')
