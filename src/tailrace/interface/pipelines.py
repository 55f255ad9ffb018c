"""`/api/v1/pipelines`: how the pipelines of the server's sources are."""

import logging
import math
from http import HTTPStatus

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tailrace.access.principal import Capability
from tailrace.delivery.http.answer import json_answer
from tailrace.delivery.http.gate import principal_of
from tailrace.interface.bulk.log import refusal
from tailrace.meta.pipeline import Stage
from tailrace.meta.pipeline_status import PipelinesResult, PipelineStatus
from tailrace.metrics import PipelineGauges
from tailrace.model.errors import MetadataError, TailraceError
from tailrace.subscription.pipelines import Pipelines

__all__ = ["look_at", "pipeline_routes"]

logger = logging.getLogger(__name__)

_PATH = "/api/v1/pipelines"


def pipeline_routes(pipelines: Pipelines) -> list[Route]:
    """Return the routes that tell how pipelines are."""

    async def tell_all(request: Request) -> Response:
        principal = principal_of(request.scope)
        try:
            principal.require(Capability.READ)
            found = PipelinesResult(await pipelines.seen(principal))
        except TailraceError as error:
            return refusal(error)
        return json_answer(HTTPStatus.OK, msgspec.json.encode(found))

    async def tell(request: Request) -> Response:
        principal = principal_of(request.scope)
        try:
            principal.require(Capability.READ)
            found = await pipelines.get(principal, request.path_params["name"])
        except TailraceError as error:
            return refusal(error)
        return json_answer(HTTPStatus.OK, msgspec.json.encode(found))

    return [Route(_PATH, tell_all, methods=["GET"]), Route(f"{_PATH}/{{name}}", tell, methods=["GET"])]


async def look_at(pipelines: Pipelines, gauges: PipelineGauges) -> None:
    """Show how all pipelines are now; nothing where the metadata database does not say."""
    try:
        found = await pipelines.all()
    except MetadataError as error:
        logger.warning("pipelines not known", extra={"problem": str(error)})
        found = []
    gauges.show({one.name: _figures(one) for one in found})


def _figures(one: PipelineStatus) -> dict[str, float]:
    return {
        "stage": Stage[one.stage.upper()],
        "offset": one.offset,
        "lag_changes": math.nan if one.lag is None else one.lag,
        "lag_seconds": math.nan if one.lag_s is None else one.lag_s,
        "rows_copied": one.rows_copied,
        "rows_planned": one.rows,
        "rows_per_second": one.rows_per_s,
        "changes_per_second": one.changes_per_s,
        "batches": one.batches,
        "batch_changes": one.batch_changes,
        "batch_seconds": one.batch_s,
        "problem": bool(one.problem),
        "owned": bool(one.owner),
        "paused": one.state == "paused",
    }
