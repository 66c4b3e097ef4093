"""Encoders of an agent's contexts: what a log says of the ones that it was written with."""

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces as gym_spaces

from seqdec.features import Encoder
from seqdec.service.catalog import ITEM, USER, Catalog
from seqdec.service.contexts import WHOLE


def checked(encoder: Any, space: gym_spaces.Space, catalog: Catalog | None) -> Encoder | None:
    """The encoder of contexts of a space; None for contexts that are observations themselves.

    Raises:
        TypeError: not an encoder, or one beside a catalog.
        ValueError: it encodes to another space.
    """
    if encoder is None:
        return None
    if not isinstance(encoder, Encoder):
        raise TypeError(f"encoder must be a seqdec.features.Encoder; got {encoder!r:.80}")
    if catalog is not None:
        raise TypeError("a catalog has encoders of its own: Catalog(item=encoder, user=encoder), without encoder=")
    if encoder.space != space:
        raise ValueError(
            f"the observation space must be that of the encoder, encoder.space, of {len(encoder.names)} features; got "
            f"{space!r:.200}"
        )
    return encoder


def described(encoders: Encoder | Mapping[str, Encoder] | None) -> Any:
    """An encoder as JSON values: its JSON form, or the columns and features of one that has none.

    Of the encoders of a catalog a dict, by the parts of a row.
    """
    if not encoders:
        return None
    if isinstance(encoders, Mapping):
        return {name: described(encoder) for name, encoder in encoders.items()}
    if encoders.kinds:
        return encoders.to_json()
    return {"columns": list(encoders.columns), "features": list(encoders.names)}


def difference(before: Any, here: Any) -> str | None:
    """In what two encoders, or those of two catalogs, as `described`, differ; None where they are equal."""
    if before == here:
        return None
    for part in (ITEM, USER):
        old, new = (of_part(description, part) for description in (before, here))
        if old != new:
            return f"{difference(old, new)} of each {part}"
    columns = [_columns(each) for each in (before, here)]
    if not all(columns):
        return "without an encoder" if before is None else "with an encoder"
    names = [name for name in {**columns[0], **columns[1]} if columns[0].get(name) != columns[1].get(name)]
    return f"with an encoder that has another {', '.join(names) or 'order of columns'}"


def names(description: Any) -> dict[str, list[str]]:
    """The names of features by the field of a record, as far as encoders tell them."""
    if description is None:
        return {}
    if isinstance(description, str):
        return {WHOLE: list(Encoder.from_json(description).names)}
    if "columns" in description:
        return {WHOLE: description["features"]}
    return {part: [f"{part} {name}" for name in names(one)[WHOLE]] for part, one in description.items()}


def of_part(description: Any, part: str) -> Any:
    """The encoder of a part of a catalog's rows."""
    return description.get(part) if isinstance(description, Mapping) else None


def _columns(description: Any) -> dict[str, Any]:
    """What is known of each column, by name."""
    if isinstance(description, str):
        return {name: repr(kind) for name, kind in Encoder.from_json(description).kinds.items()}
    if description is None:
        return {}
    return dict.fromkeys(description["columns"], description["features"])
