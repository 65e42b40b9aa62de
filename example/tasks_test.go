package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestATaskFromItsCreationToItsEnd(t *testing.T) {
	srv := start(t, "100-S")
	got := srv.send(t, "full", "POST", "/api/v1/tasks", `{"title": "Light the harbour"}`)
	made := decode[task](t, got.text)
	if made.Title != "Light the harbour" || made.State != "open" || !strings.HasPrefix(made.ID, "task_") ||
		got.Header.Get("Location") != "/api/v1/tasks/"+made.ID {
		t.Errorf("create: got %s at %q", got.text, got.Header.Get("Location"))
	}
	at := got.Header.Get("Location")
	if found := srv.send(t, "full", "GET", at, ""); found.text != got.text {
		t.Errorf("find: got %s, want %s", found.text, got.text)
	}
	for _, key := range []string{"sandbox", "other"} {
		if got := srv.send(t, key, "GET", at, ""); got.StatusCode != http.StatusNotFound {
			t.Errorf("%s finds it: got %s", key, got.Status)
		}
		if got := srv.send(t, key, "POST", at+"/cancel", ""); got.StatusCode != http.StatusNotFound {
			t.Errorf("%s cancels it: got %s", key, got.Status)
		}
		if got := srv.send(t, key, "GET", "/api/v1/tasks", ""); got.text != "{\"tasks\":[]}\n" {
			t.Errorf("%s lists %s", key, got.text)
		}
	}
	for range 2 {
		if got := decode[task](t, srv.send(t, "full", "POST", at+"/cancel", "").text); got.ID != made.ID ||
			got.State != "cancelled" {
			t.Errorf("cancel: got %v", got)
		}
	}
	if got := decode[task](t, srv.send(t, "full", "GET", at, "").text); got.State != "cancelled" {
		t.Errorf("find after cancel: got %v", got)
	}
}

func TestTheListHasTheNewestFirst(t *testing.T) {
	srv := start(t, "1000-S")
	for i := range 105 {
		srv.send(t, "full", "POST", "/api/v1/tasks", fmt.Sprintf(`{"title": "%d"}`, i))
	}
	list := decode[struct{ Tasks []task }](t, srv.send(t, "full", "GET", "/api/v1/tasks", "").text).Tasks
	if len(list) != 100 || list[0].Title != "104" || list[99].Title != "5" {
		t.Errorf("got %d tasks, from %v to %v", len(list), list[0], list[len(list)-1])
	}
}
