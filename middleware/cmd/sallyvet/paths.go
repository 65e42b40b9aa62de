package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/types/typeutil"
)

// A pkg is a package that is checked.
type pkg struct {
	*analysis.Pass
	told map[line]bool // or not to be told, by a comment
}

type line [2]any // the file and its number

func check(name, doc string, run func(*pkg)) *analysis.Analyzer {
	return &analysis.Analyzer{Name: name, Doc: doc, Run: func(pass *analysis.Pass) (any, error) {
		p := &pkg{pass, map[line]bool{}}
		for _, file := range pass.Files {
			for _, group := range file.Comments {
				if at := pass.Fset.Position(group.End()); strings.HasPrefix(group.List[len(group.List)-1].Text, "//sallyvet:ok ") {
					p.told[line{at.Filename, at.Line}], p.told[line{at.Filename, at.Line + 1}] = true, true
				}
			}
		}
		run(p)
		return nil, nil
	}}
}

// report reports a mistake, once for a line.
func (p *pkg) report(pos token.Pos, format string, args ...any) {
	at := p.Fset.Position(pos)
	if !p.told[line{at.Filename, at.Line}] {
		p.told[line{at.Filename, at.Line}] = true
		p.Reportf(pos, format, args...)
	}
}

func (p *pkg) callee(call *ast.CallExpr) types.Object { return typeutil.Callee(p.TypesInfo, call) }

// name returns the name of the function or method that is called with its
// package, such as database/sql.DB.Exec, "panic", or "" for a value.
func (p *pkg) name(call *ast.CallExpr) string {
	switch o := p.callee(call).(type) {
	case *types.Func:
		return strings.NewReplacer("(", "", "*", "", ")", "").Replace(o.FullName())
	case *types.Builtin:
		return o.Name()
	}
	return ""
}

// variable returns the variable that an expression is, or nil.
func (p *pkg) variable(e ast.Expr) *types.Var {
	id, _ := ast.Unparen(e).(*ast.Ident)
	v, _ := p.TypesInfo.ObjectOf(id).(*types.Var)
	return v
}
