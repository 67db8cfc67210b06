"""The frameworks that train or read, by name, and the one place that loads one of them."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

from shardmill.infra.errors import EnvironmentFault
from shardmill.infra.extras import install

# Framework -> variables that it reads when it is imported. The threads of PyTorch would otherwise wait in a
# loop, and take the cores from threads that decode, and from other processes: on two busy cores a step then
# takes five times as long.
_ENVIRONMENT: Final = {"torch": {"OMP_WAIT_POLICY": "PASSIVE"}}
# Name -> the name of the library for people. Each has a wing and an extra of its name; two only read.
_FRAMEWORKS: Final = {"tensorflow": "TensorFlow", "torch": "PyTorch", "jax": "JAX", "grain": "Grain"}


def start(framework: str, config: Any, place: Any = None) -> Any:
    """Start a framework for training in this process: a ``shardmill.training.run.framework.Framework``.

    Args:
        framework: ``run.framework``.
        config: the configuration of the run.
        place: the place of this process among the ranks; None: it trains alone.

    Raises:
        EnvironmentFault: the framework is not installed, or the other ranks did not come in time.
        ConfigError: the run asks for devices that are not there.
        RankLost: another rank ended or does not answer.
    """
    for name, value in _ENVIRONMENT.get(framework, {}).items():
        os.environ.setdefault(name, value)
    return load(framework, "framework").start(config, place)


def load(framework: str, module: str) -> ModuleType:
    """Import a module from the wing of a framework, without what the libraries write while they load.

    Args:
        framework: its name.
        module: its name below the folder of the wing.

    Raises:
        EnvironmentFault: the framework is not installed.
    """
    name = f"shardmill.training.{framework}.{module}"
    if name in sys.modules:
        return sys.modules[name]
    check_installed(framework)
    with quiet():
        return importlib.import_module(name)


def check_installed(framework: str) -> None:
    """Check that a framework is there, without importing it.

    Raises:
        EnvironmentFault: it is not.
    """
    if importlib.util.find_spec(framework) is None:
        raise EnvironmentFault(f"{_FRAMEWORKS[framework]} is not installed", install(framework))


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the messages of libraries while they load, mostly that there is no GPU.

    They write before their own log settings apply, so the file descriptor itself is redirected. If the block
    fails, the messages are printed.
    """
    with tempfile.TemporaryFile() as held:
        screen = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            held.seek(0)
            os.write(screen, held.read())
            raise
        finally:
            os.dup2(screen, 2)
            os.close(screen)
