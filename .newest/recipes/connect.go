package recipes

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

const (
	createProcedure = "/tasks.v1.Tasks/Create"
	getProcedure    = "/tasks.v1.Tasks/Get"
	watchProcedure  = "/tasks.v1.Tasks/Watch"
)

func Connect(keys keystore.Store, options middleware.Options, tasks *Tasks) http.Handler {
	options.Base = "/tasks.v1.Tasks"
	api := middleware.NewAPI(keys, options)
	api.Handle("POST "+createProcedure, middleware.Require(scope.TasksWrite),
		connect.NewUnaryHandler(createProcedure, tasks.connectCreate))
	api.Handle("POST "+getProcedure, middleware.Require(scope.TasksRead),
		connect.NewUnaryHandler(getProcedure, tasks.connectGet))
	api.Handle("POST "+watchProcedure, middleware.Require(scope.TasksRead),
		connect.NewServerStreamHandler(watchProcedure, tasks.connectWatch),
		middleware.RouteOptions{Idempotency: middleware.IdempotencyOptions{Off: true}})
	writer := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refusal := &connectRefusal{ResponseWriter: w}
		api.ServeHTTP(refusal, r)
		if refusal.problem == nil {
			return
		}
		w.Header().Del("Content-Length")
		if !writer.IsSupported(r) { // no client of these protocols
			w.WriteHeader(refusal.status)
			w.Write(refusal.problem)
			return
		}
		w.Header().Del("Content-Type")
		writer.Write(w, r, refusal.err())
	})
}

// A connectRefusal keeps a problem back, for the client gets it in the form of
// its protocol: a stream fails in its last message, under the status 200.
type connectRefusal struct {
	http.ResponseWriter
	status  int
	problem []byte // nil: the response is the handler's
}

func (c *connectRefusal) Unwrap() http.ResponseWriter { return c.ResponseWriter }
func (c *connectRefusal) Flush()                      { _ = http.NewResponseController(c.ResponseWriter).Flush() }

func (c *connectRefusal) WriteHeader(status int) {
	if c.Header().Get("Content-Type") == "application/problem+json" {
		c.status, c.problem = status, []byte{}
		return
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *connectRefusal) Write(p []byte) (int, error) {
	if c.problem != nil {
		c.problem = append(c.problem, p...)
		return len(p), nil
	}
	return c.ResponseWriter.Write(p)
}

func (c *connectRefusal) err() error {
	code, known := map[int]connect.Code{
		401: connect.CodeUnauthenticated, 403: connect.CodePermissionDenied, 404: connect.CodeNotFound,
		409: connect.CodeAborted, 429: connect.CodeResourceExhausted, 500: connect.CodeInternal, 503: connect.CodeUnavailable,
	}[c.status]
	if !known {
		code = connect.CodeInvalidArgument
	}
	var p middleware.Problem
	_ = json.Unmarshal(c.problem, &p)
	return connect.NewError(code, errors.New(p.Code+": "+p.Detail))
}

// These stand for messages that a program would have protoc generate.
type (
	request  = connect.Request[structpb.Struct]
	response = connect.Response[structpb.Struct]
)

func (t *Tasks) connectCreate(ctx context.Context, r *request) (*response, error) {
	task, err := t.create(ctx, r.Msg.Fields["title"].GetStringValue())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	return connect.NewResponse(task.message()), nil
}

func (t *Tasks) connectGet(ctx context.Context, r *request) (*response, error) {
	return connect.NewResponse(t.get(ctx, r.Msg.Fields["id"].GetStringValue()).message()), nil
}

func (t *Tasks) connectWatch(ctx context.Context, r *request, s *connect.ServerStream[structpb.Struct]) error {
	return s.Send(t.get(ctx, r.Msg.Fields["id"].GetStringValue()).message())
}

func (t Task) message() *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		"id":           structpb.NewStringValue(t.ID),
		"title":        structpb.NewStringValue(t.Title),
		"organization": structpb.NewStringValue(t.Organization),
	}}
}
