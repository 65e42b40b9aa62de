package recipes

import (
	"context"
	"net/http"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/scope"
)

func Gateway(keys keystore.Store, options middleware.Options, tasks *Tasks) http.Handler {
	guard := middleware.New(keys, options)
	mux := runtime.NewServeMux(
		runtime.WithMiddlewares(gatewayStages(map[string]func(http.Handler) http.Handler{
			"POST /api/v1/tasks":       middleware.Chain(guard.Enforce(middleware.Require(scope.TasksWrite)), guard.Idempotent),
			"GET /api/v1/tasks/{id=*}": guard.Enforce(middleware.Require(scope.TasksRead)),
		})),
		runtime.WithMetadata(func(ctx context.Context, r *http.Request) metadata.MD {
			return metadata.Pairs("organization", middleware.CallerFrom(ctx).Organization())
		}),
		// Without this clients could send Grpc-Metadata-Organization.
		runtime.WithIncomingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithRoutingErrorHandler(func(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler,
			w http.ResponseWriter, r *http.Request, _ int) {
			notFound(w, r)
		}),
	)
	tasks.registerGateway(mux) // pb.RegisterTasksHandler
	return middleware.Chain(guard.RequestID, guard.Recover, guard.Authenticate, guard.RateLimit)(mux)
}

// gatewayStages runs the stages of the route that the gateway has chosen. It
// does not serve a route that is not listed.
func gatewayStages(routes map[string]func(http.Handler) http.Handler) runtime.Middleware {
	return func(next runtime.HandlerFunc) runtime.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
			path, _ := runtime.HTTPPattern(r.Context())
			r.Pattern = r.Method + " " + path.String()
			stages, listed := routes[r.Pattern]
			if !listed {
				notFound(w, r)
				return
			}
			stages(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header = r.Header.Clone()
				r.Header.Del("Authorization") // the gateway would pass the key on
				next(w, r, params)
			})).ServeHTTP(w, r)
		}
	}
}

// registerGateway stands for what protoc-gen-grpc-gateway generates.
func (t *Tasks) registerGateway(mux *runtime.ServeMux) {
	rpc := func(method, path string, call func(context.Context, *structpb.Struct, map[string]string) (Task, error)) {
		err := mux.HandlePath(method, path, func(w http.ResponseWriter, r *http.Request, params map[string]string) {
			inbound, outbound := runtime.MarshalerForRequest(mux, r)
			ctx, err := runtime.AnnotateIncomingContext(r.Context(), mux, r, "/tasks.v1.Tasks/Any",
				runtime.WithHTTPPathPattern(path))
			var in structpb.Struct
			if err == nil && method == http.MethodPost {
				err = inbound.NewDecoder(r.Body).Decode(&in)
			}
			var task Task
			if err == nil {
				task, err = call(ctx, &in, params)
			}
			if err != nil {
				runtime.HTTPError(ctx, mux, outbound, w, r, err)
				return
			}
			md, _ := metadata.FromIncomingContext(ctx)
			task.Organization = strings.Join(append(md["organization"], md["authorization"]...), ",")
			runtime.ForwardResponseMessage(ctx, mux, outbound, w, r, task.message())
		})
		if err != nil {
			panic(err)
		}
	}
	rpc("POST", "/api/v1/tasks", func(ctx context.Context, in *structpb.Struct, _ map[string]string) (Task, error) {
		task, err := t.create(ctx, in.Fields["title"].GetStringValue())
		if err != nil {
			err = status.Error(codes.InvalidArgument, err.Error())
		}
		return task, err
	})
	rpc("GET", "/api/v1/tasks/{id}", func(ctx context.Context, _ *structpb.Struct, p map[string]string) (Task, error) {
		return t.get(ctx, p["id"]), nil
	})
}
