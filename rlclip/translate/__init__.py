"""Other libraries' configs as points of the space of rules.

  reading     a YAML or JSON file; the library's defaults for what it omits
  trl, verl, tunix, openrlhf
              what each option means here: axes, settings, warnings
  point       axes put together, and what no axis holds
  known_keys  options that say nothing about the rule

Facts are read from the versions that the modules name; other versions differ.
"""
from rlclip.translate.libraries import LIBRARIES, translate, Translation
from rlclip.translate.report import main_text

__all__ = ['LIBRARIES', 'main_text', 'translate', 'Translation']
