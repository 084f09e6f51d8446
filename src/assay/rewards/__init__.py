"""Rewards: functions of a completion and its task, and everything around calling them safely.

Call and run any function: ``load`` (``file.py:name``), ``call`` (its signature), ``running`` (workers with a
time limit), ``checking`` (controls before the first step). Read answers: ``mathematics``, ``text``, ``choice``,
``judge``. Shape them: ``formats``, ``lengths``, ``composition``. Run programs: ``code``.
"""
