"""The compiled parts of the package and the tags of its wheel; everything else stands in pyproject.toml."""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

# Optional: without a C compiler OpenCV gives the same bytes, more slowly (infra/native).
# No debug information: it holds the folder of the build, and two builds would differ.
COMPILED = [
    Extension(
        f"shardmill.infra.native._{name}",
        [f"shardmill/infra/native/{name}.c"],
        extra_compile_args=["-O3", "-ffp-contract=off", "-g0"],
        optional=True,
    )
    for name in ("area", "bilinear")
]


class Library(build_ext):
    """A library that ctypes loads. It uses nothing of Python, so its name says nothing of a version."""

    def get_ext_filename(self, fullname: str) -> str:
        """Return the path below the folder of the build."""
        return f"{Path(*fullname.split('.'))}.so"


class Wheel(bdist_wheel):
    """A wheel for every Python on this kind of machine; for every machine where nothing was compiled."""

    def run(self) -> None:
        """Build the wheel."""
        self.run_command("build_ext")
        if not any(Path(file).exists() for file in self.get_finalized_command("build_ext").get_outputs()):
            self.distribution.ext_modules = []
            self.root_is_pure = True
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of Python, binary interface and platform."""
        return ("py3", "none", super().get_tag()[2])


# As when it runs: "none" does without compiled code.
is_wanted = os.environ.get("SHARDMILL_NATIVE") != "none"
setup(ext_modules=COMPILED if is_wanted else [], cmdclass={"build_ext": Library, "bdist_wheel": Wheel})
