package recipes

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/danielgtaylor/huma/v2"
	"github.com/getkin/kin-openapi/openapi3"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
)

// TestTwoRouters: a router in front that decides, and one behind it that
// serves, may take a path for different routes. So the recipes decide on the
// route.
func TestTwoRouters(t *testing.T) {
	s := start(t, func(keys keystore.Store, o middleware.Options, tasks *Tasks) http.Handler {
		engine := gin.New()
		engine.GET("/api/v1/tasks/:id", tasks.ginGet)
		engine.GET("/api/v1/tasks/:id/secrets", func(c *gin.Context) { c.String(200, "secrets") })
		api := middleware.NewAPI(keys, o)
		api.Handle("GET /api/v1/tasks/{id}", middleware.AnyCaller(), engine)
		return api
	})
	if a := s.send("GET /api/v1/tasks/7%2Fsecrets", s.narrow, ""); a.body != "secrets" {
		t.Errorf("got %d %s: both routers read the path alike now, and the page may say so", a.status, a.body)
	}
}

// TestChiAllow: a 405 of chi has Allow, one of a handler of its own has what that
// sets.
func TestChiAllow(t *testing.T) {
	byMatch := func(w http.ResponseWriter, r *http.Request) {
		for _, method := range []string{"DELETE", "GET", "POST"} {
			if chi.RouteContext(r.Context()).Routes.Match(chi.NewRouteContext(), method, r.URL.Path) {
				w.Header().Add("Allow", method)
			}
		}
		notFound(w, r)
	}
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{"chi's own": {nil, "GET"}, "like notFound": {notFound, ""}, "by Match": {byMatch, "GET"}} {
		root := chi.NewRouter()
		if tt.handler != nil {
			root.MethodNotAllowed(tt.handler)
		}
		root.Route("/tasks", func(r chi.Router) { r.Get("/{id}", notFound) })
		w := httptest.NewRecorder()
		root.ServeHTTP(w, httptest.NewRequest("PUT", "/tasks/7", nil))
		if got := strings.Join(w.Header()["Allow"], ", "); got != tt.want {
			t.Errorf("%s: got Allow %q, want %q", name, got, tt.want)
		}
	}
}

// TestRecovery: with chi's Recoverer, or gin's Recovery outside, a body that a
// panic has cut short looks whole to the client.
func TestRecovery(t *testing.T) {
	guard := middleware.New(nil, middleware.Options{Hooks: &middleware.Hooks{Logger: slog.New(slog.DiscardHandler)}})
	panics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic("no such task")
	})
	half, inside := guard.Recover(panics), guard.Recover(chimiddleware.Recoverer(panics))
	engine := func(outside ...gin.HandlerFunc) http.Handler {
		e := gin.New()
		e.Use(outside...)
		e.GET("/", gin.WrapH(half))
		return e
	}
	for _, tt := range []struct {
		name  string
		h     http.Handler
		whole bool
	}{
		{"chi", half, false}, {"chi with Recoverer", inside, true},
		{"gin", engine(), false}, {"gin with Recovery", engine(gin.RecoveryWithWriter(io.Discard)), true},
	} {
		srv := httptest.NewServer(tt.h)
		defer srv.Close()
		res, err := http.Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if whole := err == nil; whole != tt.whole {
			t.Errorf("%s: got %q, %v", tt.name, body, err)
		}
	}
}

// TestRealIP: with chi's RealIP a client passes the networks of a key.
func TestRealIP(t *testing.T) {
	keys, issuer := issuing.InMemory(keystore.Service{})
	secret, _, err := issuer.Issue(t.Context(), keystore.Key{Organization: "org_1", Environment: keystore.Sandbox,
		Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
	if err != nil {
		t.Fatal(err)
	}
	guard := middleware.New(keys, middleware.Options{})
	for _, realIP := range []bool{false, true} {
		root := chi.NewRouter()
		root.Use(guard.RequestID)
		if realIP {
			//lint:ignore SA1019 services that are older have it
			root.Use(chimiddleware.RealIP)
		}
		root.With(guard.Authenticate, guard.Enforce(middleware.AnyCaller())).Get("/key", notFound)
		r, w := httptest.NewRequest("GET", "/key", nil), httptest.NewRecorder()
		r.RemoteAddr = "127.0.0.1:1234"
		r.Header.Set("Authorization", "Bearer "+secret.Reveal())
		r.Header.Set("X-Real-IP", "192.0.2.1")
		if root.ServeHTTP(w, r); (w.Code == 404) != realIP {
			t.Errorf("with RealIP %t: got %d", realIP, w.Code)
		}
	}
}

// TestGinWriter: what gin offers beside JSON goes through the stage.
func TestGinWriter(t *testing.T) {
	for _, tt := range []struct {
		name   string
		handle gin.HandlerFunc
		status int
		body   string
	}{
		{"no body", func(c *gin.Context) { c.Status(204) }, 204, ""},
		{"abort", func(c *gin.Context) { c.AbortWithStatus(409) }, 409, ""},
		{"WriteString", func(c *gin.Context) { _, _ = c.Writer.WriteString("text") }, 200, "text"},
		{"Flush", func(c *gin.Context) { c.String(201, "a"); c.Writer.Flush(); c.String(201, "b") }, 201, "ab"},
		{"Status", func(c *gin.Context) { c.Status(202); c.String(c.Writer.Status(), "x") }, 202, "x"},
		{"Stream", func(c *gin.Context) { c.Stream(func(io.Writer) bool { return false }) }, 500, "?"},
	} {
		s := start(t, func(keys keystore.Store, o middleware.Options, tasks *Tasks) http.Handler {
			g, engine := middleware.New(keys, o), gin.New()
			engine.POST(tasksPath, ginStage(engine, g.Enforce(middleware.AnyCaller()), g.Idempotent), tt.handle)
			return middleware.Chain(g.RequestID, g.Authenticate)(engine)
		})
		for range 2 {
			if a := s.send("POST "+tasksPath, s.full, "", "Idempotency-Key", "a"); a.status != tt.status || tt.body != "?" &&
				a.body != tt.body {
				t.Errorf("%s: got %d %q, want %d %q", tt.name, a.status, a.body, tt.status, tt.body)
			}
		}
	}
}

// TestGinAnswersItself: what gin answers outside the API has a request id too.
func TestGinAnswersItself(t *testing.T) {
	s := start(t, GinWrap)
	a := s.send("GET /elsewhere", "", "")
	if id := a.header.Get("Svc-Request-Id"); a.status != 404 || id == "" || id != a.event.RequestID {
		t.Errorf("got %d %s with the id %q", a.status, a.body, id)
	}
}

// TestOperationWithoutSecurity: what a document leaves open is not served.
func TestOperationWithoutSecurity(t *testing.T) {
	document, err := openapi3.NewLoader().LoadFromData([]byte(`{"paths": {
		"/api/v1/a": {"get": {}}, "/api/v1/b": {"get": {"security": []}},
		"/api/v1/c": {"get": {"security": [{"apiKey": ["tasks:delete"]}]}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	api := middleware.NewAPI(issuing.NewMemory(), middleware.Options{})
	for name, register := range map[string]func(){
		"huma: none":    func() { humaAPI{api}.Handle(&huma.Operation{Method: "GET", Path: "/api/v1/a"}, nil) },
		"oapi: none":    func() { oapiMux{api, document}.HandleFunc("GET /api/v1/a", notFound) },
		"oapi: empty":   func() { oapiMux{api, document}.HandleFunc("GET /api/v1/b", notFound) },
		"oapi: unknown": func() { oapiMux{api, document}.HandleFunc("GET /api/v1/c", notFound) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: it was registered", name)
				}
			}()
			register()
		}()
	}
}

// TestGateway: neither headers nor the route that a POST asks for by header get
// round the decision.
func TestGateway(t *testing.T) {
	s := start(t, Gateway)
	if a := s.send("GET /api/v1/tasks/7", s.full, "", "Grpc-Metadata-Organization",
		"org_2"); a.member("organization") != "org_1" {
		t.Errorf("the handler got %s from a header of the client", a.body)
	}
	form := []string{"Content-Type", "application/x-www-form-urlencoded", "X-HTTP-Method-Override", "GET"}
	if a := s.send("POST /api/v1/tasks/7", s.narrow, "", form...); a.status != 403 ||
		a.event.Pattern != "GET /api/v1/tasks/{id=*}" {
		t.Errorf("X-HTTP-Method-Override: got %d at %q", a.status, a.event.Pattern)
	}
	s = start(t, func(keys keystore.Store, o middleware.Options, tasks *Tasks) http.Handler {
		mux := runtime.NewServeMux(runtime.WithMiddlewares(gatewayStages(nil)))
		tasks.registerGateway(mux)
		guard := middleware.New(keys, o)
		return guard.RequestID(guard.Authenticate(mux))
	})
	if a := s.send("GET /api/v1/tasks/7", s.full, ""); a.status != 404 {
		t.Errorf("a route that is not listed: got %d", a.status)
	}
}

// TestGzip: a reply is stored as the handler wrote it, and compressed for the
// client that asks.
func TestGzip(t *testing.T) {
	s := start(t, Gzip)
	var plain string
	for i, encoding := range []string{"gzip", "identity", "gzip"} {
		body := `{"title":"` + strings.Repeat("long ", 100) + `"}`
		a := s.send("POST "+tasksPath, s.full, body, "Idempotency-Key", "a", "Accept-Encoding", encoding)
		if got := a.header.Get("Content-Encoding") == "gzip"; got != (encoding == "gzip") ||
			(a.header.Get("Idempotent-Replayed") != "") != (i > 0) {
			t.Errorf("Accept-Encoding %s: got %v", encoding, a.header)
		}
		if a.event.Bytes != int64(len(a.body)) {
			t.Errorf("Accept-Encoding %s: the Event has %d bytes, sent were %d", encoding, a.event.Bytes, len(a.body))
		}
		if encoding == "identity" {
			plain = a.body
		}
	}
	if !strings.Contains(plain, "long long") {
		t.Errorf("got the replay %q", plain)
	}
}

// TestSpans: a span has the name of the route and what the Event says.
func TestSpans(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	s := start(t, func(keys keystore.Store, o middleware.Options, tasks *Tasks) http.Handler {
		return OtelHTTP(keys, o, tasks, trace.NewTracerProvider(trace.WithSpanProcessor(spans)))
	})
	for range 2 {
		s.send("POST "+tasksPath, s.full, `{"title":"Call"}`, "Idempotency-Key", "a")
	}
	s.send("POST "+tasksPath, "", "{}")
	for i, outcome := range []string{"executed", "replayed", "api_key_missing"} {
		name, organization := "POST /api/v1/tasks", "org_1"
		if i == 2 {
			name, organization = "POST", ""
		}
		span := spans.Ended()[i]
		got := map[string]string{}
		for _, a := range span.Attributes() {
			got[string(a.Key)] = a.Value.String()
		}
		if span.Name() != name || got["api.outcome"] != outcome || got["api.organization"] != organization ||
			got["api.request_id"] == "" {
			t.Errorf("got the span %q with %v, want %q with the outcome %s", span.Name(), got, name, outcome)
		}
	}
}

// TestConnectClients: what clients of the three protocols get. The status of a
// gRPC call is in the trailers, which are not part of a stored reply.
func TestConnectClients(t *testing.T) {
	for _, tt := range []struct {
		protocol string
		option   connect.ClientOption
		again    connect.Code // of a create, repeated; 0 is success
	}{
		{"Connect", connect.WithSendGzip(), 0},
		{"gRPC-Web", connect.WithGRPCWeb(), 0},
		{"gRPC", connect.WithGRPC(), connect.CodeInternal},
	} {
		s := startHTTP(t, Connect, true)
		call := func(procedure, token, key, title string) connect.Code {
			client := connect.NewClient[structpb.Struct, structpb.Struct](s.client, s.url+procedure, tt.option)
			fields := map[string]*structpb.Value{"title": structpb.NewStringValue(title)}
			r := connect.NewRequest(&structpb.Struct{Fields: fields})
			r.Header().Set("Authorization", "Bearer "+token)
			r.Header().Set("Idempotency-Key", key)
			_, err := client.CallUnary(context.Background(), r)
			<-s.events
			if err != nil {
				return connect.CodeOf(err)
			}
			return 0
		}
		watch := func(token string) connect.Code {
			client := connect.NewClient[structpb.Struct, structpb.Struct](s.client, s.url+watchProcedure, tt.option)
			r := connect.NewRequest(&structpb.Struct{})
			r.Header().Set("Authorization", "Bearer "+token)
			stream, err := client.CallServerStream(context.Background(), r)
			if err == nil {
				for stream.Receive() {
				}
				err = stream.Err()
				stream.Close()
			}
			<-s.events
			if err == nil {
				return 0
			}
			if !strings.Contains(err.Error(), "rate_limited: ") && !strings.Contains(err.Error(), "api_key_missing: ") {
				t.Errorf("%s: the stream fails without the code of the refusal: %v", tt.protocol, err)
			}
			return connect.CodeOf(err)
		}
		for _, c := range []struct {
			name      string
			got, want connect.Code
		}{
			{"no such key", call(createProcedure, "x", "a", ""), connect.CodeUnauthenticated},
			{"scope missing", call(createProcedure, s.narrow, "a", ""), connect.CodePermissionDenied},
			{"unknown procedure", call("/tasks.v1.Tasks/None", s.full, "a", ""), connect.CodeNotFound},
			{"create", call(createProcedure, s.full, "a", "Call"), 0},
			{"create again", call(createProcedure, s.full, "a", "Call"), tt.again},
			{"within the limit", call(getProcedure, s.limited, "a", ""), 0},
			{"over the limit", call(getProcedure, s.limited, "b", ""), connect.CodeResourceExhausted},
			{"a stream", watch(s.full), 0},
			{"a stream without a key", watch(""), connect.CodeUnauthenticated},
			{"a stream over the limit", watch(s.limited), connect.CodeResourceExhausted},
		} {
			if c.got != c.want {
				t.Errorf("%s, %s: got %v, want %v", tt.protocol, c.name, c.got, c.want)
			}
		}
	}
}
