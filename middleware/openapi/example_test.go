package openapi_test

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"

	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/middleware"
	"github.com/sallyport-go/sallyport/middleware/openapi"
	"github.com/sallyport-go/sallyport/scope"
)

func ExampleDocument() {
	api := middleware.NewAPI(issuing.NewMemory(), middleware.Options{})
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), func(http.ResponseWriter, *http.Request) {})
	text := openapi.Document(api, openapi.Info{Title: "Tasks", Version: "2", Servers: []string{"https://api.example.com"}})

	var document struct {
		Paths map[string]map[string]struct{ Security any }
	}
	if err := json.Unmarshal(text, &document); err != nil {
		log.Fatal(err)
	}
	fmt.Println(document.Paths["/api/v1/tasks"]["post"].Security)
	// Output:
	// [map[apiKey:[tasks:write]]]
}

// A team that writes its document by hand holds it to the routes.
func ExampleDrift() {
	api := middleware.NewAPI(issuing.NewMemory(), middleware.Options{})
	api.HandleFunc("POST /api/v1/tasks", middleware.Require(scope.TasksWrite), func(http.ResponseWriter, *http.Request) {})
	fmt.Println(openapi.Drift(api, []byte(`{"openapi": "3.1.0", "paths": {}}`)))
	// Output:
	// the OpenAPI document and the registered routes drift apart:
	// POST /api/v1/tasks is registered and not in the document
}
