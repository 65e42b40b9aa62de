package middlewareotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// spans are those of calls.
type spans struct{ tracer trace.Tracer }

// start begins the span of a call, if that of its request is recorded.
func (s spans) start(ctx context.Context, call string) (context.Context, func(error)) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, func(error) {}
	}
	ctx, span := s.tracer.Start(ctx, "sallyport."+call)
	return ctx, func(err error) {
		if err != nil { // without an answer
			kind := "_OTHER"
			if errors.Is(err, context.DeadlineExceeded) {
				kind = "timeout"
			}
			span.SetAttributes(attribute.String("error.type", kind))
			span.SetStatus(codes.Error, err.Error())
			span.RecordError(err)
		}
		span.End()
	}
}
