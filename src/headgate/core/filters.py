"""Filters: JSON expressions to PyIceberg's, and what files may or must match them.

*may match* = inclusive projection on the partition tuple AND inclusive statistics on the whole filter.
*must match* = strict statistics of the residual after the partition tuple decided what it can.
Missing statistics: may match, never must. Expressions come as JSON only, bounded in depth and size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from pydantic import ValidationError as PydanticValidationError
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundPredicate,
    BoundTerm,
    IsNaN,
    Not,
    NotNaN,
    NotStartsWith,
    Or,
    Reference,
    StartsWith,
    UnboundPredicate,
)
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import (
    ResidualEvaluator,
    _InclusiveMetricsEvaluator,  # the evaluators have no public names; the tests of the oracle hold them to Java
    _StrictMetricsEvaluator,
    bind,
    expression_evaluator,
    inclusive_projection,
    manifest_evaluator,
    rewrite_not,
)
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, FloatType, NestedField, PrimitiveType, StringType

from headgate.core.iceberg import partition_schema, to_schema, to_spec
from headgate.core.manifest import ContentFile, FieldSummary, ManifestFile, Metrics
from headgate.core.metrics_filter import UNREADABLE, MayMatchBounds, ask, prepare, prepare_bounds
from headgate.core.partitioning import PartitionSpec
from headgate.core.schema import Schema
from headgate.errors import BadInput, RequirementFailed

DEPTH_MAX = 64
NODES_MAX = 10_000
_PREPARED_MAX = 10_000
# What an expression that does not fit its schema makes PyIceberg raise.
_MISFITS = (PydanticValidationError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError)
_MEANT_FOR: tuple[tuple[tuple[type, ...], Any], ...] = (
    ((StartsWith, NotStartsWith), StringType),
    ((IsNaN, NotNaN), FloatType | DoubleType),
)


def parse_filter(raw: object, schema: Schema, *, field: str) -> BooleanExpression:
    """An expression of the specification, checked against the schema; None is everything."""
    if raw is None:
        return AlwaysTrue()
    check_size(raw, field=field)
    try:
        parsed = BooleanExpression.model_validate(raw)
        bind(to_schema(schema), parsed, case_sensitive=True)
        _check_terms(parsed, to_schema(schema))
    except _MISFITS as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(f"not a filter that fits the table: {text[:300]}", field=field) from error
    return parsed


def rename_terms(raw: object, *, old: Schema, new: Schema, field: str) -> object:
    """A filter that was written with the names of one schema, in those of another: columns are their ids."""
    if isinstance(raw, list):
        return [rename_terms(part, old=old, new=new, field=field) for part in raw]
    if not isinstance(raw, dict):
        return raw
    found = {name: rename_terms(part, old=old, new=new, field=field) for name, part in raw.items()}
    if isinstance(term := raw.get("term"), str):
        try:
            id_ = to_schema(old).find_field(term).field_id
        except ValueError:
            return found  # what does not fit the schema it was written for is refused when it is parsed
        renamed = to_schema(new).find_column_name(id_)
        if renamed is None:
            raise RequirementFailed(
                f"Requirement failed: column {term}, which the filter reads, was dropped", field=field
            )
        found["term"] = renamed
    return found


def _check_terms(parsed: BooleanExpression, schema: IcebergSchema) -> None:
    """What PyIceberg lets pass, and Java does not: predicates that their column can never be meant for."""
    match parsed:
        case And() | Or():
            _check_terms(parsed.left, schema)
            _check_terms(parsed.right, schema)
        case Not():
            _check_terms(parsed.child, schema)
        case UnboundPredicate():
            if not isinstance(parsed.term, Reference):
                raise TypeError("a term is the name of a column")
            column = schema.find_field(parsed.term.name)
            meant_for = next(
                (types for kinds, types in _MEANT_FOR if isinstance(parsed, kinds)), PrimitiveType
            )
            if not isinstance(column.field_type, meant_for):
                raise ValueError(f"{type(parsed).__name__} does not fit {column.name}, a {column.field_type}")
            schema.accessor_for_field(column.field_id)  # raises for what is inside a list or map
        case _:
            return


def check_size(raw: object, *, field: str) -> None:
    """Refuse a filter that is too deep or has too many parts, before anything walks it."""
    nodes, level = 0, [raw]
    for _ in range(DEPTH_MAX):
        nodes += len(level)
        if nodes > NODES_MAX:
            raise BadInput(f"the filter has more than {NODES_MAX} parts", field=field)
        deeper: list[object] = []
        for node in level:
            if isinstance(node, dict):
                deeper.extend(node.values())
            elif isinstance(node, list):
                deeper.extend(node)
        if not deeper:
            return
        level = deeper
    raise BadInput(f"the filter is nested deeper than {DEPTH_MAX} levels", field=field)


class _Residuals(ResidualEvaluator):
    """PyIceberg's residuals, for partition values that it does not compare: null never is in a range, NaN is above all."""

    def visit_less_than(self, term: BoundTerm, literal: Literal[Any]) -> BooleanExpression:
        return self._compare(term, lambda value: value < literal.value, nan=False)

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> BooleanExpression:
        return self._compare(term, lambda value: value <= literal.value, nan=False)

    def visit_greater_than(self, term: BoundTerm, literal: Literal[Any]) -> BooleanExpression:
        return self._compare(term, lambda value: value > literal.value, nan=True)

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> BooleanExpression:
        return self._compare(term, lambda value: value >= literal.value, nan=True)

    def _compare(self, term: BoundTerm, compare: Callable[[Any], bool], *, nan: bool) -> BooleanExpression:
        value = term.eval(self.struct)
        if value is None:
            return AlwaysFalse()
        holds = nan if _is_nan(value) else compare(value)
        return AlwaysTrue() if holds else AlwaysFalse()


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


class RowFilter:
    """One filter over the files of a table, of any of its specs. `raw` is the filter as the client sent it."""

    def __init__(
        self,
        expression: BooleanExpression,
        schema: Schema,
        specs: Mapping[int, PartitionSpec],
        *,
        raw: object = None,
    ) -> None:
        self.expression = expression
        self.raw = raw
        self._schema = schema
        self._specs = specs
        self._metrics_may_match = prepare(to_schema(schema), expression)
        self._partitions: dict[int, Callable[[Record], bool]] = {}
        self._partition_answers: dict[tuple[int, object], bool] = {}
        self._residuals: dict[int, _Residuals] = {}
        self._manifests: dict[int, _Summaries | None] = {}  # None: every manifest may hold something
        # Deciding is cheap and preparing is not; files of one partition share what was prepared.
        self._prepared: dict[
            tuple[object, ...], tuple[_InclusiveMetricsEvaluator, _StrictMetricsEvaluator]
        ] = {}

    def may_hold(self, manifest: ManifestFile) -> bool:
        """Whether the partition summaries of a manifest leave room for a file that matches."""
        spec_id, summaries = manifest.partition_spec_id, manifest.partitions
        if summaries is None:
            return True
        try:
            prepared = self._manifests[spec_id]
        except KeyError:
            prepared = self._manifests[spec_id] = self._prepare_summaries(spec_id)
        if prepared is None:
            return True
        found = prepared.answers.get(summaries)
        return prepared.judge(summaries) if found is None else found

    def _prepare_summaries(self, spec_id: int) -> _Summaries | None:
        spec = self._specs.get(spec_id)
        if spec is None:
            return None
        schema = to_schema(self._schema)
        projected = inclusive_projection(schema, to_spec(spec))(self.expression)
        if isinstance(projected, AlwaysTrue):  # the partitions say nothing about what is asked for
            return None
        columns = partition_schema(spec, self._schema)
        evaluate = manifest_evaluator(to_spec(spec), schema, projected)
        return _Summaries(columns.fields, prepare_bounds(columns, projected), evaluate)

    def may_match(self, file: ContentFile) -> bool:
        """Whether some row of the file may be in scope: the test of every conflict rule."""
        return self._metrics_may_match(file) and self._partition_may_match(file)

    def _partition_may_match(self, file: ContentFile) -> bool:
        key = (file.spec_id, file.partition)
        found = self._partition_answers.get(key)
        if found is None:
            found = self._judge_partition(file)
            if len(self._partition_answers) >= _PREPARED_MAX:
                self._partition_answers.clear()
            self._partition_answers[key] = found
        return found

    def _judge_partition(self, file: ContentFile) -> bool:
        if any(_is_nan(value) for _, value in file.partition):
            return True  # engines do not agree on how NaN compares
        found = self._partitions.get(file.spec_id)
        if found is None:
            spec = self._specs[file.spec_id]
            project = inclusive_projection(to_schema(self._schema), to_spec(spec))
            found = expression_evaluator(
                partition_schema(spec, self._schema), project(self.expression), case_sensitive=True
            )
            self._partitions[file.spec_id] = found
        return bool(found(record_of(file)))

    def _evaluators(self, file: ContentFile) -> tuple[_InclusiveMetricsEvaluator, _StrictMetricsEvaluator]:
        key = (file.spec_id, *(repr(value) for _, value in file.partition))
        found = self._prepared.get(key)
        if found is None:
            residual = self._residual(file)
            schema = to_schema(self._schema)
            found = _InclusiveMetricsEvaluator(schema, residual), _strict(schema, residual)
            if len(self._prepared) >= _PREPARED_MAX:
                self._prepared.clear()
            self._prepared[key] = found
        return found

    def _residual(self, file: ContentFile) -> BooleanExpression:
        spec = self._specs[file.spec_id]
        if not spec.fields:
            return self.expression
        found = self._residuals.get(file.spec_id)
        if found is None:
            # Without NOT: the residual of a negated predicate is decided by the predicate's own comparison.
            positive = rewrite_not(self.expression)
            found = _Residuals(
                spec=to_spec(spec), expr=positive, schema=to_schema(self._schema), case_sensitive=True
            )
            self._residuals[file.spec_id] = found
        return found.residual_for(record_of(file))

    def some_rows_match(self, file: ContentFile) -> bool:
        """Whether a deletion by this filter may concern the file."""
        # The whole filter first: it is prepared once, the residual for every partition.
        if not self.may_match(file):
            return False
        return ask(self._evaluators(file)[0], file, unreadable=True)

    def all_rows_match(self, file: ContentFile) -> bool:
        """Whether every row of the file matches, provably."""
        return ask(self._evaluators(file)[1], file, unreadable=False)


def _strict(schema: IcebergSchema, expression: BooleanExpression) -> _StrictMetricsEvaluator:
    """PyIceberg's evaluator, which raises for columns inside others: of those nothing is provable, as in Java."""
    found = _StrictMetricsEvaluator(schema, expression)
    found.expr = _provable(found.expr, frozenset(field.field_id for field in schema.fields))
    return found


def _provable(bound: BooleanExpression, known: frozenset[int]) -> BooleanExpression:
    """An expression without NOT, in which no row satisfies what is said of other columns than the known ones."""
    if isinstance(bound, And):
        return And(_provable(bound.left, known), _provable(bound.right, known))
    if isinstance(bound, Or):
        return Or(_provable(bound.left, known), _provable(bound.right, known))
    if isinstance(bound, BoundPredicate) and bound.term.ref().field.field_id not in known:
        return AlwaysFalse()
    return bound


class _Summaries:
    """What the partition summaries of manifests of one spec leave room for, and what was found of which."""

    def __init__(
        self,
        columns: tuple[NestedField, ...],
        may_match: MayMatchBounds | None,
        evaluate: Callable[[Any], bool],
    ) -> None:
        self._columns, self._may_match, self._evaluate = columns, may_match, evaluate
        self._has_nan = any(isinstance(column.field_type, FloatType | DoubleType) for column in columns)
        self.answers: dict[tuple[FieldSummary, ...], bool] = {}

    def judge(self, summaries: tuple[FieldSummary, ...]) -> bool:
        """Whether a file that matches may be in a manifest with these."""
        if len(self.answers) >= _PREPARED_MAX:
            self.answers.clear()
        found = self.answers[summaries] = self._judge(summaries)
        return found

    def _judge(self, summaries: tuple[FieldSummary, ...]) -> bool:
        columns = self._columns
        for column, summary in zip(columns, summaries, strict=False) if self._has_nan else ():
            may_be_nan = isinstance(column.field_type, FloatType | DoubleType)
            if may_be_nan and summary.contains_nan is not False:
                return True  # engines do not agree on how NaN compares
        may_match = self._may_match
        if may_match is not None and (bounds := _bounds_of(columns, summaries)) is not None:
            return may_match(bounds)
        seen: Any = SimpleNamespace(partitions=list(summaries))  # all that PyIceberg looks at
        try:
            return bool(self._evaluate(seen))
        except UNREADABLE:
            return True


def _bounds_of(columns: tuple[NestedField, ...], summaries: tuple[FieldSummary, ...]) -> Metrics | None:
    """Partition summaries as if they were the statistics of one file; None when not all have their bounds."""
    lower, upper = {}, {}
    for column, summary in zip(columns, summaries, strict=False):
        if summary.lower_bound is None or summary.upper_bound is None:
            return None  # nothing but null: PyIceberg has rules for that
        lower[column.field_id], upper[column.field_id] = summary.lower_bound, summary.upper_bound
    return Metrics(lower_bounds=lower, upper_bounds=upper)


def record_of(file: ContentFile) -> Record:
    """The partition tuple as PyIceberg's record."""
    return Record(*(value for _, value in file.partition))
