"""Completions on the terminal: as they are drawn, and token by token."""
import dataclasses
from typing import Any, NamedTuple, Sequence

import numpy as np
import rich.console
import rich.text

from rlclip import assembly, progress
from rlclip.data import tasks
from rlclip.data import tokenizer as tokenizer_lib
from rlclip.models import scoring
from rlclip.sampler import engine
from rlclip.types import Completion, Params, Request, SamplingSpec

# Least log-prob in nats -> color; the first that fits.
_COLORS = ((-0.1, 'green'), (-0.7, 'default'), (-2.3, 'yellow'),
           (-np.inf, 'red'))


class Token(NamedTuple):
  """One token of a completion, and the distribution it was drawn from."""
  text: str
  logp: float  # nats, of the distribution sampled from
  entropy: float  # nats, of the softmax at the sampling temperature


def requests(parts: assembly.Parts, texts: Sequence[str], task: str | None,
             spec: SamplingSpec, *, num_prompts: int, num_samples: int,
             raw: bool) -> list[Request]:
  """Requests for texts, and for the test split of a task.

  Args:
    parts: of the run.
    texts: prompts, to be put into the chat template where the model has one.
    task: a name, or None.
    spec: how to draw; stop ids are the tokenizer's.
    num_prompts: of the task.
    num_samples: completions a prompt.
    raw: texts are prompts as they are.

  Raises:
    ValueError: no prompt.
  """
  tokenizer = parts.tokenizer
  chat = tokenizer.has_chat_template and not raw
  prompts = tokenizer.encode_prompts(
      [tasks.ask(text) if chat else text for text in texts])
  if task:
    found = parts.task if task == parts.task.name else assembly.get_task(
        parts.experiment, task)
    prompts += [tasks.make_prompt(found, example, tokenizer).tokens
                for example in found.examples('test')[:num_prompts]]
  if not prompts:
    raise ValueError('No prompt. Give --prompt, --file or --task.')
  spec = dataclasses.replace(spec, stop_ids=tokenizer.stop_ids)
  return [Request(i * num_samples + g, prompt, spec)
          for i, prompt in enumerate(prompts) for g in range(num_samples)]


def stream(sampler: engine.Engine, requests: Sequence[Request],
           tokenizer: tokenizer_lib.Tokenizer, out: Any = None
           ) -> list[Completion]:
  """Draws, and prints each completion's text as it grows.

  With one request its text comes in pieces; with several, whole completions
  come in the order in which they end.

  Args:
    sampler: in this process, its weights loaded.
    requests: at least one.
    tokenizer: the model's.
    out: a rich console; by default the terminal.

  Returns:
    The completions, in the order of the requests.
  """
  out = out or rich.console.Console(highlight=False, soft_wrap=True)
  pieces: dict[int, list[engine.Piece]] = {i: [] for i in range(len(requests))}
  shown = 0
  for piece in sampler.stream(requests):
    parts = pieces[piece.index]
    parts.append(piece)
    ids = np.concatenate([p.tokens for p in parts])
    text = progress.printable(tokenizer.decode(ids))
    if len(requests) == 1:
      # The last characters of an unfinished one may be half of a letter.
      ready = text if piece.finish else text.rstrip('\ufffd')
      out.print(rich.text.Text(ready[shown:]), end='')
      shown = max(shown, len(ready))
    if piece.finish:
      several = f'[{requests[piece.index].id}] {text}'
      out.print(rich.text.Text('' if len(requests) == 1 else several))
      out.print(f'({piece.finish}, {len(ids)} tokens)', style='dim')
  return [engine.join(parts, sampler.version) for parts in pieces.values()]


def tokens(parts: assembly.Parts, params: Params,
           requests: Sequence[Request], completions: Sequence[Completion]
           ) -> list[list[Token]]:
  """Scores completions and pairs each token with its numbers.

  Args:
    parts: of the run.
    params: those that sampled.
    requests: of the completions, all at one temperature.
    completions: one a request.

  Returns:
    A list of Tokens for each completion.
  """
  temperature = requests[0].spec.temperature or 1.0
  prompts = [r.prompt for r in requests]
  texts = scoring.Texts(
      _pad(prompts), np.array([len(p) for p in prompts], np.int32),
      _pad([c.tokens for c in completions]))
  stats = scoring.score(
      parts.model, params, texts, temperature=temperature,
      chunk=parts.experiment.learner.logits_chunk)
  entropies = np.asarray(stats.entropy)
  return [
      [Token(parts.tokenizer.decode([i], keep_special=True), float(logp),
             float(entropy))
       for i, logp, entropy in zip(c.tokens, c.logps, row)]
      for c, row in zip(completions, entropies, strict=True)]


def show(parts: assembly.Parts, params: Params, requests: Sequence[Request],
         completions: Sequence[Completion], out: Any = None):
  """Prints every completion with each token's log-prob and entropy."""
  out = out or rich.console.Console(highlight=False)
  for request, row in zip(
      requests, tokens(parts, params, requests, completions), strict=True):
    out.print(f'\n[request {request.id}]  token  log-prob  entropy (nats)',
              style='bold', markup=False)
    whole = rich.text.Text()
    for token in row:
      color = next(c for least, c in _COLORS if token.logp >= least)
      text = progress.printable(token.text).replace('\n', '\\n')
      whole.append(text, style=color)
      out.print(rich.text.Text(
          f'{text!r:20} {token.logp:9.4f} {token.entropy:9.4f}', style=color))
    out.print(whole)


def _pad(rows: Sequence[np.ndarray]) -> np.ndarray:
  longest = max(map(len, rows))
  return np.stack([np.pad(row, (0, longest - len(row))) for row in rows])
