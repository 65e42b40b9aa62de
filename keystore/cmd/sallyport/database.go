package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/idem/idemsql"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

const help = `
The database is that of SALLYPORT_DSN, or of the file that SALLYPORT_DSN_FILE names:
  postgres://user:password@host:5432/database
  user:password@tcp(host:3306)/database         MySQL, MariaDB
  file:/var/lib/service/keys.db                 SQLite
`

// patience is how long the database may take to answer, or to make its tables.
const patience = 10 * time.Second

// A database is the one of the environment, once it is opened.
type database struct {
	db          *sql.DB
	withReplies func(*sql.DB, idemsql.Options) *idemsql.Store
}

func (d *database) close() {
	if d.db != nil {
		d.db.Close()
	}
}

func (d *database) issuer(ctx context.Context, getenv func(string) string) (*issuing.Issuer, error) {
	store, err := d.open(getenv, "rw")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := store.Find(ctx, "", ""); !errors.Is(err, keystore.ErrNotFound) {
		return nil, fmt.Errorf("the database does not answer, or has no tables, which migrate makes: %w", err)
	}
	return issuing.New(store, issuing.Options{}), nil
}

func (d *database) migrate(ctx context.Context, getenv func(string) string) error {
	store, err := d.open(getenv, "rwc")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return store.Migrate(ctx)
}

// replies returns the reply store if its table is in the same database.
func (d *database) replies(ctx context.Context, _ func(string) string) (idem.Eraser, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	store := d.withReplies(d.db, idemsql.Options{})
	if there, err := store.HasTable(ctx); err != nil || !there {
		return nil, err
	}
	return store, nil
}

// open returns a store, which it asks nothing. mode is that of a SQLite file:
// rwc makes it. No error holds a part of the DSN.
func (d *database) open(getenv func(string) string, mode string) (*keysql.Store, error) {
	dsn, err := dsnOf(getenv)
	if err != nil {
		return nil, err
	}
	mysql.SetLogger(log.New(io.Discard, "", 0)) // what it logs is returned too
	var wrap func(*sql.DB, keysql.Options) *keysql.Store
	switch {
	case strings.HasPrefix(dsn, "postgres://"), strings.HasPrefix(dsn, "postgresql://"):
		// Where an @ ends no user, a / in the password was not escaped, and the
		// driver would show what follows it as the name of the database.
		u, urlErr := url.Parse(dsn)
		if _, err := pgx.ParseConfig(dsn); err != nil || urlErr != nil || u.User == nil && strings.Contains(dsn, "@") {
			return nil, errors.New("the DSN is not one that Postgres takes; a password in it needs %2F, %3F, %23, " +
				"%25 for / ? # %")
		}
		wrap, d.withReplies = keysql.Postgres, idemsql.Postgres
		d.db, err = sql.Open("pgx", dsn)
	case strings.HasPrefix(dsn, "file:"):
		separator := "?"
		if strings.Contains(dsn, "?") {
			separator = "&"
		}
		wrap, d.withReplies = keysql.SQLite, idemsql.SQLite
		d.db, err = sql.Open("sqlite", dsn+separator+"_pragma=busy_timeout(5000)&mode="+mode)
	default:
		wrap, d.withReplies = keysql.MySQL, idemsql.MySQL
		d.db, err = openMySQL(dsn)
	}
	if err != nil {
		return nil, err
	}
	return wrap(d.db, keysql.Options{}), nil
}

func openMySQL(dsn string) (*sql.DB, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil || config.Net != "tcp" && config.Net != "unix" {
		return nil, errors.New("the DSN is none of Postgres, MySQL or SQLite; -h shows their forms")
	}
	for name := range config.Params { // system variables: the server would log the statement that sets them
		if strings.Contains(strings.ToLower(name), "pass") {
			return nil, errors.New("in a DSN of MySQL the password stands behind the user, not among the parameters")
		}
	}
	connector, err := mysql.NewConnector(config)
	return sql.OpenDB(unquoted{connector}), err
}

// unquoted has no text of a MySQL server that refuses a connection: it quotes
// the user, the database or a parameter, and each may be a password by mistake.
type unquoted struct{ driver.Connector }

func (u unquoted) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := u.Connector.Connect(ctx)
	if refused, ok := errors.AsType[*mysql.MySQLError](err); ok {
		err = fmt.Errorf("the server refuses what the DSN says of user, password, database or parameters: error %d",
			refused.Number)
	}
	return conn, err
}

func dsnOf(getenv func(string) string) (string, error) {
	dsn, file := getenv("SALLYPORT_DSN"), getenv("SALLYPORT_DSN_FILE")
	if (dsn == "") == (file == "") {
		return "", errors.New("set either SALLYPORT_DSN or SALLYPORT_DSN_FILE to say where the keys are; -h shows " +
			"the forms")
	}
	if file == "" {
		return dsn, nil
	}
	text, err := os.ReadFile(file)
	if path, ok := errors.AsType[*fs.PathError](err); ok { // without the path, which may be a DSN by mistake
		err = fmt.Errorf("the file that SALLYPORT_DSN_FILE names cannot be read: %w", path.Err)
	}
	return strings.TrimSpace(string(text)), err
}
