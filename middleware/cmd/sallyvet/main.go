// Sallyvet finds mistakes in handlers that compile, and that the test of a good
// request passes.
//
//	go install github.com/sallyport-go/sallyport/middleware/cmd/sallyvet@latest
//	go vet -vettool=$(which sallyvet) ./...
//
// It has a check, revealed: the text of a keystore.Secret goes to a log, an error
// or a panic. Where a report is wrong, say so on its line or on the one above:
//
//	//sallyvet:ok the log is a terminal
//
// A flag leaves out a check, such as -revealed=false. With -vettool go vet does
// not run its own checks: run it twice. Without go vet, sallyvet ./... is the
// same, and faster at first, because go vet asks it about all that is imported.
package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/multichecker"
)

var checks = []*analysis.Analyzer{revealed}

func main() { multichecker.Main(checks...) }

const ours = "github.com/sallyport-go/sallyport/"

var (
	// What these are given may be read by others.
	tells = regexp.MustCompile(`^(panic|errors\.New|fmt\.Errorf)$|^(log|log/slog|go\.uber\.org/zap|` +
		`github\.com/(rs/zerolog|sirupsen/logrus|go-logr/logr))\.`)
)

var revealed = check("revealed", "report secrets in a log, an error or a panic", func(p *pkg) {
	texts := map[*types.Var]bool{} // that hold a secret here
	for _, file := range p.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for i, l := range n.Lhs {
					texts[p.variable(l)] = len(n.Lhs) == len(n.Rhs) && p.reveals(n.Rhs[i], texts)
				}
				delete(texts, nil)
			case *ast.CallExpr:
				for _, a := range n.Args {
					if tells.MatchString(p.name(n)) && p.reveals(a, texts) {
						p.report(a.Pos(), "this shows a secret to whoever reads the log, the error or the panic: "+
							"give the keystore.Secret itself, which prints as [secret], or the id of its key")
					}
				}
			}
			return true
		})
	}
})

// reveals reports whether a value holds the text of a secret, or is in texts.
func (p *pkg) reveals(e ast.Expr, texts map[*types.Var]bool) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return texts[p.variable(e)]
	case *ast.BinaryExpr:
		return e.Op == token.ADD && (p.reveals(e.X, texts) || p.reveals(e.Y, texts))
	case *ast.CallExpr:
		called := p.name(e)
		return called == ours+"keystore.Secret.Reveal" ||
			(p.TypesInfo.Types[e.Fun].IsType() || strings.HasPrefix(called, "fmt.Sprint")) &&
				slices.ContainsFunc(e.Args, func(a ast.Expr) bool { return p.reveals(a, texts) })
	}
	return false
}
