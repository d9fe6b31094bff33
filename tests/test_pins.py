"""The pins are those of uv.lock, which uv has made from pyproject.toml. Nothing here needs uv."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
EXTRA = "dev"
ENVIRONMENTS = {
    "linux": {"sys_platform": "linux", "platform_machine": "x86_64"},
    "mac": {"sys_platform": "darwin", "platform_machine": "arm64"},
    "windows": {"sys_platform": "win32", "platform_machine": "AMD64"},
}


def pins() -> list[Requirement]:
    lines = (ROOT / "requirements" / "pinned.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line.strip() and not line.lstrip().startswith("#")]


def version_of(pin: Requirement) -> str:
    (specifier,) = pin.specifier
    assert specifier.operator == "=="
    return specifier.version


def locked(environment: dict[str, str]) -> set[tuple[str, str]]:
    """Names and versions of what the package and its extra need in an environment, by uv.lock."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    (root,) = [package for package in packages if package["name"] == "transformer-jax"]
    found: set[tuple[str, str]] = set()
    seen: set[tuple[str, str | None, str]] = set()

    def add(dependencies: list[dict[str, Any]]) -> None:
        for each in dependencies:
            if "marker" in each and not Marker(each["marker"]).evaluate(environment):
                continue
            (package,) = [
                one for one in packages if one["name"] == each["name"] and each.get("version") in (None, one["version"])
            ]
            for extra in ("", *each.get("extra", ())):
                key = package["name"], package["version"], extra
                if key not in seen:
                    seen.add(key)
                    add(
                        package.get("optional-dependencies", {}).get(extra, [])
                        if extra
                        else package.get("dependencies", [])
                    )
            found.add((package["name"], package["version"]))

    add(root["dependencies"] + root["optional-dependencies"][EXTRA])
    return found


@pytest.mark.parametrize("version", ["3.12", "3.13"])
@pytest.mark.parametrize("system", ENVIRONMENTS)
def test_the_pins_are_what_the_lock_installs(system, version):
    names = {"linux": "Linux", "mac": "Darwin", "windows": "Windows"}
    environment = ENVIRONMENTS[system] | {"python_version": version, "python_full_version": f"{version}.0"}
    environment |= {"platform_system": names[system], "os_name": "nt" if system == "windows" else "posix"}
    pinned = {(pin.name, version_of(pin)) for pin in pins() if pin.marker is None or pin.marker.evaluate(environment)}
    assert pinned == locked(environment), "uv lock && make pins"


def test_the_pins_satisfy_the_package_and_its_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = {pin.name: version_of(pin) for pin in pins()}
    wanted, extras = [Requirement(text) for text in project["dependencies"]], {EXTRA}
    while extras:
        for text in project["optional-dependencies"][extras.pop()]:
            requirement = Requirement(text)
            if canonicalize_name(requirement.name) == "transformer-jax":
                extras |= requirement.extras
            else:
                wanted.append(requirement)
    assert [
        str(each) for each in wanted if not each.specifier.contains(versions.get(canonicalize_name(each.name), "0"))
    ] == []
