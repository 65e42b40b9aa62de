package main

import (
	"errors"
	"flag"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/ratelimit"
)

func TestFlags(t *testing.T) {
	defaults := config{
		addr:            "127.0.0.1:8080",
		rate:            ratelimit.MustParse("100-S"),
		sandboxRate:     ratelimit.MustParse("25-S"),
		requestIDHeader: "Svc-Request-Id",
		service:         keystore.Service{Prefix: "svc"},
	}
	for _, row := range []struct {
		args string
		want func(*config)
	}{
		{"", func(c *config) {}},
		{"-addr 127.0.0.1:0", func(c *config) { c.addr = "127.0.0.1:0" }},
		{"-addr :9000", func(c *config) { c.addr = ":9000" }},
		{"-keys-out k.json", func(c *config) { c.keysOut = "k.json" }},
		{"-rate 7-M", func(c *config) { c.rate = ratelimit.MustParse("7-M"); c.sandboxRate = c.rate }},
		{"-rate 7-M -sandbox-rate 3-H",
			func(c *config) { c.rate = ratelimit.MustParse("7-M"); c.sandboxRate = ratelimit.MustParse("3-H") }},
		{"-sandbox-rate 3-H", func(c *config) { c.sandboxRate = ratelimit.MustParse("3-H") }},
		{"-request-id-header X-Request-Id", func(c *config) { c.requestIDHeader = "X-Request-Id" }},
		{"-key-prefix ship", func(c *config) { c.service.Prefix = "ship" }},
		{"-latency 250ms", func(c *config) { c.latency = 250 * time.Millisecond }},
		{"-sqlite tasks.db", func(c *config) { c.sqlite = "tasks.db" }},
		{"-postgres postgres://db -redis redis://cache",
			func(c *config) { c.postgres, c.redis = "postgres://db", "redis://cache" }},
		{"-postgres postgres://db -pgx", func(c *config) { c.postgres, c.pgx = "postgres://db", true }},
		{"-insecure-demo-console", func(c *config) { c.insecureConsole = true }},
		{"-access-log", func(c *config) { c.accessLog = true }},
		{"-latency=25s", func(c *config) { c.latency = 25 * time.Second }},
	} {
		want := defaults
		row.want(&want)
		var stderr strings.Builder
		got, err := parseFlags(strings.Fields(row.args), &stderr)
		if err != nil || !reflect.DeepEqual(got, want) || stderr.Len() > 0 {
			t.Errorf("%q: got %+v, %v and on stderr %q, want %+v", row.args, got, err, &stderr, want)
		}
	}
}

func TestMistakesInFlagsAreToldAllAtOnce(t *testing.T) {
	for _, row := range []struct {
		args string
		want []string // one a mistake
	}{
		{"-nonsense", []string{"-nonsense"}},
		{"-rate", []string{"-rate"}},
		{"-sqlite tasks.db -postgres postgres://db", []string{"-sqlite"}},
		{"extra", []string{`"extra"`}},
		{"-pgx", []string{"-pgx: it needs -postgres"}},
		{"-postgres= -redis= -sqlite=", []string{"-postgres: it is empty", "-redis: it is empty", "-sqlite: it is empty"}},
		{"-sqlite :memory:", []string{"-sqlite: each connection"}},
		{"-sqlite file::memory:", []string{"-sqlite: each connection"}},
		{"-addr localhost", []string{"-addr"}},
		{"-metrics localhost", []string{"-metrics"}},
		{"-rate 0-S", []string{"-rate"}},
		{"-rate fast", []string{"-rate"}},
		{"-rate -5-S", []string{"-rate"}},
		{"-rate fast -sandbox-rate 5-S", []string{"-rate"}},
		{"-sandbox-rate 5-s", []string{"-sandbox-rate"}},
		{"-request-id-header X:Y", []string{"-request-id-header"}},
		{"-request-id-header=", []string{"-request-id-header"}},
		{"-key-prefix Svc", []string{"-key-prefix"}},
		{"-latency soon", []string{"-latency"}},
		{"-latency -1s", []string{"-latency"}},
		{"-latency 26s", []string{"-latency"}},
		{
			"-addr 1 -rate 2 -sandbox-rate 3 -request-id-header é -key-prefix A_B -latency 4 five",
			[]string{`"five"`, "-addr", "-rate", "-sandbox-rate", "-request-id-header", "-key-prefix", "-latency"},
		},
	} {
		var stderr strings.Builder
		err := run(t.Context(), strings.Fields(row.args), io.Discard, &stderr)
		if _, ok := errors.AsType[usageError](err); !ok {
			t.Errorf("%q: got %v, want a usageError", row.args, err)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != len(row.want) {
			t.Errorf("%q: got %d mistakes, want %d:\n%v", row.args, len(lines), len(row.want), err)
			continue
		}
		for i, want := range row.want {
			if !strings.Contains(lines[i], want) {
				t.Errorf("%q: got %q, want it to name %s", row.args, lines[i], want)
			}
		}
		if stderr.Len() > 0 {
			t.Errorf("%q: got %q on stderr, want only the mistakes", row.args, &stderr)
		}
	}
}

func TestHelpShowsEveryFlag(t *testing.T) {
	var stderr strings.Builder
	if err := run(t.Context(), []string{"-h"}, io.Discard, &stderr); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("got %v, want flag.ErrHelp", err)
	}
	for _, name := range []string{
		"-addr", "-metrics", "-keys-out", "-rate", "-sandbox-rate", "-request-id-header", "-key-prefix",
		"-latency", "-insecure-demo-console",
	} {
		if !strings.Contains(strings.ReplaceAll(stderr.String(), "\n    ", " "), "\n  "+name+" ") {
			t.Errorf("the usage does not show %s:\n%s", name, &stderr)
		}
	}
	if !strings.Contains(stderr.String(), "keystore/cmd/sallyport@latest -h") {
		t.Errorf("the usage does not name the command for keys:\n%s", &stderr)
	}
}
