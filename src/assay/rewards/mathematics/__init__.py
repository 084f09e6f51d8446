"""Mathematics: one extractor for training and evaluation, and equality that is exact before it is clever.

Text is cleaned, read by a closed grammar of our own (never ``eval``, never sympy's parsers), and compared
exactly: strings, rationals, roots, polynomials, sets, intervals, matrices, equations. Only what is left goes
to sympy, as a tree, in a child process that can be killed.
"""
