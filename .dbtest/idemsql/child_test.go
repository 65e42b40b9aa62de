package idemsql_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/sallyport-go/sallyport/idem"
)

// kills is how often each of the tests that kill servers does so; SALLYPORT_KILLS
// says it. A nightly run takes 15.
var kills = 5

// childEnv makes the test binary a server of tasks; its value is an order.
const childEnv = "IDEMSQL_TEST_SERVER"

// order says what a child serves.
type order struct {
	File        string // of SQLite
	DSN, Schema string // of Postgres
	PGX         bool   // with the store of idempgx
	MariaDB     string // its DSN
	Mode        string // joined, leased, reexecuted
	Still       string // the step of a create at which the process stops itself
	Redis       string // the prefix of the claims there, if they are not in the database
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		if err := serve(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if text := os.Getenv("SALLYPORT_KILLS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			panic("SALLYPORT_KILLS: " + err.Error())
		}
		kills = n
	}
	os.Exit(m.Run())
}

// crashLease is how long the claims of a child outlive it.
const crashLease = 300 * time.Millisecond

// serve is the child. It prints where it is and with which API key, and lives
// until it is killed or its input ends.
func serve(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	d := database{name: "sqlite", file: o.File}
	if o.DSN != "" {
		conf, err := pgx.ParseConfig(o.DSN)
		if err != nil {
			return err
		}
		conf.RuntimeParams["search_path"] = o.Schema
		d = database{name: "postgres", conf: conf, pgx: o.PGX}
	}
	if o.MariaDB != "" {
		conf, err := mysql.ParseDSN(o.MariaDB)
		if err != nil {
			return err
		}
		d = database{name: "mariadb", my: conf}
	}
	db, err := d.pool()
	if err != nil {
		return err
	}
	o2 := options{
		Options: idem.Options{Join: o.Mode == "joined", Lease: crashLease, Reexecute: o.Mode == "reexecuted"},
		charged: o.Redis == "", // where nothing counts
	}
	h := create
	if o.Still != "" || o.Redis != "" {
		o2.around = func(s idem.Store) idem.Store { return o.stepped(s) }
	}
	if o.Still != "" {
		o2.Lease, h = stillLease, o.create
	}
	s, err := makeServer(d, db, keepsAll, o2, h)
	if err != nil {
		return err
	}
	switch {
	case o.Still != "" && o2.charged: // there are many of them at the same time
		go s.store.Run(context.Background())
	case o2.charged:
		go addUp(context.Background(), s.store)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(l, s)
	fmt.Printf("http://%s %s\n", l.Addr(), s.token)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// child is the server that runs now; there is another after each kill.
type child struct {
	t     *testing.T
	order string

	mu    sync.Mutex
	up    chan struct{} // closed while there is one
	base  string
	token string
	cmd   *exec.Cmd
}

func startChild(t *testing.T, d database, o order) *child {
	o.File, o.PGX = d.file, d.pgx
	if d.conf != nil {
		o.DSN, o.Schema = d.conf.ConnString(), d.conf.RuntimeParams["search_path"]
	}
	if d.my != nil {
		o.MariaDB = d.my.FormatDSN()
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, order: string(text), up: make(chan struct{})}
	t.Cleanup(c.kill)
	c.start()
	return c
}

func (c *child) start() {
	c.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+c.order)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		c.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		c.t.Fatalf("the server did not start: %v", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cmd = cmd
	c.base, c.token, _ = strings.Cut(strings.TrimSpace(line), " ")
	close(c.up)
}

// kill ends the server without a word.
func (c *child) kill() {
	c.mu.Lock()
	cmd := c.cmd
	if cmd != nil {
		c.cmd, c.up = nil, make(chan struct{})
	}
	c.mu.Unlock()
	if cmd != nil {
		cmd.Process.Kill()
		cmd.Wait()
	}
}

// post asks the server that runs, or the next one.
func (c *child) post(key string) (answer, error) { return c.postTitle(key, key) }

// postTitle has a header field for each of hold; see create.
func (c *child) postTitle(key, title string, hold ...string) (answer, error) {
	c.mu.Lock()
	up := c.up
	c.mu.Unlock()
	<-up
	c.mu.Lock()
	base, token := c.base, c.token
	c.mu.Unlock()
	r := newPost(base, token, key, title)
	for _, field := range hold {
		r.Header.Set(field, "yes")
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, string(body), res.Header}, err
}
