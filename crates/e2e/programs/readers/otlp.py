# Reads requests of OTLP in JSON, one a line, with OpenTelemetry's own definitions, and prints the spans of each as a line of JSON.
import base64
import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


def as_protobuf_has_it(value):
    """Ids are hexadecimal in OTLP's JSON, as the only bytes; protobuf's own JSON has base64."""
    if isinstance(value, list):
        return [as_protobuf_has_it(item) for item in value]
    if not isinstance(value, dict):
        return value
    ids = ("traceId", "spanId", "parentSpanId")
    return {
        key: base64.b64encode(bytes.fromhex(item)).decode() if key in ids else as_protobuf_has_it(item)
        for key, item in value.items()
    }


for line in open(sys.argv[1], encoding="utf-8"):
    # (What the definitions do not know is an error.)
    request = json_format.ParseDict(as_protobuf_has_it(json.loads(line)), ExportTraceServiceRequest())
    assert request.SerializeToString()
    spans = []
    for resource in request.resource_spans:
        service = {item.key: item.value.string_value for item in resource.resource.attributes}["service.name"]
        for scope in resource.scope_spans:
            for span in scope.spans:
                assert len(span.trace_id) == 16 and len(span.span_id) == 8, span
                assert len(span.parent_span_id) in (0, 8), span
                assert span.kind == Span.SPAN_KIND_INTERNAL and span.status.code != Status.STATUS_CODE_ERROR, span
                values = {item.key: item.value.WhichOneof("value") for item in span.attributes}
                assert all(values.values()), span
                spans.append([service, span.name, span.end_time_unix_nano - span.start_time_unix_nano])
    print(json.dumps(spans))
