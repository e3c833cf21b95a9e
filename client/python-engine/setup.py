"""The wheel's tag: for this Python, or for 3.12 and newer, if the extension is."""

from pathlib import Path

from setuptools import Distribution, setup


class WithExtension(Distribution):
    def has_ext_modules(self):
        return True


is_stable = Path("src/attention_engine/_native.abi3.so").exists()
stable = {"py_limited_api": "cp312"} if is_stable else {}
setup(distclass=WithExtension, options={"bdist_wheel": stable})
