"""The paths of the REST API, and the rule of each."""

from __future__ import annotations

from collections.abc import Callable

from kctl.schemas.refusals import method_not_allowed, path_not_found
from kctl.schemas.rules import deleting, reading, registering, settings
from kctl.schemas.rules.registry import Registry
from kctl.schemas.rules.request import Answer, Request
from kctl.schemas.subjects import DEFAULT_CONTEXT, subject_name

Rule = Callable[..., Answer]
_ANY = "*"
_VERSION = ("subjects", _ANY, "versions", _ANY)

ROUTES: dict[tuple[str, ...], dict[str, Rule]] = {
    (): {"GET": reading.get_root},
    ("subjects",): {"GET": reading.list_subjects},
    ("subjects", _ANY): {"POST": registering.look_up, "DELETE": deleting.delete_subject},
    ("subjects", _ANY, "versions"): {"GET": reading.list_versions, "POST": registering.register},
    _VERSION: {"GET": reading.get_version, "DELETE": deleting.delete_version},
    (*_VERSION, "schema"): {"GET": reading.get_version_text},
    (*_VERSION, "referencedby"): {"GET": reading.list_referrers},
    ("schemas",): {"GET": reading.list_schemas},
    ("schemas", "types"): {"GET": reading.list_types},
    ("schemas", "ids", _ANY): {"GET": reading.get_schema},
    ("schemas", "ids", _ANY, "schema"): {"GET": reading.get_schema_text},
    ("schemas", "ids", _ANY, "subjects"): {"GET": reading.list_schema_subjects},
    ("schemas", "ids", _ANY, "versions"): {"GET": reading.list_schema_versions},
    ("compatibility", "subjects", _ANY, "versions"): {"POST": registering.test_subject},
    ("compatibility", "subjects", _ANY, "versions", _ANY): {"POST": registering.test_version},
    ("config",): {"GET": settings.get_config, "PUT": settings.set_config, "DELETE": settings.delete_config},
    ("config", _ANY): {"GET": settings.get_config, "PUT": settings.set_config, "DELETE": settings.delete_config},
    ("mode",): {"GET": settings.get_mode, "PUT": settings.set_mode, "DELETE": settings.delete_mode},
    ("mode", _ANY): {"GET": settings.get_mode, "PUT": settings.set_mode, "DELETE": settings.delete_mode},
    ("contexts",): {"GET": reading.list_contexts},
}


def answer(registry: Registry, request: Request) -> Answer:
    """Return the response, and the records that it needs.  Raises Refused."""
    request = _in_context(request)
    for pattern, rules in ROUTES.items():
        if len(pattern) == len(request.path) and all(
            wanted in {_ANY, given} for wanted, given in zip(pattern, request.path, strict=True)
        ):
            if request.method not in rules:
                raise method_not_allowed()
            named = [given for wanted, given in zip(pattern, request.path, strict=True) if wanted == _ANY]
            return rules[request.method](registry, request, *named)
    raise path_not_found()


def _in_context(request: Request) -> Request:
    """Return the request of a path below /contexts/CONTEXT, as one with names of that context."""
    match request.path:
        case ("contexts", name, first, *rest) if first in {"subjects", "schemas", "config", "mode", "compatibility"}:
            context = f":{name.strip(':') if name.startswith(':') else name}:"
        case _:
            return request
    if not context.startswith(f":{DEFAULT_CONTEXT}"):
        raise path_not_found()
    path, query = [first, *rest], dict(request.query)
    place = 2 if first == "compatibility" else 1
    if first == "schemas":
        query["subject"] = context + subject_name(query.get("subject", "")).subject
        query["subjectPrefix"] = context + query.get("subjectPrefix", "")
    elif len(path) > place:
        path[place] = context + path[place]
    elif first in {"config", "mode"}:
        path.append(context)
    else:
        query["subjectPrefix"] = context + query.get("subjectPrefix", "")
    return request._replace(path=tuple(path), query=query)
