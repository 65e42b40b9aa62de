package scope_test

import (
	"testing"

	"github.com/sallyport-go/sallyport/scope"
)

func BenchmarkParse(b *testing.B) {
	names := scope.ExternalWorker()
	b.ReportAllocs()
	for b.Loop() {
		scope.Default().Parse(names)
	}
}

func BenchmarkHas(b *testing.B) {
	held, _ := scope.Default().Parse(scope.ExternalWorker())
	b.ReportAllocs()
	for b.Loop() {
		held.Has(scope.ChatWrite)
	}
}

func BenchmarkHasAll(b *testing.B) {
	names := scope.ExternalWorker()
	for name, r := range map[string]*scope.Registry{
		"plain":   scope.Default(),
		"implied": implying(scope.ChatWrite, scope.ChatRead),
	} {
		b.Run(name, func(b *testing.B) {
			held, _ := r.Parse(names)
			required, _ := r.Parse(names[1:2])
			b.ReportAllocs()
			for b.Loop() {
				held.HasAll(required)
			}
		})
	}
}

func BenchmarkSuggest(b *testing.B) {
	for b.Loop() {
		scope.Default().Suggest("task:read")
	}
}
