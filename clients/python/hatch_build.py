"""Makes the messages and stubs from the protocol's files, as the package `quire_wire`."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from grpc_tools import protoc
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAMES = ["bookstore.proto", "kv.proto"]
DEFAULT_POOL = "_descriptor_pool.Default()"
INIT = '''"""Messages and stubs, generated, in a descriptor pool of their own."""

from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
'''


class ProtocolHook(BuildHookInterface[Any]):
    """Runs protoc before a wheel is put together."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Generate, and name the result as a part of the wheel."""
        del version
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        is_packed = (root / "proto").is_dir()
        sources = root / "proto" if is_packed else root.parent.parent / "proto"
        out = root / "build" if is_packed else root.parent.parent / "target/clients/python/generated"
        out.mkdir(parents=True, exist_ok=True)
        includes = [f"-Iquire_wire={sources}", f"-I{files('grpc_tools') / '_proto'}"]
        outputs = [f"--{kind}_out={out}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
        if protoc.main(["protoc", *includes, *outputs, *(f"quire_wire/{name}" for name in NAMES)]):
            raise RuntimeError(f"protoc failed for {sources}")
        # A pool of its own: a program may have the stock messages as well.
        for made in (out / "quire_wire").glob("*_pb2.py"):
            text = made.read_text()
            if text.count(DEFAULT_POOL) != 1:
                raise RuntimeError(f"{made} does not register its messages as expected")
            made.write_text(text.replace(DEFAULT_POOL, "__import__('quire_wire').POOL"))
        (out / "quire_wire/__init__.py").write_text(INIT)
        (out / "quire_wire/py.typed").touch()
        build_data["force_include"][str(out / "quire_wire")] = "quire_wire"
