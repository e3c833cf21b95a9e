"""The wheel's tag: for any Python 3, and for this machine."""

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel


class AnyPython(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class WithProgram(Distribution):
    def has_ext_modules(self):
        return True


setup(cmdclass={"bdist_wheel": AnyPython}, distclass=WithProgram)
