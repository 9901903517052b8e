"""Results and errors of pymongo in the form in which unified tests expect them."""

from collections.abc import Mapping
from typing import Any

from pymongo.errors import (
    BulkWriteError,
    ClientBulkWriteException,
    ExecutionTimeout,
    NetworkTimeout,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WTimeoutError,
)
from pymongo.results import (
    BulkWriteResult,
    ClientBulkWriteResult,
    DeleteResult,
    InsertManyResult,
    InsertOneResult,
    UpdateResult,
)

from .match import Context, Mismatch, match

UNACKNOWLEDGED = {"acknowledged": False}


def of_update(result: UpdateResult) -> dict[str, Any]:
    made = {
        "matchedCount": result.matched_count,
        "modifiedCount": result.modified_count,
        "upsertedCount": 0 if result.upserted_id is None else 1,
    }
    if result.upserted_id is not None:
        made["upsertedId"] = result.upserted_id
    return made


def of_bulk_write(counts: Mapping[str, Any]) -> dict[str, Any]:
    """From the counts that pymongo keeps of a bulk write, in a result or in an error."""
    upserted = {str(each["index"]): each["_id"] for each in counts.get("upserted", [])}
    return {
        "insertedCount": counts["nInserted"],
        "matchedCount": counts["nMatched"],
        "modifiedCount": counts["nModified"],
        "deletedCount": counts["nRemoved"],
        "upsertedCount": counts["nUpserted"],
        "upsertedIds": upserted,
    }


def of_single_results(results: Mapping[int, Any]) -> dict[str, Any]:
    return {str(index): result_of(result) for index, result in results.items()}


def of_client_bulk_write(result: ClientBulkWriteResult) -> dict[str, Any]:
    made: dict[str, Any] = {
        "insertedCount": result.inserted_count,
        "matchedCount": result.matched_count,
        "modifiedCount": result.modified_count,
        "deletedCount": result.deleted_count,
        "upsertedCount": result.upserted_count,
    }
    if result.has_verbose_results:
        made["insertResults"] = of_single_results(result.insert_results)
        made["updateResults"] = of_single_results(result.update_results)
        made["deleteResults"] = of_single_results(result.delete_results)
    return made


def result_of(result: Any) -> Any:
    """A result in the form of the tests."""
    if getattr(result, "acknowledged", True) is False:
        return UNACKNOWLEDGED
    if isinstance(result, InsertOneResult):
        return {"insertedId": result.inserted_id}
    if isinstance(result, InsertManyResult):
        ids = {str(index): each for index, each in enumerate(result.inserted_ids)}
        return {"insertedCount": len(ids), "insertedIds": ids}
    if isinstance(result, UpdateResult):
        return of_update(result)
    if isinstance(result, DeleteResult):
        return {"deletedCount": result.deleted_count}
    if isinstance(result, BulkWriteResult):
        return of_bulk_write(result.bulk_api_result)
    if isinstance(result, ClientBulkWriteResult):
        return of_client_bulk_write(result)
    return result


def server_error(error: BaseException) -> BaseException:
    """The error that carries the server's answer."""
    if isinstance(error, ClientBulkWriteException) and error.error is not None:
        return error.error
    return error


def is_client_error(error: BaseException) -> bool:
    """Whether it does not come from the server: wrong use, or the network."""
    return not isinstance(error, (OperationFailure, ClientBulkWriteException))


def is_timeout(error: BaseException) -> bool:
    timeouts = (NetworkTimeout, ExecutionTimeout, WTimeoutError, ServerSelectionTimeoutError)
    return getattr(error, "timeout", False) or isinstance(error, timeouts)


def partial_result(error: BaseException) -> Any:
    """What was done before an error."""
    if isinstance(error, BulkWriteError):
        return of_bulk_write(error.details)
    if isinstance(error, ClientBulkWriteException):
        return result_of(error.partial_result) if error.partial_result is not None else None
    raise Mismatch(f"the error carries no result: {error!r}")


def details_of(error: BaseException) -> Mapping[str, Any]:
    return getattr(error, "details", None) or {}


def check_labels(expected: Mapping[str, Any], error: BaseException) -> None:
    wrong = [label for label in expected.get("errorLabelsContain", []) if not has_label(error, label)]
    wrong += [label for label in expected.get("errorLabelsOmit", []) if has_label(error, label)]
    if wrong:
        raise Mismatch(f"labels {wrong} are wrong, of {error!r}")


def has_label(error: BaseException, label: str) -> bool:
    return isinstance(error, PyMongoError) and error.has_error_label(label)


def check_bulk_errors(expected: Mapping[str, Any], error: BaseException, context: Context) -> None:
    if "writeErrors" in expected:
        given = getattr(error, "write_errors", None) or details_of(error).get("writeErrors", [])
        by_index = {str(each.get("idx", each.get("index"))): each for each in given}
        if set(by_index) != set(expected["writeErrors"]):
            raise Mismatch(f"expected write errors at {set(expected['writeErrors'])}, got {given!r}")
        for index, wanted in expected["writeErrors"].items():
            match(wanted, by_index[index], context, f"write error {index}")
    if "writeConcernErrors" in expected:
        given = getattr(error, "write_concern_errors", None) or details_of(error).get("writeConcernErrors", [])
        match(expected["writeConcernErrors"], given, context, "writeConcernErrors")


def check_kind(expected: Mapping[str, Any], error: BaseException) -> None:
    """Whether the error comes from where the test says."""
    if "isClientError" in expected and expected["isClientError"] != is_client_error(error):
        raise Mismatch(f"isClientError is expected to be {expected['isClientError']}, got {error!r}")
    if "isTimeoutError" in expected and expected["isTimeoutError"] != is_timeout(error):
        raise Mismatch(f"isTimeoutError is expected to be {expected['isTimeoutError']}, got {error!r}")


def check_error(expected: Mapping[str, Any], error: BaseException, context: Context) -> None:
    """Compares an error with what a test expects of it. Raises Mismatch."""
    check_kind(expected, error)
    cause = server_error(error)
    details = details_of(cause)
    if "errorContains" in expected:
        text = f"{cause} {details.get('writeErrors', '')}".lower()
        if expected["errorContains"].lower() not in text:
            raise Mismatch(f"expected the text {expected['errorContains']!r}, got {cause!r}")
    if "errorCode" in expected and expected["errorCode"] not in codes_of(cause, "code"):
        raise Mismatch(f"expected code {expected['errorCode']}, got {cause!r}")
    if "errorCodeName" in expected and expected["errorCodeName"] not in codes_of(cause, "codeName"):
        raise Mismatch(f"expected code name {expected['errorCodeName']}, got {cause!r}")
    check_labels(expected, cause)
    if "errorResponse" in expected:
        match(expected["errorResponse"], details, context, "error")
    check_bulk_errors(expected, error, context)
    if "expectResult" in expected:
        match(expected["expectResult"], partial_result(error), context)


def codes_of(error: BaseException, field: str) -> list[Any]:
    """The codes of an error, that of its write concern included."""
    details = details_of(error)
    found = [details.get(field), details.get("writeConcernError", {}).get(field)]
    found += [each.get(field) for each in details.get("writeErrors", [])[:1]]
    return [*found, getattr(error, "code", None)] if field == "code" else found
