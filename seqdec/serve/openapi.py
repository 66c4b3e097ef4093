"""The OpenAPI document of the calls."""

from collections.abc import Sequence
from typing import Any

from pydantic.json_schema import models_json_schema

from seqdec.serve.calls import Call
from seqdec.serve.messages import Refusal

_PLACE = "#/components/schemas/{model}"


def openapi(calls: Sequence[Call]) -> dict[str, Any]:
    """OpenAPI 3.1, as a dict."""
    models = dict.fromkeys(model for call in calls for model in (call.takes, call.answers) if model is not None)
    _, schemas = models_json_schema([(model, "validation") for model in [*models, Refusal]], ref_template=_PLACE)
    paths: dict[str, Any] = {}
    for call in calls:
        paths.setdefault(call.path, {})["get" if call.takes is None else "post"] = _operation(call)
    return {
        "openapi": "3.1.0",
        "info": {"title": "seqdec", "version": "1"},
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(call: Call) -> dict[str, Any]:
    content = "application/json" if call.answers is not None else "application/vnd.apache.parquet"
    answer = _schema(call.answers) if call.answers is not None else {"type": "string", "format": "binary"}
    refusal = {"description": "refused: why", "content": {"application/json": {"schema": _schema(Refusal)}}}
    found: dict[str, Any] = {
        "operationId": call.name,
        "summary": call.summary,
        "responses": {"200": {"description": "done", "content": {content: {"schema": answer}}}, "default": refusal},
    }
    if "{deployment}" in call.path:
        name = {"name": "deployment", "in": "path", "required": True, "schema": {"type": "string"}}
        found["parameters"] = [name]
    if call.takes is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": _schema(call.takes)}}}
    if call.right is not None:
        found["security"] = [{"key": []}]
        found["x-right"] = call.right
    return found


def _schema(model: Any) -> dict[str, str]:
    return {"$ref": _PLACE.format(model=model.__name__)}
