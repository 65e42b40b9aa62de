// Sallyvet finds mistakes in handlers that compile, and that the test of a good
// request passes.
//
//	go install github.com/sallyport-go/sallyport/middleware/cmd/sallyvet@latest
//	go vet -vettool=$(which sallyvet) ./...
//
// It has four checks:
//
//   - poolwrite: a handler that has the transaction of a joined request writes
//     by the pool, itself or in a function of its package that it gives the
//     context to. What is written so stands without the reply.
//   - freedwrite: Execution.Free is called after a write, which a repeat of the
//     request then does again.
//   - revealed: the text of a keystore.Secret goes to a log, an error or a panic.
//   - afterproblem: a handler goes on to write after WriteProblem.
//
// They follow the paths of one function at a time and leave out what they are
// not sure of, so a mistake may remain without a report. Reads by the pool are
// not reported, because they may go to a replica; go and defer are not looked
// into. Where a report is wrong, such as for a write to another database, say so
// on its line or on the one above:
//
//	//sallyvet:ok the audit log is in another database
//
// A flag leaves out a check, such as -freedwrite=false. With -vettool go vet does
// not run its own checks: run it twice. Without go vet, sallyvet ./... is the
// same, and faster at first, because go vet asks it about all that is imported.
package main

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/multichecker"
)

var checks = []*analysis.Analyzer{poolwrite, freedwrite, revealed, afterproblem}

func main() { multichecker.Main(checks...) }

const ours = "github.com/sallyport-go/sallyport/"

var (
	requestTx = regexp.MustCompile(`^` + ours + `idem/(idemsql|idempgx)\.Tx$`)
	pool      = regexp.MustCompile(`^(database/sql\.(DB|Conn)|github\.com/jackc/pgx/v5/pgxpool\.(Pool|Conn))$`)
	tx        = regexp.MustCompile(`^(database/sql|github\.com/jackc/pgx/v5(/pgxpool)?)\.Tx$`)
	statement = regexp.MustCompile(`^(.+)\.(Exec|Query|QueryRow|Begin|BeginTx|CopyFrom|Commit)(Context)?$`)
	contexts  = regexp.MustCompile(`^(context\.Context|net/http\.Request)$`)
	changes   = regexp.MustCompile(
		`(?is)\b(insert|merge|replace)\s.*\binto\b|\bupdate\b.*\bset\b|\bdelete\s+from\b|\btruncate\b`)

	// What these are given may be read by others.
	tells = regexp.MustCompile(`^(panic|errors\.New|fmt\.Errorf)$|^(log|log/slog|go\.uber\.org/zap|` +
		`github\.com/(rs/zerolog|sirupsen/logrus|go-logr/logr))\.`)
	// These write to their first argument.
	sends = regexp.MustCompile(`^fmt\.Fprint|^io\.(WriteString|Copy)$|^encoding/json\.NewEncoder$|` +
		`^net/http\.(Error|NotFound|Redirect|Serve\w+|\w+\.ServeHTTP)$|^(html|text)/template\.Template\.Execute`)
)

var poolwrite = check("poolwrite", "report writes by the pool where the transaction of a joined request is at hand",
	func(p *pkg) {
		takes := p.takes()
		helpers := map[types.Object]string{} // what functions of the package write by
		for _, f := range p.functions {
			p.calls(f.body, func(call *ast.CallExpr) {
				if on, _ := p.writes(call); pool.MatchString(on) && !has(f.body, takes) {
					helpers[f.object] = on
				}
			})
		}
		p.after(func(_ function, call *ast.CallExpr) bool { return takes(call) }, yes, func(_, call *ast.CallExpr) {
			const why = "which stands without the reply of the request, whose transaction is at hand: "
			on, _ := p.writes(call)
			helper := p.callee(call)
			given := func(is func(types.Type) bool) bool {
				return slices.ContainsFunc(call.Args, func(a ast.Expr) bool { return is(p.TypesInfo.TypeOf(a)) })
			}
			if pool.MatchString(on) {
				p.report(call.Pos(), "this writes by a %s, "+why+"write by the transaction", on)
			} else if helpers[helper] != "" && given(carries) && !given(executes) {
				p.report(call.Pos(), "%s writes by a %s, "+why+"give it the transaction", helper.Name(), helpers[helper])
			}
		})
	})

// carries reports whether values of a type have the context of a request.
func carries(t types.Type) bool { return contexts.MatchString(typeName(t)) }

// executes reports whether a type is that of a transaction, or an interface that
// a transaction is behind.
func executes(t types.Type) bool {
	if types.IsInterface(t) {
		for _, method := range []string{"Exec", "ExecContext"} {
			if o, _, _ := types.LookupFieldOrMethod(t, true, nil, method); o != nil {
				return true
			}
		}
	}
	return tx.MatchString(typeName(t))
}

var freedwrite = check("freedwrite", "report calls of Execution.Free after a write", func(p *pkg) {
	takes := p.takes()
	wrote := func(f function, call *ast.CallExpr) bool {
		on, method := p.writes(call)
		begins := strings.HasPrefix(method, "Begin")
		return method == "Commit" || !begins && (pool.MatchString(on) || on != "" && has(f.body, takes))
	}
	p.after(wrote, bound, func(_, call *ast.CallExpr) {
		if p.name(call) == ours+"middleware.Execution.Free" {
			p.report(call.Pos(), "Execution.Free after a write lets a repeat write again: call it before the first write; "+
				"in joined mode answer with a status that rolls back, such as 500")
		}
	})
})

// takes returns what reports whether a call yields the transaction of a request,
// also by a function of the package.
func (p *pkg) takes() func(*ast.CallExpr) bool {
	wrappers := map[types.Object]bool{}
	takes := func(call *ast.CallExpr) bool { return requestTx.MatchString(p.name(call)) || wrappers[p.callee(call)] }
	for _, f := range p.functions {
		results := f.object.Type().(*types.Signature).Results()
		wrappers[f.object] = results.Len() > 0 && tx.MatchString(typeName(results.At(0).Type())) && has(f.body, takes)
	}
	return takes
}

// writes returns the type and the method by which a call changes rows, or is
// about to: "" for one that reads, or may read.
func (p *pkg) writes(call *ast.CallExpr) (on, method string) {
	parts := statement.FindStringSubmatch(p.name(call))
	if parts == nil || !pool.MatchString(parts[1]) && !tx.MatchString(parts[1]) {
		return "", ""
	}
	var text string // of the statement, if it is a constant
	for _, a := range slices.Backward(call.Args[:min(2, len(call.Args))]) {
		if value := p.TypesInfo.Types[a].Value; value != nil && value.Kind() == constant.String {
			text = constant.StringVal(value)
		}
	}
	reads := !changes.MatchString(text)
	switch parts[2] {
	case "Begin", "CopyFrom", "Commit":
		reads = false
	case "BeginTx":
		options := call.Args[len(call.Args)-1] // or a call that returns all arguments
		reads = p.variable(options) != nil || has(options, func(i *ast.Ident) bool { return i.Name == "ReadOnly" })
	case "Exec":
		reads = reads && text != ""
	}
	if reads {
		return "", ""
	}
	return parts[1], parts[2]
}

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

var afterproblem = check("afterproblem", "report writes to a response after WriteProblem", func(p *pkg) {
	// Functions of the package that always write, or write a problem, to their
	// first parameter.
	sending, problems := map[types.Object]bool{}, map[types.Object]bool{}
	problem := func(_ function, call *ast.CallExpr) bool {
		return p.name(call) == ours+"middleware.WriteProblem" || problems[p.callee(call)]
	}
	to := func(call *ast.CallExpr, w *types.Var) bool {
		called := p.name(call)
		method, ok := call.Fun.(*ast.SelectorExpr)
		return ok && strings.HasPrefix(called, "net/http.ResponseWriter.Write") && p.variable(method.X) == w ||
			(sends.MatchString(called) || problem(function{}, call) || sending[p.callee(call)]) && p.variable(call.Args[0]) == w
	}
	for _, f := range p.functions {
		w := f.object.Type().(*types.Signature).Params()
		for _, s := range f.body.List {
			if s, ok := s.(*ast.ExprStmt); ok && w.Len() > 0 && !has(f.body, func(*ast.ReturnStmt) bool { return true }) {
				p.calls(s, func(call *ast.CallExpr) {
					if to(call, w.At(0)) {
						sending[f.object], problems[f.object] = true, problems[f.object] || problem(f, call)
					}
				})
			}
		}
	}
	p.after(problem, bound, func(begin, call *ast.CallExpr) {
		w := p.variable(begin.Args[0])
		if w != nil && to(call, w) && (call.Pos() > begin.Pos() || p.around(w, begin)) {
			p.report(call.Pos(), "this writes to a response that has the problem of line %d already: "+
				"return after WriteProblem", p.Fset.Position(begin.Pos()).Line)
		}
	})
})
