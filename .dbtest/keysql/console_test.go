package keysql_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/console"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/keystore/keysql"
)

// A page of the console's list is five statements at most, a search two, and
// one more when it finds nothing, with 10,000 keys; and a search finds the oldest
// of them.
func TestStatementsOfTheConsole(t *testing.T) {
	inEach(t, func(t *testing.T, d database) {
		seed(t, d, "acme", 10_000)
		var statements atomic.Int64
		db := d.breaking(t, func(what string) error {
			if strings.HasPrefix(what, "SELECT") {
				statements.Add(1)
			}
			return nil
		})
		store := d.wrap(db, keysql.Options{})
		token := keystore.Service{}.Generate(keystore.Production).Reveal()
		oldest := newKey("acme")
		oldest.Name, oldest.Digest, oldest.Hint = "Доставка Zürich", keystore.DigestOf(token), token[len(token)-4:]
		oldest.CreatedBy = "bea"
		oldest.CreatedAt = oldest.CreatedAt.AddDate(-1, 0, 0)
		mustInsert(t, store, oldest)
		for range 100 {
			child := newKey("acme")
			child.Parent, child.RotatedFrom, child.ExpiresAt = oldest.ID, "", time.Now().Add(time.Hour)
			mustInsert(t, store, child)
		}
		keys := console.New(issuing.New(store, issuing.Options{}), func(*http.Request) (console.Actor, error) {
			return console.Actor{ID: "ada", Organization: "acme"}, nil
		}, console.Options{})
		execute(t, d.open(t), "UPDATE sallyport_keys SET last_used_at = created_at WHERE id LIKE '%7'")
		never, endless := "&begin=5000&after=-gzt8b3t5hc0.acme_key_5", "&begin=5000&after=1xb3m9wqsqnz.acme_key_5"
		last := "?begin=10000&after=" + strconv.FormatInt(oldest.CreatedAt.Add(time.Second).UnixMicro(), 36) + ".x"
		for query, c := range map[string]struct {
			most int64
			want string // the page says it
		}{
			"":                                  {5, "1–25 of 10001 keys"},
			last:                                {4, "10001–10001 of 10001 keys"},
			"?by=user_1":                        {5, "1–25 of 10000 keys"},
			"?by=bea":                           {5, "Доставка Zürich"},
			"?sort=used":                        {5, "1–25 of 10001 keys"},
			"?sort=expiry":                      {5, "1–25 of 10001 keys"},
			"?sort=expiry&by=user_1":            {5, "1–25 of 10000 keys"},
			"?sort=used" + never:                {4, "5001–5025 of"},
			"?sort=expiry" + endless:            {4, "5001–5025 of"},
			"?parent=" + oldest.ID:              {4, "1–25 of 100 keys"},
			oldest.ID:                           {7, "See all 100"},
			"?status=scopes":                    {5, "Nothing to do"},
			"?status=never&environment=sandbox": {5, "Nothing to do"},
			"?q=NIGHTLY":                        {2, "1–25 of 10000 keys"},
			"?q=доставка+zür":                   {2, "Доставка Zürich"},
			"?q=ДОСТАВКА+ZÜR":                   {2, "Доставка Zürich"},
			"?q=" + oldest.ID:                   {2, "100 children"},
			"?q=" + oldest.Hint:                 {2, "Доставка Zürich"},
			"?q=svc_live_…" + oldest.Hint:       {2, "Доставка Zürich"},
			"?q=" + token:                       {2, ""},
			"?q=no+such":                        {3, "No such keys"},
		} {
			statements.Store(0)
			began, w := time.Now(), httptest.NewRecorder()
			keys.ServeHTTP(w, httptest.NewRequest("GET", "/"+query, nil))
			t.Logf("%s: %d statements, %v", query, statements.Load(), time.Since(began).Round(time.Millisecond))
			if n := statements.Load(); n > c.most || !strings.Contains(w.Body.String(), c.want) {
				t.Errorf("%s: %d statements, want at most %d; the page is %d and lacks %q", query, n, c.most, w.Code, c.want)
			}
			if c.want == "" && w.Header().Get("Location") != "./"+oldest.ID {
				t.Errorf("a token leads to %q, want its key", w.Header().Get("Location"))
			}
		}
	})
}
