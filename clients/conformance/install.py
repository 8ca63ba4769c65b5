"""Takes each artifact of `make dist` into an empty project, with its ecosystem's own tools, and buys a book there.

The project has the stock messages of the same protocol as well: both must live in one process.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable

from servers import Quire

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIST = ROOT / "target/dist"
PROTO = ROOT / "proto"
CLIENTS = ROOT / "target/clients"
BOUGHT = "bought: bookstore.Book"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("languages", nargs="*", metavar="LANGUAGE", help="all that have an artifact if none is named")
    parser.add_argument("--quire", type=pathlib.Path, default=ROOT / "target/debug/quire", help="the server's program")
    arguments = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="quire-install-") as name:
        folder = pathlib.Path(name)
        server = Quire(arguments.quire.absolute(), folder / "server", {})
        try:
            for language in arguments.languages or PROJECTS:
                if language not in PROJECTS:
                    continue
                project = folder / language
                project.mkdir()
                said = PROJECTS[language](project, server.address)
                failed += BOUGHT not in said
                print(f"{language}: {'installed, and bought a book' if BOUGHT in said else f'FAILED: {said}'}", flush=True)
        finally:
            server.stop()
    return 1 if failed else 0


def run(folder: pathlib.Path, *words: str | pathlib.Path, **more: str) -> str:
    """Output of a program in the project's folder; ends the test if it fails."""
    done = subprocess.run(words, cwd=folder, env={**os.environ, **more}, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"FAILED in {folder.name}: {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def artifact(pattern: str) -> pathlib.Path:
    found = list(DIST.glob(pattern))
    if len(found) != 1:
        raise SystemExit(f"{DIST} has {len(found)} files {pattern}; `make dist` makes one")
    return found[0]


def python(project: pathlib.Path, address: str) -> str:
    (project / "buyer.py").write_text(f"""
import bookstore_pb2
from quire_client import Bought, Client

with Client("{address}") as client:
    assert isinstance(client.buy(53573), Bought)
print("bought:", bookstore_pb2.Book.DESCRIPTOR.full_name)
""")
    tools = CLIENTS / "python/venv/bin/python"
    stock = ["-m", "grpc_tools.protoc", f"-I{PROTO}", "--python_out=.", "bookstore.proto"]
    return (run(project, tools, *stock)
            + run(project, sys.executable, "-m", "venv", "venv")
            + run(project, "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", artifact("quire_client-*.whl"))
            + run(project, "venv/bin/python", "buyer.py"))


def typescript(project: pathlib.Path, address: str) -> str:
    (project / "package.json").write_text('{"name":"buyer","private":true,"type":"module"}')
    (project / "buyer.js").write_text(f"""
import {{ connect }} from "quire-client";
import {{ BookSchema }} from "./bookstore_pb.js";

const store = connect("{address}");
const purchase = await store.buy(53573);
console.log(`${{purchase.outcome}}: ${{BookSchema.typeName}}`);
store.close();
""")
    (project / "page.js").write_text('import { connect } from "quire-client/web";\nglobalThis.store = connect("http://127.0.0.1");\n')
    tools = CLIENTS / "typescript/npm/node_modules/.bin"
    return (run(project, "protoc", f"-I{PROTO}", "--es_out=.", "--es_opt=target=js", "bookstore.proto",
                PATH=f"{tools}:{os.environ['PATH']}")
            + run(project, "npm", "install", "--silent", "--no-audit", "--no-fund", artifact("quire-client-*.tgz"))
            + run(project, tools / "esbuild", "page.js", "--bundle", "--outfile=page.bundle.js", "--log-level=warning")
            + run(project, "node", "buyer.js"))


def go(project: pathlib.Path, address: str) -> str:
    (project / "main.go").write_text(f"""package main

import (
	"context"
	"fmt"
	"log"

	"buyer.example/buyer/stock"
	"quire.example/quire"
)

func main() {{
	client, err := quire.New("{address}")
	if err != nil {{
		log.Fatal(err)
	}}
	defer client.Close()
	purchase, err := client.Buy(context.Background(), 53573)
	if err != nil || purchase.Outcome != quire.Bought {{
		log.Fatal(purchase, err)
	}}
	fmt.Println("bought:", (&stock.Book{{}}).ProtoReflect().Descriptor().FullName())
}}
""")
    (project / "library").mkdir()
    (project / "stock").mkdir()
    module = "quire.example/quire"
    return (run(project, "tar", "-xzf", artifact("quire-go-*.tar.gz"), "-C", "library")
            + run(project, "protoc", f"-I{PROTO}", "--go_out=stock", "--go_opt=paths=source_relative",
                  "--go_opt=Mbookstore.proto=buyer.example/buyer/stock", "bookstore.proto",
                  PATH=f"{CLIENTS / 'go/tools'}:{os.environ['PATH']}")
            + run(project, "go", "mod", "init", "buyer.example/buyer")
            + run(project, "go", "mod", "edit", f"-require={module}@v0.1.0", f"-replace={module}=./library")
            + run(project, "go", "mod", "tidy")
            + run(project, "go", "run", "."))


PROJECTS: dict[str, Callable[[pathlib.Path, str], str]] = {"go": go, "python": python, "typescript": typescript}

if __name__ == "__main__":
    sys.exit(main())
