package recipes

import (
	"context"
	_ "embed"
	"net/http"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/newest/recipes/tasksapi"
	"github.com/sallyport-go/sallyport/scope"
)

//go:embed tasksapi/tasks.yaml
var tasksDocument []byte

func OapiCodegen(keys keystore.Store, options middleware.Options, tasks *Tasks) http.Handler {
	document, err := openapi3.NewLoader().LoadFromData(tasksDocument)
	if err != nil {
		panic(err)
	}
	mux := oapiMux{middleware.NewAPI(keys, options), document}
	server := tasksapi.NewStrictHandlerWithOptions(oapiServer{tasks}, nil, tasksapi.StrictHTTPServerOptions{
		ResponseErrorHandlerFunc: func(w http.ResponseWriter, r *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		},
	})
	return tasksapi.HandlerFromMux(server, mux)
}

// oapiMux registers the generated routes with an API. An operation without a
// security section of one scheme panics.
type oapiMux struct {
	*middleware.API
	document *openapi3.T
}

func (m oapiMux) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	method, path, _ := strings.Cut(pattern, " ")
	var names []scope.Name
	if security := m.document.Paths.Value(path).GetOperation(method).Security; security != nil && len(*security) == 1 {
		for _, name := range (*security)[0]["apiKey"] {
			names = append(names, scope.Name(name))
		}
	}
	m.API.HandleFunc(pattern, middleware.Require(names...), h)
}

type oapiServer struct{ *Tasks }

func (s oapiServer) CreateTask(ctx context.Context,
	r tasksapi.CreateTaskRequestObject) (tasksapi.CreateTaskResponseObject, error) {
	task, err := s.create(ctx, r.Body.Title)
	if err != nil {
		return nil, err
	}
	return tasksapi.CreateTask201JSONResponse{Id: task.ID, Title: task.Title, Organization: task.Organization}, nil
}

func (s oapiServer) GetTask(ctx context.Context,
	r tasksapi.GetTaskRequestObject) (tasksapi.GetTaskResponseObject, error) {
	task := s.get(ctx, r.Id)
	return tasksapi.GetTask200JSONResponse{Id: task.ID, Title: task.Title, Organization: task.Organization}, nil
}
