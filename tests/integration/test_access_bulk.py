"""Facts about who may read a source in bulk."""

import pytest

from tailrace.access.options import AuthConfig, PrincipalConfig
from tailrace.model.op import Op
from web import web

AUTH = AuthConfig(
    enabled=True,
    tokens=("master",),
    principals={
        "ann": PrincipalConfig(tokens=("ann-key",), namespaces=("app",), role="viewer"),
        "mia": PrincipalConfig(tokens=("mia-key",), rows={"app.users": "name = 'mine'"}),
        "tim": PrincipalConfig(tokens=("tim-key",), tables=("app.others",)),
        "far": PrincipalConfig(tokens=("far-key",), namespaces=("acme",)),
        "nil": PrincipalConfig(tokens=("nil-key",), capabilities=("nothing",)),
    },
)
PATHS = ("", "/cuts?after=0", "/changes?after=0")


@pytest.fixture
async def world():
    async with web(auth=AUTH) as served:
        await served.append(Op.INSERT)
        yield served


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("token", "status"),
    [("master", 200), ("ann-key", 200), ("mia-key", 403), ("tim-key", 403), ("far-key", 403), ("nil-key", 403)],
)
async def test_a_source_is_read_in_bulk_by_those_who_see_all_of_it(world, path, token, status):
    answer = await world.client.get(f"/api/v1/bulk/app{path}", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == status
    if status == 403:
        assert answer.json()["error"]["code"] == "forbidden"


@pytest.mark.parametrize("path", PATHS)
async def test_who_has_no_credentials_reads_nothing_in_bulk(world, path):
    assert (await world.client.get(f"/api/v1/bulk/app{path}")).status_code == 401


async def test_a_source_that_is_not_reached_is_refused_like_one_that_is_not_there(world):
    answers = [
        await world.client.get(f"/api/v1/bulk/{source}", headers={"Authorization": "Bearer far-key"})
        for source in ("app", "none")
    ]
    assert [answer.status_code for answer in answers] == [403, 403]
    app, none = (answer.json()["error"]["message"] for answer in answers)
    assert app.replace("app", "none") == none
