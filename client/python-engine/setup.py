"""The wheel's tag: for this Python, or for 3.12 and newer, whose ABI is stable."""

import sys

from setuptools import Distribution, setup


class WithExtension(Distribution):
    def has_ext_modules(self):
        return True


stable = {"py_limited_api": "cp312"} if sys.version_info >= (3, 12) else {}
setup(distclass=WithExtension, options={"bdist_wheel": stable})
