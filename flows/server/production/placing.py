"""Register the deployments on several work pools: one for machines with a GPU, one for those without."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardmill.flows.server.deployments import Deploying, make_pool, prefect_file
from shardmill.infra.errors import UsageError


def placed(default: str, others: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of infra/deploy/prefect.yaml with other work pools.

    Args:
        default: the work pool of each deployment that ``others`` does not name.
        others: name of a deployment -> its work pool.

    Raises:
        UsageError: there is no deployment of such a name.
    """
    described = _described()
    names = [deployment["name"] for deployment in described["deployments"]]
    for unknown in sorted(others.keys() - set(names)):
        raise UsageError(f"there is no deployment {unknown}", f"one of: {', '.join(names)}")
    for deployment in described["deployments"]:
        deployment["work_pool"] |= {"name": others.get(deployment["name"], default)}
    return described


def deploy(described: Mapping[str, Any], kind: str) -> list[str]:
    """Register deployments at the server of this environment; return the work pools that were created.

    Args:
        described: as ``placed`` returns it.
        kind: type of the work pools that do not exist: "process", "docker" or "kubernetes".

    Raises:
        EnvironmentFault: Prefect refused.
    """
    import yaml

    pools = sorted({deployment["work_pool"]["name"] for deployment in described["deployments"]})
    created = [pool for pool in pools if make_pool(pool, kind)]
    with tempfile.TemporaryDirectory(prefix="shardmill-deploy-") as folder:
        copy, log = Path(folder) / "prefect.yaml", Path(folder) / "deploy.log"
        copy.write_text(yaml.safe_dump(dict(described)))
        with Deploying({}, log, copy) as deploying:
            deploying.finish()
    return created


def _described() -> dict[str, Any]:
    import yaml

    described: dict[str, Any] = yaml.safe_load(prefect_file().read_text())
    return described
