"""A tfds builder over local JSON lines with `problem` and `answer`."""
import dataclasses
import json
import os

import tensorflow_datasets as tfds

from rlclip.data import jsonl

_FIELDS = ('id', 'problem', 'answer')


@dataclasses.dataclass
class ProblemSet(tfds.core.BuilderConfig):
  """Where one problem set lies.

  Attributes:
    folder: holds `<split>.jsonl`.
    splits: their names.
  """
  folder: str = ''
  splits: tuple[str, ...] = ()


class Builder(tfds.core.GeneratorBasedBuilder):
  """Problems with answers that a program can check, one JSON object a line.

  A row's further fields (level, solution, ...) differ from set to set; they
  travel as the JSON object `extra`.
  """
  VERSION = tfds.core.Version('1.0.0')

  def _info(self) -> tfds.core.DatasetInfo:
    text = tfds.features.Text
    # Unshuffled, so that example i is line i; data/order.py does the shuffling.
    return self.dataset_info_from_configs(
        disable_shuffling=True,
        features=tfds.features.FeaturesDict({
            name: text() for name in (*_FIELDS, 'extra')}))

  def _split_generators(self, dl_manager):
    del dl_manager  # nothing is downloaded
    config = self.builder_config
    return {
        split: self._generate_examples(
            os.path.join(config.folder, f'{split}.jsonl'))
        for split in config.splits}

  def _generate_examples(self, path):
    index = -1
    for index, row in enumerate(jsonl.rows(path, required=_FIELDS)):
      extra = {k: v for k, v in row.items() if k not in _FIELDS}
      yield index, {
          **{name: str(row[name]) for name in _FIELDS},
          'extra': json.dumps(extra, ensure_ascii=False)}
    if index < 0:
      raise ValueError(
          f'Expected at least one JSON object in {path}, got an empty file. '
          'Fetch the data again.')


def prepare(builder: Builder) -> None:
  """Writes the builder's files where they are missing, without a fuss.

  Raises:
    ValueError: a bad line; it names file and line.
  """
  tfds.disable_progress_bar()
  builder.download_and_prepare()
