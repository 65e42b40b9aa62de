package recipes

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

func Huma(keys keystore.Store, options middleware.Options, tasks *Tasks) http.Handler {
	config := huma.DefaultConfig("Tasks", "1")
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "", "", "" // serve them outside the API
	config.CreateHooks = nil                                             // or replies link to SchemasPath
	api := humaAPI{middleware.NewAPI(keys, options)}
	h := huma.NewAPI(config, api)
	huma.Register(h, huma.Operation{
		Method: "POST", Path: "/api/v1/tasks", OperationID: "create-task", DefaultStatus: 201,
		Security: []map[string][]string{{"apiKey": {string(scope.TasksWrite)}}},
	}, tasks.humaCreate)
	huma.Register(h, huma.Operation{
		Method: "GET", Path: "/api/v1/tasks/{id}", OperationID: "get-task",
		Security: []map[string][]string{{"apiKey": {string(scope.TasksRead)}}},
	}, tasks.humaGet)
	return api
}

// humaAPI registers the operations of huma with an API. An operation without a
// security section of one scheme panics.
type humaAPI struct{ *middleware.API }

func (a humaAPI) Handle(op *huma.Operation, next func(huma.Context)) {
	var names []scope.Name
	if len(op.Security) == 1 {
		for _, name := range op.Security[0]["apiKey"] {
			names = append(names, scope.Name(name))
		}
	}
	a.HandleFunc(op.Method+" "+op.Path, middleware.Require(names...), func(w http.ResponseWriter, r *http.Request) {
		next(humago.NewContext(op, r, w))
	})
}

type (
	humaInput struct {
		Body struct {
			Title string `json:"title"`
		}
	}
	humaID struct {
		ID string `path:"id"`
	}
	humaOutput struct{ Body Task }
)

func (t *Tasks) humaCreate(ctx context.Context, in *humaInput) (*humaOutput, error) {
	task, err := t.create(ctx, in.Body.Title)
	if err != nil {
		return nil, huma.Error422UnprocessableEntity(err.Error())
	}
	return &humaOutput{task}, nil
}

func (t *Tasks) humaGet(ctx context.Context, in *humaID) (*humaOutput, error) {
	return &humaOutput{t.get(ctx, in.ID)}, nil
}
