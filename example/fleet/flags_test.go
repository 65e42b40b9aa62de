package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/ratelimit"
)

func TestFlags(t *testing.T) {
	defaults := config{addr: "127.0.0.1:8080", rate: ratelimit.MustParse("100-S"),
		sandboxRate: ratelimit.MustParse("25-S")}
	for _, row := range []struct {
		args string
		want func(*config)
	}{
		{"", func(c *config) {}},
		{"-addr :9000 -metrics :9100", func(c *config) { c.addr, c.metrics = ":9000", ":9100" }},
		{"-gateway :9200", func(c *config) { c.gateway = ":9200" }},
		{"-keys-out k.json", func(c *config) { c.keysOut = "k.json" }},
		{"-rate 7-M", func(c *config) { c.rate = ratelimit.MustParse("7-M") }},
		{"-sandbox-rate 3-H", func(c *config) { c.sandboxRate = ratelimit.MustParse("3-H") }},
		{"-latency 250ms", func(c *config) { c.latency = 250 * time.Millisecond }},
		{"-sqlite tasks.db", func(c *config) { c.sqlite = "tasks.db" }},
		{"-postgres postgres://db -redis redis://cache",
			func(c *config) { c.postgres, c.redis = "postgres://db", "redis://cache" }},
	} {
		want := defaults
		row.want(&want)
		if got, err := parseFlags(strings.Fields(row.args), t.Output()); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, %v, want %+v", row.args, got, err, want)
		}
	}
}

func TestMistakesInFlags(t *testing.T) {
	for args, want := range map[string]string{
		"-nonsense":         "-nonsense",
		"-rate":             "-rate",
		"-rate 0-S":         "-rate",
		"-sandbox-rate 5-s": "-sandbox-rate",
		"-latency soon":     "-latency",
		"-sqlite tasks.db -postgres postgres://db": "-sqlite and -postgres",
		"-sqlite file::memory:":                    "-sqlite: each connection",
		"-postgres=":                               "-postgres is empty",
		"-redis=":                                  "-redis is empty",
		"extra":                                    `"extra"`,
	} {
		var stderr strings.Builder
		_, err := parseFlags(strings.Fields(args), &stderr)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Count(stderr.String(), err.Error()) != 1 {
			t.Errorf("%q: got %v and on stderr %q, want it to name %s", args, err, &stderr, want)
		}
	}
}
