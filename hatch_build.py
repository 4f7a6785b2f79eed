"""Ship the bill of materials with the source distribution: hatchling calls this when it builds one."""

import importlib.util
import json
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BillOfMaterials(BuildHookInterface):
    """Makes ``sbom.cdx.json`` from the pins."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Put the file among those of the sdist."""
        spec = importlib.util.spec_from_file_location("sbom", Path(self.root) / "tools" / "sbom.py")
        assert spec is not None
        assert spec.loader is not None
        sbom = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sbom)
        self._folder = tempfile.TemporaryDirectory()  # removed with this object, after the build
        file = Path(self._folder.name) / "sbom.cdx.json"
        file.write_text(json.dumps(sbom.bill(), indent=1) + "\n", encoding="utf-8")
        file.chmod(0o644)
        build_data["force_include"][str(file)] = "sbom.cdx.json"
