"""Encoders of an agent's contexts: what a log says of the one that it was written with."""

from typing import Any

from gymnasium import spaces as gym_spaces

from seqdec.features import Encoder


def checked(encoder: Any, space: gym_spaces.Space) -> Encoder | None:
    """The encoder of contexts of a space; None for contexts that are observations themselves.

    Raises:
        TypeError: not an encoder.
        ValueError: it encodes to another space.
    """
    if encoder is None:
        return None
    if not isinstance(encoder, Encoder):
        raise TypeError(f"encoder must be a seqdec.features.Encoder; got {encoder!r:.80}")
    if encoder.space != space:
        raise ValueError(
            f"the observation space must be that of the encoder, encoder.space, of {len(encoder.names)} features; got "
            f"{space!r:.200}"
        )
    return encoder


def described(encoder: Encoder | None) -> Any:
    """An encoder as JSON values: its JSON form, or the columns and features of one that has none."""
    if encoder is None:
        return None
    if encoder.kinds:
        return encoder.to_json()
    return {"columns": list(encoder.columns), "features": list(encoder.names)}


def difference(before: Any, here: Any) -> str | None:
    """In what two encoders, as `described`, differ; None where they are equal."""
    if before == here:
        return None
    columns = [_columns(each) for each in (before, here)]
    if not all(columns):
        return "without an encoder" if before is None else "with an encoder"
    names = [name for name in {**columns[0], **columns[1]} if columns[0].get(name) != columns[1].get(name)]
    return f"with an encoder that has another {', '.join(names) or 'order of columns'}"


def _columns(description: Any) -> dict[str, Any]:
    """What is known of each column, by name."""
    if isinstance(description, str):
        return {name: repr(kind) for name, kind in Encoder.from_json(description).kinds.items()}
    if description is None:
        return {}
    return dict.fromkeys(description["columns"], description["features"])
