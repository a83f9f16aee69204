"""The two files of the wheel that do not lie where pyproject.toml's `sources` would put them."""

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version, build_data):
        if version == "standard":  # an editable install finds them in the checkout
            for name in ("__init__.py", "__main__.py"):
                build_data["force_include"][f"reasoningbank_harness/{name}"] = name
