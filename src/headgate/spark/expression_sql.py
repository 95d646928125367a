"""An expression of PyIceberg as Spark's SQL, bound to the columns of a table."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

from pydantic import ValidationError as PydanticValidationError
from pyiceberg.expressions import BooleanExpression, BoundTerm
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, bind, visit
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    TimestampType,
    TimestamptzType,
)

from headgate.errors import BadInput
from headgate.format.content_files import encode_value

# What an expression that does not fit its schema makes PyIceberg raise.
_MISFITS = (PydanticValidationError, ValueError, TypeError, LookupError, AttributeError)


def to_sql(expression: BooleanExpression, schema: Schema, *, name: str) -> str:
    """The condition in Spark's words; BadInput under `name` when it does not fit the columns."""
    try:
        bound = bind(schema, expression, case_sensitive=True)
    except _MISFITS as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(f"{name}: it does not fit the table: {text[:300]}", field=name) from error
    return str(visit(bound, _Writer(schema)))


def quote_name(name: str) -> str:
    """A name as SQL has it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def quote_text(text: str) -> str:
    """A string literal that Spark reads back as it is."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


class _Writer(BoundBooleanExpressionVisitor[str]):
    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def visit_true(self) -> str:
        return "true"

    def visit_false(self) -> str:
        return "false"

    def visit_not(self, child_result: str) -> str:
        return f"(NOT {child_result})"

    def visit_and(self, left_result: str, right_result: str) -> str:
        return f"({left_result} AND {right_result})"

    def visit_or(self, left_result: str, right_result: str) -> str:
        return f"({left_result} OR {right_result})"

    def visit_is_null(self, term: BoundTerm) -> str:
        return f"({self._name(term)} IS NULL)"

    def visit_not_null(self, term: BoundTerm) -> str:
        return f"({self._name(term)} IS NOT NULL)"

    def visit_is_nan(self, term: BoundTerm) -> str:
        return f"isnan({self._name(term)})"

    def visit_not_nan(self, term: BoundTerm) -> str:
        return f"(NOT isnan({self._name(term)}))"

    def visit_equal(self, term: BoundTerm, literal: Literal[Any]) -> str:
        return self._compare(term, "=", literal)

    def visit_not_equal(self, term: BoundTerm, literal: Literal[Any]) -> str:
        return self._compare(term, "<>", literal)

    def visit_less_than(self, term: BoundTerm, literal: Literal[Any]) -> str:
        return self._compare(term, "<", literal)

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> str:
        return self._compare(term, "<=", literal)

    def visit_greater_than(self, term: BoundTerm, literal: Literal[Any]) -> str:
        return self._compare(term, ">", literal)

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> str:
        return self._compare(term, ">=", literal)

    def visit_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> str:
        return f"startswith({self._name(term)}, {self._value(term, literal.value)})"

    def visit_not_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> str:
        return f"(NOT startswith({self._name(term)}, {self._value(term, literal.value)}))"

    def visit_in(self, term: BoundTerm, literals: set[Any]) -> str:
        return f"({self._name(term)} IN ({self._values(term, literals)}))"

    def visit_not_in(self, term: BoundTerm, literals: set[Any]) -> str:
        return f"({self._name(term)} NOT IN ({self._values(term, literals)}))"

    def _compare(self, term: BoundTerm, operator: str, literal: Literal[Any]) -> str:
        return f"({self._name(term)} {operator} {self._value(term, literal.value)})"

    def _values(self, term: BoundTerm, literals: set[Any]) -> str:
        return ", ".join(sorted(self._value(term, value) for value in literals))

    def _name(self, term: BoundTerm) -> str:
        path = self._schema.find_column_name(term.ref().field.field_id) or ""
        # Names with dots in them cannot be told from paths; the column of the top level has its whole name.
        whole = any(field.name == path for field in self._schema.fields)
        return ".".join(quote_name(part) for part in ([path] if whole else path.split(".")))

    def _value(self, term: BoundTerm, value: Any) -> str:
        return literal_sql(term.ref().field.field_type, value)


def literal_sql(type_: IcebergType, value: Any) -> str:
    """A value as manifests store it, as a literal of SQL."""
    match type_:
        case DateType():
            return f"DATE '{encode_value(type_, value)}'"
        case TimestampType():
            return f"TIMESTAMP_NTZ '{encode_value(type_, value)}'"
        case TimestamptzType():
            return f"TIMESTAMP '{encode_value(type_, value)}'"
        case DecimalType():
            return f"CAST('{Decimal(value):f}' AS DECIMAL({type_.precision}, {type_.scale}))"
        case FloatType() | DoubleType():
            return f"CAST('{float(value)!r}' AS {'FLOAT' if isinstance(type_, FloatType) else 'DOUBLE'})"
        case FixedType() | BinaryType():
            return f"X'{bytes(value).hex()}'"
        case _ if isinstance(value, bool):
            return "true" if value else "false"
        case _ if isinstance(value, int):
            return str(value)
        case _:
            return quote_text(str(UUID(bytes=value)) if isinstance(value, bytes) else str(value))
