package recipes

import (
	"context"
	"encoding/json"
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
)

func Connect(keys keystore.Store, options middleware.Options, tasks *Tasks) http.Handler {
	hooks := *options.Hooks // a copy: another API may share it
	hooks.Problem = connectError
	options.Base, options.Hooks = "/tasks.v1.Tasks", &hooks
	api := middleware.NewAPI(keys, options)
	api.Handle("POST "+createProcedure, middleware.Require(scope.TasksWrite),
		connect.NewUnaryHandler(createProcedure, tasks.connectCreate))
	api.Handle("POST "+getProcedure, middleware.Require(scope.TasksRead),
		connect.NewUnaryHandler(getProcedure, tasks.connectGet))
	return api
}

// connectError gives refusals the form of errors of the Connect protocol.
func connectError(r *http.Request, p middleware.Problem) (contentType string, body []byte) {
	code, known := map[int]connect.Code{
		401: connect.CodeUnauthenticated, 403: connect.CodePermissionDenied, 404: connect.CodeUnimplemented,
		409: connect.CodeAborted, 429: connect.CodeResourceExhausted, 500: connect.CodeInternal, 503: connect.CodeUnavailable,
	}[p.Status]
	if !known {
		code = connect.CodeInvalidArgument
	}
	body, _ = json.Marshal(map[string]string{"code": code.String(), "message": p.Code + ": " + p.Detail})
	return "application/json", body
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

func (t Task) message() *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		"id":           structpb.NewStringValue(t.ID),
		"title":        structpb.NewStringValue(t.Title),
		"organization": structpb.NewStringValue(t.Organization),
	}}
}
