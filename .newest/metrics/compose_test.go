package metrics

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/sallyport-go/sallyport/.ci/testlib/pgtest"
	"github.com/sallyport-go/sallyport/.ci/testlib/redistest"
	"github.com/sallyport-go/sallyport/.ci/testlib/servers"
)

// A composition is what the tests read of example/fleet/compose.yaml.
type composition struct {
	Services map[string]struct {
		Image       string
		Command     []string
		Ports       []string
		Volumes     []string
		Environment map[string]string
		Configs     []struct{ Source string }
		Deploy      struct{ Replicas int }
		DependsOn   any `yaml:"depends_on"`
		Restart     string
	}
	Configs map[string]struct{ Content string }
}

func readComposition(t *testing.T) composition {
	t.Helper()
	text, err := os.ReadFile("../../example/fleet/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c composition
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// What the parts of the file say of each other is true.
func TestComposition(t *testing.T) {
	c := readComposition(t)
	for name, service := range c.Services {
		if service.Restart != "unless-stopped" {
			t.Errorf("%s is not started again: %q", name, service.Restart)
		}
		for _, volume := range service.Volumes {
			file, _, _ := strings.Cut(volume, ":")
			if _, err := os.Stat(filepath.Join("../../example/fleet", file)); err != nil {
				t.Errorf("%s mounts what is not there: %v", name, err)
			}
		}
		for _, config := range service.Configs {
			if c.Configs[config.Source].Content == "" {
				t.Errorf("there is no config %s of %s", config.Source, name)
			}
		}
		for _, port := range service.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s is open to other machines: %s", name, port)
			}
		}
	}
	flags := strings.Join(c.Services["api"].Command, " ")
	password := c.Services["postgres"].Environment["POSTGRES_PASSWORD"]
	for _, want := range []string{":8080", ":9100", "postgres:" + password + "@postgres:5432", "redis://redis:6379"} {
		if !strings.Contains(flags, want) {
			t.Errorf("the replicas are started without %s: %s", want, flags)
		}
	}
	if to := c.Services["proxy"].Command; !slices.Contains(to, "api:8080") {
		t.Errorf("the proxy sends to %s", to)
	}
	for name := range c.Configs {
		var any map[string]any
		if err := yaml.Unmarshal([]byte(c.Configs[name].Content), &any); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	promtool := servers.Program(t, "promtool", "prometheus")
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	text := strings.ReplaceAll(c.Configs["prometheus"].Content, "/etc/prometheus/alerts.yaml",
		absolute(t, "../../middleware/middlewareprom/alerts.yaml"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "config", config).CombinedOutput(); err != nil {
		t.Errorf("promtool check config: %v\n%s", err, out)
	}
}

// The processes of the file serve as one: a proxy sends each request to another
// replica.
func testCompositionServes(t *testing.T, binary string) {
	t.Parallel()
	database := newDatabase(t)
	c := readComposition(t)
	redis := redistest.Start(t, c.Services["redis"].Command[1:]...)
	var replicas []*example
	for range c.Services["api"].Deploy.Replicas {
		var args []string
		for _, arg := range c.Services["api"].Command {
			switch name, _, _ := strings.Cut(arg, "="); name {
			case "-addr", "-metrics": // startExample has its own
			case "-postgres":
				args = append(args, name+"="+database)
			case "-redis":
				args = append(args, name+"=unix://"+redis.Addr)
			default:
				args = append(args, arg)
			}
		}
		replicas = append(replicas, startExample(t, binary, args...))
	}
	if len(replicas) < 2 {
		t.Fatalf("there are %d replicas", len(replicas))
	}
	var turn atomic.Int64
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		to, err := url.Parse(replicas[int(turn.Add(1))%len(replicas)].BaseURL)
		if err != nil {
			t.Error(err)
			return
		}
		r.SetURL(to)
		r.Out.Host = r.In.Host // as Caddy does: an idempotency key belongs to one host
	}})
	defer proxy.Close()

	var ids []string
	for i := range 2 * len(replicas) {
		resp, body := send(t, proxy.URL, replicas[0].Keys.Full, "POST", "/api/v1/tasks", "one")
		if resp.StatusCode != http.StatusCreated || (resp.Header.Get("Idempotent-Replayed") == "true") != (i > 0) {
			t.Errorf("request %d: got %s, replayed %q", i, resp.Status, resp.Header.Get("Idempotent-Replayed"))
		}
		ids = append(ids, body)
	}
	if slices.Sort(ids); len(slices.Compact(ids)) != 1 {
		t.Errorf("one key created %q", ids)
	}
	for _, replica := range replicas {
		_, text := send(t, "http://"+replica.metrics, "", "GET", "/metrics", "")
		if !strings.Contains(text, "sallyport_idempotency_last_sweep_timestamp_seconds") {
			t.Error("a replica on a database does not show its sweep")
		}
	}
}

// newDatabase returns the DSN of a schema that ends with the test.
func newDatabase(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(servers.Postgres.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	for name, value := range pgtest.Schema(t).RuntimeParams {
		q.Set(name, value)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
