"""The sampler on other machines: inference servers that are told new weights.

load_weights: the weights become a folder that the servers see; each is told to
load it, and must then give what these weights give: the log-probs of the next
token after some fixed prompts, at a temperature that is not 1. So one check
sees other weights, another model, stale caches, and log-probs of another
distribution than the one drawn from.

generate: one HTTP request a completion, with token ids both ways; servers
share the prefix of equal prompts themselves. A server must have shown that it
has the weights before it is asked, and again after, or it is asked anew.
"""
import asyncio
import dataclasses
import logging
import math
import os
from typing import Any, Mapping, Sequence
import uuid

import numpy as np

from rlclip.models import config as config_lib
from rlclip.models import huggingface
from rlclip.sampler import dialects, fleet, remote_weights
from rlclip.sampler import requests as requests_lib
from rlclip.sampler.dialects import Answer, BadAnswer, Question
from rlclip.sampler.fleet import Refused, Send, Unanswered
from rlclip.types import Completion, Params, Request

# vLLM's smallest log-prob, its name for minus infinity.
_NO_LOGP = -9999.0
_log = logging.getLogger(__name__)


class WrongWeights(BadAnswer):
  """A server's log-probs are not those of the weights it was told to load."""


class NotLoaded(BadAnswer):
  """A server failed at loading weights."""


@dataclasses.dataclass(frozen=True)
class Served:
  """What servers serve, and where their weights come from.

  Attributes:
    urls: base URLs, 'http://host:8000' each.
    kind: of all of them; a name of dialects.REGISTRY.
    model: the name they serve it under.
    folder: for weights, a path that the servers see as well; of one run.
    tokenizer_dir: whose tokenizer files go into it.
    dtype: 'float32' or 'bfloat16', that they compute in.
  """
  urls: tuple[str, ...]
  kind: str
  model: str
  folder: str
  tokenizer_dir: str
  dtype: str = 'float32'


@dataclasses.dataclass(frozen=True)
class _Loaded:
  """The newest weights, as servers are told of them."""
  version: int
  folder: str
  label: str
  expected: np.ndarray  # float32[prompts, V], of the probe


class Remote:
  """Draws completions with inference servers; a Sampler (see types)."""

  def __init__(self, config: config_lib.ModelConfig, served: Served, *,
               seed: int, max_prompt: int, max_tokens: int,
               settings: fleet.Settings = fleet.Settings()):
    """Opens no connection; `connect` does.

    Args:
      config: the model's architecture.
      served: by whom, and under which name.
      seed: with a request's id it makes the request's seed.
      max_prompt: longest prompt in tokens.
      max_tokens: longest completion in tokens.
      settings: how long to wait, how often to try.
    """
    self._config, self._served, self._seed = config, served, seed
    self._max_prompt, self._max_tokens = max_prompt, max_tokens
    self._dialect = dialects.get(served.kind)
    self._probe = remote_weights.make_probe(config.vocab_size, max_prompt)
    self._score = remote_weights.scorer(config, self._probe)
    self._fleet = fleet.Fleet(served.urls, self._admit, settings)
    self._loaded: _Loaded | None = None
    # URL -> what was expected of it, and what it told, the last time.
    self._told: dict[str, tuple[np.ndarray, list[dict[int, float]]]] = {}

  @property
  def faults(self) -> Mapping[str, int]:
    """Kind of error -> how often servers met it so far."""
    return self._fleet.counts

  def connect(self) -> None:
    """Waits for a server, and refuses those that cannot serve this model.

    Writes a folder for servers to be started with, has them load it, and
    checks their log-probs. So whatever is wrong with a server shows here.

    Raises:
      Refused, NotLoaded, WrongWeights: by the first server that cannot.
      NoServer: where none came.
    """
    weights = remote_weights.start_weights(self._config, self._probe)
    _log.info(
        'Waiting for %s. Start them with the model %s and the name %s: %s',
        ', '.join(self._served.urls),
        os.path.join(self._served.folder, remote_weights.START),
        self._served.model, self._dialect.start)
    self._tell(remote_weights.START, -1, *weights, is_strict=True)

  def load_weights(self, params: Params, version: int) -> None:
    """Writes the weights, and has every server load them.

    A server that is not there is told when it comes back.

    Raises:
      ValueError: where the weights give no log-probs; no server is told.
      NoServer: where none could load them.
    """
    expected = self._score(params)
    if not np.isfinite(expected).all():
      raise ValueError(
          f'The weights of version {version} give log-probs that are not '
          f'finite. Servers are not told of them.')
    before, name = self._loaded, remote_weights.name_of(version)
    self._tell(name, version, params, expected, is_strict=False)
    # A server may be reading the folder before still.
    kept = {name, os.path.basename(before.folder) if before else name}
    remote_weights.keep(self._served.folder, kept)

  def _tell(self, name, version, params, expected, *, is_strict):
    config = self._config
    if not self._dialect.reloads_tied:
      config, params = remote_weights.untied(config, params)
    folder = remote_weights.publish(
        self._served.folder, name, config, params, dtype=self._served.dtype,
        tokenizer_dir=self._served.tokenizer_dir)
    # Unlike a version it occurs once, after a restart of the run as well.
    label = f'{version}-{uuid.uuid4().hex[:12]}'
    self._loaded = _Loaded(version, folder, label, expected)
    self._fleet.admit_all(is_strict=is_strict)

  def generate(self, requests: Sequence[Request]) -> list[Completion]:
    """Draws one completion a request; results in the order of the requests.

    Raises:
      ValueError: before any work, naming the first request that cannot be
        served.
      RuntimeError: without weights; where a request failed on all retries, or
        no server was left.
    """
    if self._loaded is None or self._loaded.version < 0:
      raise RuntimeError('generate() before load_weights(): no weights yet.')
    for request in requests:
      self._check(request)
    version = self._loaded.version

    def read(index, answer):
      return completion(
          self._read(answer), requests[index], version=version,
          vocab_size=self._config.vocab_size)

    before = self._fleet.counts.copy()
    results = self._fleet.ask_all([
        self._dialect.ask(self._served.model, Question(
            request.prompt, request.spec, request_seed(self._seed, request.id)))
        for request in requests], read)
    if faults := self._fleet.counts - before:
      _log.warning('All %d completions are there, after %s.', len(results),
                   ', '.join(f'{n} {kind}' for kind, n in faults.items()))
    return results

  def _read(self, answer, check_label=True) -> Answer:
    """Reads an answer that may tell of another model, or other weights."""
    read, loaded = self._dialect.read(answer), self._loaded
    if read.model not in (None, self._served.model):
      raise BadAnswer(
          f'Expected an answer of {self._served.model!r}, got one of '
          f'{read.model!r}.')
    if check_label and read.label not in (None, loaded.label):
      raise WrongWeights(
          f'Expected an answer of the weights {loaded.label!r}, got one of '
          f'{read.label!r}.')
    return read

  async def _admit(self, send: Send) -> bool:
    """Lets a server in that has the newest weights, or takes them."""
    entry = await self._check_model(send)
    loaded = self._loaded
    label = dialects.label_of(await send(self._dialect.label))
    if label == loaded.label and await self._mismatch(send) is None:
      return True
    # Weights of other shapes could be the end of a server.
    await self._check_vocabulary(send, entry)
    try:
      for call in self._dialect.reload(loaded.folder, loaded.label):
        answer = await send(call, self._fleet.settings.reload_timeout_s)
        if isinstance(answer, dict) and answer.get('success') is False:
          raise dialects.bad_answer(f'success of {call.path}', answer)
    except (Unanswered, Refused, BadAnswer) as error:
      raise NotLoaded(
          f'{send.url} did not load {loaded.folder}: {error} Does it see that '
          f'path?') from error
    if problem := await self._mismatch(send):
      raise WrongWeights(f'{send.url}: {problem}')
    return False

  async def _check_model(self, send):
    """The served model's entry; refuses one that is another, or too short."""
    models = dialects.served(await send(dialects.Call('GET', dialects.MODELS)))
    entry, wanted = models.get(self._served.model), self._served.model
    if entry is None:
      raise Refused(
          f'{send.url} serves {sorted(models)}, expected {wanted!r}. Start it '
          f'with --served-model-name {wanted}, or set config.sampler.model.')
    length, needed = entry.get('max_model_len'), (
        self._max_prompt + self._max_tokens)
    if length is not None and length < needed:
      raise Refused(
          f'{send.url} takes {length} tokens of prompt and completion, '
          f'expected {needed} or more. Start it with a larger length.')
    return entry

  async def _check_vocabulary(self, send, entry):
    """Refuses another architecture or vocabulary."""
    root = str(entry.get('root') or '')
    if os.path.isfile(os.path.join(root, 'config.json')):
      try:
        theirs = _shape(huggingface.read_config(root))
      except (ValueError, OSError) as error:
        raise Refused(f'{send.url} serves {root}: {error}') from error
      ours = _shape(self._config)
      if not self._dialect.reloads_tied:
        ours['tie_embeddings'] = False
      differ = {name: (theirs[name], ours[name]) for name in ours
                if theirs[name] != ours[name]}
      if differ:
        raise Refused(
            f'{send.url} serves {root}, whose config.json has '
            + ', '.join(f'{name} {their}, expected {our}'
                        for name, (their, our) in differ.items())
            + f'. Start it with {self._served.folder}/{remote_weights.START}.')
    size = self._config.vocab_size
    ask = lambda token, top: send(self._dialect.ask(
        self._served.model, Question((token,), self._probe.spec, 0, top)))
    try:
      self._read(await ask(size - 1, self._probe.top), check_label=False)
    except Refused as error:
      raise Refused(
          f'{send.url} does not take token {size - 1} of a vocabulary of '
          f'{size}. {error} Start it with the model of the run.') from error
    try:
      await ask(size, 0)
    except Refused:
      return
    raise Refused(
        f'{send.url} takes token {size}, expected a vocabulary of {size}. '
        f'Start it with the model of the run.')

  async def _mismatch(self, send) -> str | None:
    """What is wrong with a server's log-probs; None where nothing is."""
    probe, loaded, dtype = self._probe, self._loaded, self._served.dtype
    answers = await asyncio.gather(*(
        send(self._dialect.ask(self._served.model, Question(
            prompt, probe.spec, 0, probe.top))) for prompt in probe.prompts))
    told = []
    for answer in map(self._read, answers):
      if not (len(answer.tokens) == len(answer.logps) == len(answer.top) == 1
              and 0 <= min(answer.top[0], default=-1)
              and max(answer.top[0]) < self._config.vocab_size):
        raise dialects.bad_answer('one token, and the likeliest', answer)
      told.append(answer.top[0])
    found, allowed = (remote_weights.difference(loaded.expected, told),
                      remote_weights.TOLERANCE[dtype])
    if not found <= allowed:  # nan is no match
      return (
          f'its log-probs at temperature {probe.spec.temperature} are up to '
          f'{found:.2g} nats from those of weights {loaded.label}, expected '
          f'{allowed:g} at most. It must compute in {dtype}, and tell '
          f'log-probs after temperature and filters: {self._dialect.start}')
    if remote_weights.is_stale(dtype, loaded.expected, told,
                               *self._told.get(send.url, (None, None))):
      return (f'it answers as before weights {loaded.label}, to the last bit: '
              f'it did not load them.')
    self._told[send.url] = loaded.expected, told
    return None

  def _check(self, request: Request):
    """Refuses what no server should be asked."""
    requests_lib.check(
        request, self._config.vocab_size, self._max_prompt, self._max_tokens,
        max_stop_ids=None, has_text=False)
    if request.spec.min_tokens:
      raise ValueError(
          f'Request {request.id}: min_tokens is {request.spec.min_tokens}, and '
          f'servers are not asked for it. Set it to 0, or sample locally.')


def request_seed(seed: int, request_id: int) -> int:
  """A seed of its own for every request of every run: 0 to 2^63 - 1."""
  words = np.random.SeedSequence((seed % 2**63, request_id)).generate_state(
      1, np.uint64)
  return int(words[0] >> np.uint64(1))


def completion(answer: Answer, request: Request, *, version: int,
               vocab_size: int) -> Completion:
  """An answer as a Completion, if it is one.

  Why it ended is read off its tokens: kinds of servers differ in what they
  call a stop token at the very limit, and here it is 'stop'.

  Raises:
    BadAnswer: where tokens and log-probs are not one to one, or not what the
      request allows.
  """
  tokens, spec = answer.tokens, request.spec
  ends = [i for i, token in enumerate(tokens) if token in spec.stop_ids]
  is_stopped = bool(ends) and ends[0] == len(tokens) - 1
  expected = (
      (len(tokens) == len(answer.logps),
       'as many token ids as log-probs',
       f'{len(tokens)} ids and {len(answer.logps)} log-probs'),
      (1 <= len(tokens) <= spec.max_tokens,
       f'1 to {spec.max_tokens} tokens', len(tokens)),
      (all(0 <= token < vocab_size for token in tokens),
       f'token ids below {vocab_size}', max(tokens, default=None)),
      (all(math.isfinite(logp) and _NO_LOGP < logp <= 0
           for logp in answer.logps),
       'finite log-probs of 0 at most', answer.logps),
      (is_stopped or not ends and len(tokens) == spec.max_tokens,
       f'a stop token of {spec.stop_ids} at the end and nowhere else, or '
       f'{spec.max_tokens} tokens', tokens[-3:]))
  for holds, what, got in expected:
    if not holds:
      raise BadAnswer(f'Request {request.id}: expected {what}, got {got}.')
  return Completion(
      np.array(tokens, np.int32), np.array(answer.logps, np.float32),
      'stop' if is_stopped else 'length', version)


def _shape(config: config_lib.ModelConfig) -> dict[str, Any]:
  """What weights and logits depend on."""
  values = dataclasses.asdict(config)
  return {name: value for name, value in values.items()
          if name not in ('max_positions', 'initializer_range')}
