"""Results as a pandas DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from smoothcert.errors import SmoothcertError, UsageError, quote, takes
from smoothcert.results.records import Prediction, Record, Results

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]


@takes(results=(Results, Iterable))
def to_frame(results: Results | Sequence[Record] | Sequence[Prediction]) -> pandas.DataFrame:
    """Convert results to a pandas DataFrame with one row per image. Requires pandas.

    Args:
        results: The return value of `read_results`, `certify_dataset` or `predict_dataset`.

    Returns:
        A frame with the columns of a results file, except that `time` is called `seconds`. If `results` comes from
        `certify_dataset` or `predict_dataset`, the frame also contains the votes.

    Raises:
        UsageError: If `results` has another type.
        SmoothcertError: If pandas is not installed.

    Example:
        >>> frame = to_frame([Record(7, 1, 1, 0.5, 2.0, [0, 10], [2, 98])])
        >>> frame[["idx", "predict", "radius"]].values.tolist()
        [[7.0, 1.0, 0.5]]
    """
    try:
        import pandas
    except ImportError as error:
        raise SmoothcertError("`to_frame` needs pandas: `pip install pandas`.") from error
    if isinstance(results, Results):
        return pandas.DataFrame(
            {name: column for name, column in vars(results).items() if name not in ("name", "about")}
        )
    records: list[Any] = list(results)
    if other := [record for record in records if not isinstance(record, Record | Prediction)]:
        sources = "`certify_dataset` or `predict_dataset`"
        raise UsageError(f"Expected `results` to contain records from {sources}, but got {quote(other[0])}.")
    rows: list[dict[str, Any]] = [{**vars(record), "correct": bool(record.correct)} for record in records]
    return pandas.DataFrame(rows)
