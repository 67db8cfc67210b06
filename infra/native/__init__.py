"""All C code of the project, one file per subject, each with its binding in a Python file of the same name.

C code is here only where a whole job or a whole training run gains by it and a user notices. Each binding's
docstring says why its C code exists, what a whole job gains (measured), and which library or Python code is
its reference. That reference does the work wherever the C code is not compiled, and gives the same bytes.

Two pieces of C code were measured and deleted. One converted a whole JPEG in one call: 840 µs a photograph
instead of 940, for a second implementation of every step. The other read and checked batches of records: in
whole pipelines it gained 3 % of CPU time (median of five comparisons).

The C code is built when the project is installed, if there is a C compiler (``pyproject.toml``). ``make
test-native`` builds it once more with the address and undefined-behaviour sanitizers and compares it with its
references on random input. The environment variable ``SHARDMILL_NATIVE`` chooses another build
(``shardmill.infra.native.library``).
"""
