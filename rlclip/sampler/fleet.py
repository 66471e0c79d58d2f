"""Several servers as one: the least loaded first, retried, let in again.

A server is either in, and gets work, or out. One that fails in any way is out
at once, and comes in again when `admit` says so, which tells it the newest
weights. What it was asked goes to others. Only an answer that was read counts.
"""
import asyncio
import collections
import contextlib
import dataclasses
import itertools
import json
import logging
import random
from typing import Any, Awaitable, Callable, Protocol, Sequence, TypeVar

from rlclip.sampler.dialects import bad_answer, BadAnswer, Call

T = TypeVar('T')

_LONGEST_DELAY = 30.0  # seconds between tries
_log = logging.getLogger(__name__)


class Unanswered(RuntimeError):
  """No connection, no answer in time, or an error of the server's own."""


class Refused(ValueError):
  """What a server says no to, or may not serve: asking again changes nothing.
  """


class NoServer(RuntimeError):
  """No server is left to ask, after all patience."""


@dataclasses.dataclass(frozen=True)
class Settings:
  """How long to wait, and how often to try.

  Attributes:
    timeout_s: seconds for an answer.
    reload_timeout_s: seconds for new weights.
    connect_timeout_s: seconds for a connection.
    retries: further tries of one request, on whatever server.
    patience_s: seconds that a server may be out before it is given up, till
      the next call; with none in, work waits as long.
    in_flight: requests that one server has at a time.
    delay_s: before the first retry; it doubles, and is drawn from its upper
      half, so that many do not come back at once.
  """
  timeout_s: float = 600.0
  reload_timeout_s: float = 600.0
  connect_timeout_s: float = 10.0
  retries: int = 5
  patience_s: float = 600.0
  in_flight: int = 256
  delay_s: float = 0.5

  def delay(self, tries: int) -> float:
    """Seconds before the next try after so many."""
    longest = min(self.delay_s * 2 ** min(tries, 30), _LONGEST_DELAY)
    return longest * random.uniform(0.5, 1.0)


class Send(Protocol):
  """Asks the server at `url` for what `call` says; returns parsed JSON."""
  url: str

  def __call__(self, call: Call, timeout_s: float | None = None
               ) -> Awaitable[Any]:
    """Raises Unanswered, BadAnswer or Refused."""


# Whether the server had the newest weights already; raises what Send raises.
Admit = Callable[[Send], Awaitable[bool]]


@dataclasses.dataclass
class _Server:
  url: str
  is_in: bool = False
  is_given_up: bool = False
  in_flight: int = 0
  trouble: str = 'not asked yet'


class Fleet:
  """Base URLs, and who of them is in. One caller at a time."""

  def __init__(self, urls: Sequence[str], admit: Admit, settings: Settings):
    """Opens no connection.

    Args:
      urls: base URLs of servers of one kind.
      admit: looks at a server, brings it up to date, or raises.
      settings: for all of them.
    """
    self._servers = [_Server(url.rstrip('/')) for url in urls]
    self._admit, self.settings = admit, settings
    self.counts = collections.Counter()  # kind of fault -> how often, so far

  def admit_all(self, *, is_strict: bool) -> None:
    """Has every server admitted afresh; waits until one is.

    Args:
      is_strict: whether one server that answers, but may not serve, stops
        all; else the others go on without it.

    Raises:
      Refused, BadAnswer: where strict, the first server's that may not serve.
      NoServer: where none could be admitted for `patience_s`.
    """
    for server in self._servers:
      server.is_in = False
    asyncio.run(self._admit_all(is_strict))

  def ask_all(self, calls: Sequence[Call], read: Callable[[int, Any], T]
              ) -> list[T]:
    """Asks everything of some server, and reads the answers.

    Args:
      calls: what to ask.
      read: (index, JSON) -> result; raises BadAnswer to have it asked again.

    Returns:
      A result a call, in their order.

    Raises:
      Unanswered, BadAnswer: of one call, after all retries.
      Refused: where a server says no.
      NoServer: where all were out for `patience_s`.
    """
    return asyncio.run(self._ask_all(calls, read)) if calls else []

  async def _admit_all(self, is_strict):
    async with self._session() as session:
      refusals = await session.wait_for_one(is_strict)
      if is_strict and refusals:
        raise refusals[0]

  async def _ask_all(self, calls, read):
    async with self._session() as session:
      results: dict[int, tuple[_Server, T]] = {}
      for _ in range(self.settings.retries + 1):
        await session.wait_for_one()
        left = [i for i in range(len(calls)) if i not in results]
        await session.ask({i: calls[i] for i in left}, read, results)
        # A server may have started anew without a connection breaking. What
        # it answered is from whatever weights it started with.
        for server in self._servers:
          if server.is_in and not await session.still_in(server):
            results = {i: (by, result) for i, (by, result) in results.items()
                       if by is not server}
        if len(results) == len(calls):
          return [results[i][1] for i in range(len(calls))]
      raise Unanswered(
          f'Servers lost their weights in each of '
          f'{self.settings.retries + 1} tries. Is someone else loading '
          f'weights into them?')

  @contextlib.asynccontextmanager
  async def _session(self):
    import httpx2  # only where there are servers

    # Servers close idle connections after 5 s; not to meet one in that moment.
    limits = httpx2.Limits(max_connections=None, keepalive_expiry=2.0)
    timeout = httpx2.Timeout(None, connect=self.settings.connect_timeout_s)
    # A proxy of the environment is not for the machines of one run.
    async with httpx2.AsyncClient(
        limits=limits, timeout=timeout, trust_env=False) as client:
      session = _Session(
          client, self._servers, self._admit, self.settings, self.counts)
      try:
        yield session
      finally:
        await session.close()


class _Session:
  """The work of one event loop."""

  def __init__(self, client, servers, admit, settings, counts):
    self._client, self._servers = client, servers
    self._admit, self._settings, self._counts = admit, settings, counts
    self._changed = asyncio.Condition()
    self._coming: dict[str, asyncio.Task] = {}  # URL -> its way back in
    for server in servers:
      server.in_flight, server.is_given_up = 0, False

  async def close(self):
    for task in self._coming.values():
      task.cancel()
    await asyncio.gather(*self._coming.values(), return_exceptions=True)

  async def wait_for_one(self, is_strict=False) -> list[Exception]:
    """Looks at every server, and waits until one is in.

    Those that were in have to show it. Those that are not in yet are looked at
    again, beside the work.

    Args:
      is_strict: not to wait where a server may not serve.

    Returns:
      Why servers may not serve.
    """
    outside = [s for s in self._servers if not s.is_in]
    inside = [s for s in self._servers if s.is_in]
    await asyncio.gather(*map(self.still_in, inside))
    looks = await asyncio.gather(*map(self._look, outside))
    refusals = [look for look in looks if look is not None]
    for server in outside:
      if not server.is_in:
        self._expect(server)
    if not refusals or not is_strict:
      async with self._slot():
        pass
    return refusals

  async def still_in(self, server) -> bool:
    """Whether a server has what it should have; else it is out, or was."""
    try:
      had = await self._admit(self._sender(server))
    except (Unanswered, BadAnswer, Refused) as error:
      self._put_out(server, error)
      return False
    return had

  async def ask(self, calls, read, results):
    """Fills `results`, index -> (server, what was read)."""
    try:
      async with asyncio.TaskGroup() as group:
        for index, call in calls.items():
          group.create_task(self._ask_one(index, call, read, results))
    except BaseExceptionGroup as errors:
      raise errors.exceptions[0] from None

  async def _ask_one(self, index, call, read, results):
    for tries in itertools.count():
      async with self._slot() as server:
        try:
          answer = await self._sender(server)(call)
          results[index] = server, read(index, answer)
          return
        except (Unanswered, BadAnswer) as error:
          self._put_out(server, error)
          if tries == self._settings.retries:
            raise type(error)(
                f'Request at place {index}: no good answer in {tries + 1} '
                f'tries. Last, of {server.url}: {error}') from error
      await asyncio.sleep(self._settings.delay(tries))

  @contextlib.asynccontextmanager
  async def _slot(self):
    """The least loaded server that is in, once it has room."""
    async with self._changed:
      await self._changed.wait_for(lambda: self._free() or self._none_left())
      if not self._free():
        raise NoServer(
            'No server is left, after ' + f'{self._settings.patience_s:g} s. '
            + ' '.join(f'{s.url}: {s.trouble}' for s in self._servers)
            + ' Start them again; the run continues from its checkpoint.')
      server = min(self._free(), key=lambda s: s.in_flight)
      server.in_flight += 1
    try:
      yield server
    finally:
      server.in_flight -= 1
      async with self._changed:
        self._changed.notify()  # there is room for one more

  def _free(self):
    return [s for s in self._servers
            if s.is_in and s.in_flight < self._settings.in_flight]

  def _none_left(self):
    return all(s.is_given_up for s in self._servers)

  def _put_out(self, server, error):
    kind = type(error).__name__
    self._counts[kind] += 1
    server.trouble = f'{kind}: {error}'
    if server.is_in:
      _log.warning('%s is out. %s', server.url, server.trouble)
      server.is_in = False
      self._expect(server)

  def _expect(self, server):
    self._coming[server.url] = asyncio.create_task(self._come_back(server))

  async def _come_back(self, server):
    """Tries to have a server admitted, until patience ends."""
    loop = asyncio.get_running_loop()
    end = loop.time() + self._settings.patience_s
    for tries in itertools.count():
      await asyncio.sleep(self._settings.delay(tries))
      await self._look(server)
      if server.is_in or loop.time() > end:
        break
    async with self._changed:
      server.is_given_up = not server.is_in
      self._changed.notify_all()

  async def _look(self, server) -> Exception | None:
    """One try to admit a server; returns what it may not serve for."""
    try:
      await self._admit(self._sender(server))
    except (Unanswered, BadAnswer, Refused) as error:
      trouble = f'{type(error).__name__}: {error}'
      if trouble != server.trouble:
        _log.warning('%s is not in yet. %s', server.url, trouble)
      server.trouble = trouble
      return None if isinstance(error, Unanswered) else error
    if not server.is_in:
      _log.info('%s is in.', server.url)
    server.is_in = True
    return None

  def _sender(self, server) -> Send:
    async def send(call, timeout_s=None):
      return await _exchange(
          self._client, server.url, call,
          timeout_s or self._settings.timeout_s)
    send.url = server.url
    return send


async def _exchange(client, url, call, timeout_s):
  """One request and its answer, parsed."""
  import httpx2
  where = f'{call.method} {url}{call.path}'
  try:
    # Of the whole exchange: a server may also send a byte a minute.
    async with asyncio.timeout(timeout_s):
      response = await client.request(
          call.method, url + call.path, json=call.body)
  except TimeoutError as error:
    raise Unanswered(f'{where}: no answer in {timeout_s:g} s.') from error
  except httpx2.HTTPError as error:
    raise Unanswered(f'{where}: {type(error).__name__} {error}') from error
  if response.status_code >= 500 or response.status_code in (408, 429):
    raise Unanswered(
        f'{where}: HTTP {response.status_code} {response.text[:300]}')
  if response.status_code >= 400:
    raise Refused(
        f'{where}: HTTP {response.status_code} {response.text[:300]}')
  try:
    return response.json()
  except (json.JSONDecodeError, UnicodeDecodeError) as error:
    raise bad_answer(f'JSON of {where}', response.text) from error
