"""A tfds builder over files of rows with a problem and its answer."""
import json
from typing import Iterable, Mapping

import tensorflow_datasets as tfds

_FIELDS = ('id', 'problem', 'answer')


class Builder(tfds.core.GeneratorBasedBuilder):
  """Problems with answers that a program can check.

  A row's further fields (level, solution, ...) differ from set to set; they
  travel as the JSON object `extra`.
  """
  VERSION = tfds.core.Version('1.0.0')

  def __init__(self, *, split: str, examples: Iterable[Mapping[str, object]],
               **kwargs):
    """Not a BuilderConfig: tfds warns of each that it does not know.

    Args:
      split: the one split.
      examples: with 'id', 'problem' and 'answer' as text; read once, and only
        where the files are not there yet.
      **kwargs: of tfds.
    """
    self._rows = {split: examples}
    super().__init__(**kwargs)

  def _info(self) -> tfds.core.DatasetInfo:
    text = tfds.features.Text
    # Unshuffled, so that example i is row i; data/order.py does the shuffling.
    return self.dataset_info_from_configs(
        disable_shuffling=True,
        features=tfds.features.FeaturesDict({
            name: text() for name in (*_FIELDS, 'extra')}))

  def _split_generators(self, dl_manager):
    del dl_manager  # nothing is downloaded
    return {split: self._generate_examples(examples)
            for split, examples in self._rows.items()}

  def _generate_examples(self, examples):
    for index, example in enumerate(examples):
      extra = {k: v for k, v in example.items() if k not in _FIELDS}
      yield index, {
          **{name: example[name] for name in _FIELDS},
          # A parquet file may hold dates and the like.
          'extra': json.dumps(extra, ensure_ascii=False, default=str)}


def prepare(builder: Builder) -> None:
  """Writes the builder's files where they are missing, without a fuss.

  Raises:
    ValueError: a bad row; it names file and row.
  """
  tfds.disable_progress_bar()
  builder.download_and_prepare()
