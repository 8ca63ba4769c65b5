"""Takes each artifact of `make dist`, and each source folder, into an empty project, with its ecosystem's own tools, and buys a book there.

The project has the stock messages of the same protocol as well: both must live in one process.
"""

import argparse
import concurrent.futures
import functools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from servers import Quire

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIST = ROOT / "target/dist"
PROTO = ROOT / "proto"
CLIENTS = ROOT / "target/clients"
# One may wait for the network while another compiles.
AT_ONCE = 2
BOUGHT = "bought: bookstore.Book"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("languages", nargs="*", metavar="LANGUAGE", help="all if none is named")
    parser.add_argument("--quire", type=pathlib.Path, default=ROOT / "target/debug/quire", help="the server's program")
    arguments = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="quire-install-") as name:
        folder = pathlib.Path(name)
        server = Quire(arguments.quire.absolute(), folder / "server", {})
        try:
            with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
                running = {pool.submit(bought, way, folder / way.replace(" ", "-"), server.address)
                           for way in PROJECTS if way.split()[0] in (arguments.languages or way)}
                for done in concurrent.futures.as_completed(running):
                    failed += not done.result()
        finally:
            server.stop()
    return 1 if failed else 0


def bought(way: str, project: pathlib.Path, address: str) -> bool:
    """Buys a book in a project that has the library in this way, and prints how that went."""
    begin = time.monotonic()
    project.mkdir()
    try:
        said = PROJECTS[way](project, address)
    except (Failed, subprocess.TimeoutExpired) as failure:
        said = str(failure)
    good = BOUGHT in said
    print(f"{way}: {'installed, and bought a book' if good else f'FAILED: {said}'} in {time.monotonic() - begin:.0f} s", flush=True)
    return good


class Failed(Exception):
    """A program that failed, with its output."""


def run(folder: pathlib.Path, *words: str | pathlib.Path, **more: str) -> str:
    """Output of a program in the project's folder."""
    done = subprocess.run(words, cwd=folder, env={**os.environ, **more}, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def artifact(pattern: str) -> pathlib.Path:
    found = list(DIST.glob(pattern))
    if len(found) != 1:
        raise Failed(f"{DIST} has {len(found)} files {pattern}; `make dist` makes one")
    return found[0]


def python(project: pathlib.Path, address: str, source: bool = False) -> str:
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
            + run(project, "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check",
                  ROOT / "clients/python" if source else artifact("quire_bookstore-*.whl"))
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


FETCHED = """include(FetchContent)
FetchContent_Declare(Quire SOURCE_DIR "${CMAKE_SOURCE_DIR}/library")
FetchContent_MakeAvailable(Quire)
"""


def cpp(project: pathlib.Path, address: str, source: bool = False) -> str:
    (project / "CMakeLists.txt").write_text(f"""
cmake_minimum_required(VERSION 3.25)
project(buyer CXX)
{FETCHED if source else "find_package(Quire 0.1 REQUIRED)"}
add_executable(buyer main.cc bookstore.pb.cc)
target_link_libraries(buyer PRIVATE Quire::quire)
""")
    (project / "main.cc").write_text(f"""
#include <quire/client.h>

#include <iostream>

#include "bookstore.pb.h"

int main() {{
  const quire::Client client({{.addresses = quire::Address::parse_list("{address}")}});
  const quire::Purchase purchase = client.buy(53573);
  if (std::holds_alternative<quire::Bought>(purchase.outcome)) {{
    std::cout << "bought: " << bookstore::Book::descriptor()->full_name() << '\\n';
  }}
}}
""")
    # Few translation units, not optimised: they are built for a single purchase.
    build = ["-G", "Ninja", "--log-level=WARNING", "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_UNITY_BUILD=ON"]
    run(project, "protoc", f"-I{PROTO}", "--cpp_out=.", "bookstore.proto")
    run(project, "tar", "-xzf", artifact("quire-cpp-*.tar.gz"), "--one-top-level=library", "--strip-components=1")
    if not source:
        run(project, "cmake", "-S", "library", "-B", "built", *build, "-DQUIRE_PROGRAMS=OFF", "-DQUIRE_TESTS=OFF")
        run(project, "cmake", "--build", "built")
        run(project, "cmake", "--install", "built", "--prefix", "installed")
    return (run(project, "cmake", "-S", ".", "-B", "buyer", *build, "-DCMAKE_PREFIX_PATH=installed")
            + run(project, "cmake", "--build", "buyer")
            + run(project, "buyer/buyer"))


def java(project: pathlib.Path, address: str, source: bool = False) -> str:
    (project / "pom.xml").write_text("""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>example.buyer</groupId>
  <artifactId>buyer</artifactId>
  <version>1</version>
  <properties>
    <maven.compiler.release>17</maven.compiler.release>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
    <dependency>
      <groupId>example.quire</groupId>
      <artifactId>quire-client</artifactId>
      <version>0.1.0</version>
    </dependency>
  </dependencies>
  <build>
    <plugins>
      <plugin>
        <artifactId>maven-compiler-plugin</artifactId>
        <version>3.16.0</version>
      </plugin>
      <plugin>
        <groupId>io.github.ascopes</groupId>
        <artifactId>protobuf-maven-plugin</artifactId>
        <version>3.10.2</version>
        <configuration><protocVersion>4.36.2</protocVersion></configuration>
        <executions><execution><goals><goal>generate</goal></goals></execution></executions>
      </plugin>
    </plugins>
  </build>
</project>
""")
    stock, source = project / "src/main/protobuf/bookstore.proto", project / "src/main/java/Buyer.java"
    stock.parent.mkdir(parents=True)
    shutil.copy(PROTO / "bookstore.proto", stock)
    source.parent.mkdir(parents=True)
    source.write_text(f"""
import bookstore.Bookstore.Book;
import quire.client.BuyOutcome;
import quire.client.QuireClient;

public class Buyer {{
  public static void main(String[] words) {{
    try (QuireClient client = QuireClient.connect("{address}")) {{
      if (client.buy(53573) instanceof BuyOutcome.Bought) {{
        System.out.println("bought: " + Book.getDescriptor().getFullName());
      }}
    }}
  }}
}}
""")
    # A local repository of its own for our artifact; all that others publish is shared with the user's.
    repository = project / "repository"
    repository.mkdir()
    for group in (pathlib.Path.home() / ".m2/repository").iterdir():
        if group.name != "example":
            (repository / group.name).symlink_to(group)
    maven = ["mvn", "--quiet", "--batch-mode", f"-Dmaven.repo.local={repository}"]
    if source:
        run(ROOT / "clients/java", *maven, "install", "-pl", "library", "-DskipTests")
    else:
        parts = {"file": ".jar", "sources": "-sources.jar", "javadoc": "-javadoc.jar", "pomFile": ".pom"}
        files = [f"-D{part}={artifact(f'quire-client-[0-9].[0-9].[0-9]{ending}')}" for part, ending in parts.items()]
        run(project, *maven, "install:install-file", *files)
    return (run(project, *maven, "compile", "dependency:copy-dependencies")
            + run(project, "java", "-cp", "target/classes:target/dependency/*", "Buyer"))


def rust(project: pathlib.Path, address: str, source: bool = False) -> str:
    crates = [] if source else sorted(DIST.glob("*.crate"))
    for crate in crates:
        run(project, "tar", "-xzf", crate)
    patches = [f'{crate.stem.rpartition("-")[0]} = {{ path = "{crate.stem}" }}' for crate in crates]
    # Versions, features and profile as `make clients` has them: what both need is compiled once.
    workspace = (ROOT / "Cargo.toml").read_text()
    shutil.copy(ROOT / "Cargo.lock", project)
    (project / "Cargo.toml").write_text("""[package]
name = "buyer"
edition = "2024"

[dependencies]
prost = { version = "0.14", default-features = false }
""" + ("" if source else 'quire-client = { version = "0.1", features = ["cli"] }\n') + """tokio = { version = "1", features = ["io-std", "io-util", "macros", "rt-multi-thread", "signal"] }

[build-dependencies]
prost-build = { version = "0.14", default-features = false }
protox = { version = "0.10", default-features = false }

[patch.crates-io]
""" + "\n".join(patches) + "\n\n" + workspace[workspace.index("[profile.dev]"):])
    (project / "build.rs").write_text(f"""
fn main() {{
    let stock = protox::compile(["bookstore.proto"], ["{PROTO}"]).unwrap();
    prost_build::Config::new().enable_type_names().compile_fds(stock).unwrap();
}}
""")
    (project / "src").mkdir()
    (project / "src/main.rs").write_text(f"""
use prost::Name as _;
use quire_client::{{Client, Error, Order, Outcome}};

mod stock {{
    include!(concat!(env!("OUT_DIR"), "/bookstore.rs"));
}}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {{
    let purchase = Client::connect("{address}")?.buy(Order::of(53573)).await?;
    if let Outcome::Bought {{ .. }} = purchase.outcome {{
        println!("bought: {{}}", stock::Book::full_name());
    }}
    Ok(())
}}
""")
    if source:
        run(project, "cargo", "add", "--quiet", "quire-client", "--path", ROOT / "clients/rust", "--features", "cli")
    return run(project, "cargo", "run", "--quiet", CARGO_TARGET_DIR=str(CLIENTS / "rust/cargo"))


# The language, and how its library comes into the project; without a word, from the artifact.
PROJECTS: dict[str, Callable[[pathlib.Path, str], str]] = {
    "cpp": cpp, "go": go, "java": java, "python": python, "rust": rust, "typescript": typescript,
    "cpp by FetchContent": functools.partial(cpp, source=True),
    "java by mvn install": functools.partial(java, source=True),
    "python from its folder": functools.partial(python, source=True),
    "rust by path": functools.partial(rust, source=True),
}

if __name__ == "__main__":
    sys.exit(main())
