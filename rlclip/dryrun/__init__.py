"""What a config would need and take on chips that are not attached.

  chips      the published figures, and slices as 'v5e:8x8'
  plan       how the work of a config falls to the devices of a slice
  counting   FLOPs and bytes of each phase of an RL step, by arithmetic
  memory     bytes a device, by arithmetic, before anything is compiled
  compilation    the real functions, compiled for the slice from shapes alone
  hlo        collectives of a compiled program, read off its text
  advice     which settings would save most
  report     all of it: one record, JSON and a table
  papers     the table of the published experiments
"""
