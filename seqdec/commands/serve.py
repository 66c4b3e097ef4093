"""The decision service, from a file of settings."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from seqdec.persistence import located

_EXAMPLE = """# Two deployments of `seqdec serve`. A request names its deployment: POST /v1/banners/decide

[server]
folder = "data"        # logs and snapshots: back this folder up
host = "127.0.0.1"     # another address needs keys
port = 8000

# Keys: seqdec serve --new-key prints one and its SHA-256; two are valid while they rotate.
# [keys.shop]
# sha256 = ["..."]
# role = "decider"     # decide, learn; "reader": look, explain, take the log; "operator": all
# deployments = ["banners"]

[deployments.banners]  # arms with names, contexts of declared columns
arms = ["sale", "news", "none"]
agent = "auto"

[deployments.banners.context.columns]
age = { kind = "numeric", low = 18, high = 90 }
city = { kind = "categorical", levels = ["Oslo", "Rome"] }
member = { kind = "bool" }
query = { kind = "text", buckets = 32 }

[deployments.banners.rewards]  # a click within half an hour, or nothing
low = 0
high = 1
default = 0
window = 1800

[deployments.price]    # a number from 5 to 20, several rewards
box = { low = [5.0], high = [20.0] }
context = { size = 3, low = 0, high = 1 }
agent = "linear"

[deployments.price.rewards]
window = 86400

[deployments.price.rewards.names]
bought = { weight = 1.0, default = 0, low = 0, high = 1 }
revenue = { weight = 0.05, default = 0, low = 0 }
"""


@dataclass(frozen=True)
class Serve:
    """Serve the deployments of a file of settings over HTTP, until SIGTERM or Ctrl-C; see docs/serve.md."""

    file: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE")] = Path("seqdec.toml")
    """Settings, in TOML."""
    port: int | None = None
    """Port, instead of the one in the settings; for several servers on one machine."""
    init: bool = False
    """Write an example with two deployments to FILE, and exit."""
    new_key: bool = False
    """Print an API key and its SHA-256 for the settings, and exit."""

    def execute(self, *, trust: bool = False) -> None:
        """Raises ValueError for settings that cannot be served, OSError."""
        file = located(self.file)
        if self.init:
            if file.exists():
                raise FileExistsError(
                    f"{file} exists already; choose another name, or start it with seqdec serve {self.file}"
                )
            file.write_text(_EXAMPLE, encoding="utf-8")
            return print(f"{file} is an example with two deployments. Start it with seqdec serve {self.file}")
        if not self.new_key and not file.is_file():
            what = f"{file} is a folder" if file.is_dir() else f"no such file: {file}"
            raise FileNotFoundError(f"{what}. Pass a file of settings; seqdec serve --init shop.toml writes an example")
        from seqdec import serve
        from seqdec.serve.access import new_key

        if self.new_key:
            key, digest = new_key()
            return print(f"key, for the caller:        {key}\nsha256, for the settings:   {digest}")
        serve.run(serve.read(file, self.port), trust=trust)
