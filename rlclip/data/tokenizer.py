"""Text to ids and back: one wrapper around fast tokenizers of transformers.

transformers is imported inside functions: it takes seconds, and most of what
imports this module never tokenizes.
"""
import dataclasses
import json
import os
from typing import Any, Iterable, Mapping, Sequence

import numpy as np

Messages = Sequence[Mapping[str, str]]

# Llama's template writes today's date into the prompt unless it is given one:
# prompts, and with them runs, would change from day to day.
_DATE = '26 Jul 2024'


@dataclasses.dataclass(frozen=True)
class Tokenizer:
  """A tokenizer with the ids that end a completion.

  Attributes:
    inner: transformers' tokenizer.
    stop_ids: ids that end a completion, sorted; several are usual.
  """
  inner: Any
  stop_ids: tuple[int, ...]

  @property
  def vocab_size(self) -> int:
    """Number of tokens; a model's embedding may have more rows."""
    return len(self.inner)

  @property
  def has_chat_template(self) -> bool:
    return bool(self.inner.chat_template)

  def encode(self, text: str) -> np.ndarray:
    """Ids of `text` alone, without bos or eos: int32[tokens].

    Raises:
      ValueError: a character that the alphabet lacks.
    """
    return self._encode([text], special=False)[0]

  def decode(self, ids: Iterable[int], *, keep_special: bool = False) -> str:
    """Text of `ids`. Special tokens (eos, turn marks) are dropped by default.

    `<think>` of Qwen3 and its like are ordinary tokens and stay.
    """
    return self.inner.decode(
        [int(i) for i in ids], skip_special_tokens=not keep_special,
        clean_up_tokenization_spaces=False)

  @property
  def end_id(self) -> int:
    """The stop token that a finished completion is taught to end with."""
    eos = self.inner.eos_token_id
    return self.stop_ids[0] if eos is None else eos

  def encode_prompt(self, prompt: str | Messages, **options) -> np.ndarray:
    """Ids of one prompt: int32[tokens]; see `encode_prompts`."""
    return self.encode_prompts([prompt], **options)[0]

  def encode_prompts(
      self, prompts: Sequence[str | Messages], **options) -> list[np.ndarray]:
    """Ids of prompts, as the model was trained to see them.

    Messages go through the chat template, with the assistant's turn opened; the
    template writes bos itself where the model wants one, so none is added. A
    plain text gets the tokenizer's own bos, if it has one and the text does not
    begin with it. So no prompt begins with two.

    Args:
      prompts: plain texts, or messages with 'role' and 'content'.
      **options: for the chat template, such as enable_thinking=False.

    Returns:
      int32[tokens] for each.

    Raises:
      ValueError: messages for a tokenizer without a chat template, or a
        template that writes bos twice.
    """
    bos = self.inner.bos_token
    texts, wants_bos = [], []
    for prompt in prompts:
      is_text = isinstance(prompt, str)
      text = prompt if is_text else self.render(prompt, **options)
      texts.append(text)
      wants_bos.append(is_text and not (bos and text.startswith(bos)))
    made = [None] * len(texts)
    for special in (False, True):
      places = [i for i, wants in enumerate(wants_bos) if wants == special]
      encoded = self._encode([texts[i] for i in places], special=special)
      for i, ids in zip(places, encoded):
        made[i] = ids
    for ids, text in zip(made, texts):
      if bos and (ids[:2] == self.inner.bos_token_id).sum() == 2:
        raise ValueError(
            f'Expected a prompt with one {bos} in front, got {text[:80]!r}. '
            'Mend the chat template, or take the token out of the messages.')
    return made

  def render(self, messages: Messages, **options) -> str:
    """The chat template's text for `messages`, assistant's turn opened."""
    if not self.has_chat_template:
      raise ValueError(
          'Expected plain text for a tokenizer without a chat template, got '
          f'{len(messages)} chat messages. Use a chat model, or a task whose '
          'prompts are plain text (chat=False).')
    options = {'date_string': _DATE, **options}
    return self.inner.apply_chat_template(
        [dict(m) for m in messages], tokenize=False,
        add_generation_prompt=True, **options)

  def save(self, folder: str | os.PathLike) -> None:
    """Writes the tokenizer's files, which `load` and transformers read."""
    self.inner.save_pretrained(folder)

  def _encode(self, texts: list[str], *, special: bool) -> list[np.ndarray]:
    if not texts:
      return []
    try:
      ids = self.inner(texts, add_special_tokens=special, verbose=False)
    except Exception as error:  # the Rust library raises a bare Exception
      raise ValueError(
          f'The tokenizer cannot encode {texts[0][:80]!r}'
          f'{" or one that follows" if len(texts) > 1 else ""}: {error}. Is a '
          'character missing from its alphabet?') from error
    return [np.array(row, np.int32) for row in ids['input_ids']]


def load(path_or_name: str | os.PathLike) -> Tokenizer:
  """Loads the tokenizer of a model folder, or of a model on the hub.

  Stop ids are the tokenizer's eos together with generation_config.json's, or
  config.json's where the former names none: chat models end turns with one
  token and texts with another.

  Args:
    path_or_name: a folder with tokenizer files, or a hub id ('org/name').

  Returns:
    The tokenizer.

  Raises:
    ValueError: no folder, and the hub cannot be reached or has no such model.
  """
  import transformers
  name = os.fspath(path_or_name)
  try:
    inner = transformers.AutoTokenizer.from_pretrained(name)
    stops = _stops(name, 'generation_config.json') or _stops(
        name, 'config.json')
  except (OSError, ValueError) as error:
    raise ValueError(
        f'Expected a folder with tokenizer files or a reachable hub id, got '
        f'{name!r}: {error} Without a network, give a folder that holds '
        'tokenizer.json and tokenizer_config.json.') from error
  if inner.eos_token_id is not None:
    stops = stops | {inner.eos_token_id}
  if not stops:
    raise ValueError(
        f'Expected a stop token for {name!r}; tokenizer, '
        'generation_config.json and config.json name none. Add eos_token_id '
        'to generation_config.json.')
  return Tokenizer(inner, tuple(sorted(stops)))


def character_tokenizer(alphabet: str) -> Tokenizer:
  """One token a character; for small models trained from nothing.

  Ids: <pad> 0, <eos> 1, then the characters of `alphabet` in its order.

  Args:
    alphabet: distinct characters.

  Returns:
    A tokenizer without chat template; <eos> is its stop token.

  Raises:
    ValueError: a character that occurs twice.
  """
  import tokenizers
  import transformers
  if len(set(alphabet)) != len(alphabet):
    raise ValueError(
        f'character_tokenizer needs distinct characters, got {alphabet!r}.')
  vocabulary = {t: i for i, t in enumerate(('<pad>', '<eos>', *alphabet))}
  # No unknown token: a character outside the alphabet is an error.
  base = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary))
  base.pre_tokenizer = tokenizers.pre_tokenizers.Split(
      tokenizers.Regex(r'[\s\S]'), 'isolated')
  base.decoder = tokenizers.decoders.Fuse()
  inner = transformers.PreTrainedTokenizerFast(
      tokenizer_object=base, eos_token='<eos>', pad_token='<pad>',
      clean_up_tokenization_spaces=False)
  return Tokenizer(inner, (inner.eos_token_id,))


def _stops(name: str, file: str) -> set[int]:
  """eos_token_id of a model's JSON file, as a set; empty where it has none."""
  from transformers.utils import hub
  path = hub.cached_file(
      name, file, _raise_exceptions_for_missing_entries=False)
  if path is None:
    return set()
  with open(path, encoding='utf-8') as lines:
    ids = json.load(lines).get('eos_token_id')
  if ids is None:
    return set()
  return {ids} if isinstance(ids, int) else set(ids)
