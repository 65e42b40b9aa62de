package main

import (
	"cmp"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/cfg"
	"golang.org/x/tools/go/types/typeutil"
)

// A pkg is a package that is checked.
type pkg struct {
	*analysis.Pass
	functions []function
	told      map[line]bool // or not to be told, by a comment
}

type line [2]any // the file and its number

// A function is a declared function, or a literal, whose object is its own.
type function struct {
	object types.Object
	body   *ast.BlockStmt
}

func check(name, doc string, run func(*pkg)) *analysis.Analyzer {
	return &analysis.Analyzer{Name: name, Doc: doc, Run: func(pass *analysis.Pass) (any, error) {
		p := &pkg{pass, nil, map[line]bool{}}
		for _, file := range pass.Files {
			for _, group := range file.Comments {
				if at := pass.Fset.Position(group.End()); strings.HasPrefix(group.List[len(group.List)-1].Text, "//sallyvet:ok ") {
					p.told[line{at.Filename, at.Line}], p.told[line{at.Filename, at.Line + 1}] = true, true
				}
			}
			has(file, func(n ast.Node) bool {
				switch fn := n.(type) {
				case *ast.FuncDecl:
					// One in assembly has no body.
					p.functions = append(p.functions, function{pass.TypesInfo.Defs[fn.Name], cmp.Or(fn.Body, &ast.BlockStmt{})})
				case *ast.FuncLit:
					o := types.NewFunc(fn.Pos(), pass.Pkg, "", pass.TypesInfo.TypeOf(fn).(*types.Signature))
					p.functions = append(p.functions, function{o, fn.Body})
				}
				return false
			})
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

// typeName returns the name of a type, or of what it points to.
func typeName(t types.Type) string { return strings.TrimLeft(types.TypeString(t, nil), "*") }

// variable returns the variable that an expression is, or nil.
func (p *pkg) variable(e ast.Expr) *types.Var {
	id, _ := ast.Unparen(e).(*ast.Ident)
	v, _ := p.TypesInfo.ObjectOf(id).(*types.Var)
	return v
}

// around reports whether a loop comes to a call again with the same variable, one
// that is declared outside of it.
func (p *pkg) around(v *types.Var, call *ast.CallExpr) bool {
	within := func(pos token.Pos, n ast.Node) bool { return n.Pos() <= pos && pos < n.End() }
	return slices.ContainsFunc(p.Files, func(f *ast.File) bool {
		return has(f, func(n ast.Stmt) bool {
			_, isFor := n.(*ast.ForStmt)
			_, isRange := n.(*ast.RangeStmt)
			return (isFor || isRange) && within(call.Pos(), n) && !within(v.Pos(), n)
		})
	})
}

// has reports whether a node inside of n, or n, is one of those.
func has[N ast.Node](n ast.Node, is func(N) bool) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		node, ok := n.(N)
		found = found || ok && is(node)
		return !found
	})
	return found
}

// facts is what is known of variables on a path.
type facts map[*types.Var]fact

type fact int

const (
	yes   fact = iota + 1 // true, or not nil
	no                    // nil
	bound                 // it depends on what came before: a condition on it ends the path
)

// after follows the paths from each call that begins one, and visits the calls
// on them. The call has succeeded: its error is nil, and its other results have
// a fact. The variables of an if statement around it are bound, and those that
// the blocks around it change.
//
// The graphs are made here, because the pass ctrlflow would analyse all packages
// that are imported.
func (p *pkg) after(begins func(function, *ast.CallExpr) bool, result fact, visit func(begin, call *ast.CallExpr)) {
	for _, f := range p.functions {
		for _, b := range cfg.New(f.body, func(call *ast.CallExpr) bool { return p.name(call) != "panic" }).Blocks {
			for i, n := range b.Nodes {
				p.calls(n, func(begin *ast.CallExpr) {
					if !b.Live || !begins(f, begin) {
						return
					}
					known := facts{}
					has(f.body, func(s *ast.IfStmt) bool {
						return s.Body.Pos() < begin.Pos() && begin.Pos() < s.End() &&
							has(s.Cond, func(id *ast.Ident) bool { known[p.variable(id)] = bound; return false })
					})
					has(f.body, func(s *ast.BlockStmt) bool {
						if s != f.body && s.Pos() < begin.Pos() && begin.Pos() < s.End() {
							p.changed(s, known)
						}
						return false
					})
					p.walk(b, i+1, p.learn(n, known, result), map[*cfg.Block]bool{}, func(c *ast.CallExpr) { visit(begin, c) })
				})
			}
		}
	}
}

// walk visits the calls from a node of a block on, and comes to a block once.
func (p *pkg) walk(b *cfg.Block, from int, known facts, seen map[*cfg.Block]bool, visit func(*ast.CallExpr)) {
	var is fact // of the condition at the end, or bound if the tag of a switch is
	for _, n := range b.Nodes[from:] {
		p.calls(n, visit)
		known = p.learn(n, known, 0)
		if e, ok := n.(ast.Expr); ok {
			is = max(is, p.condition(e, known))
		}
	}
	known = maps.Clone(known) // of this path
	goes := func(i int) bool { return is == 0 || is == yes && i == 0 || is == no && i == len(b.Succs)-1 }
	for i, next := range b.Succs {
		for _, n := range next.Nodes {
			if !goes(i) && is != bound {
				p.changed(n, known) // a flag that the path would have, had the call failed
			}
		}
	}
	for i, next := range b.Succs {
		if !seen[next] && goes(i) {
			seen[next] = true
			p.walk(next, 0, known, seen, visit)
		}
	}
}

// calls visits the calls in a node, but none that run at another time.
func (p *pkg) calls(n ast.Node, visit func(*ast.CallExpr)) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.DeferStmt, *ast.FuncLit:
			return false
		case *ast.CallExpr:
			visit(n)
		}
		return true
	})
}

// condition returns what is known of a condition, or of the tag of a switch.
func (p *pkg) condition(cond ast.Expr, known facts) fact {
	not := [...]fact{yes: no, no: yes, bound: bound}
	switch e := ast.Unparen(cond).(type) {
	case *ast.Ident:
		return known[p.variable(e)]
	case *ast.UnaryExpr:
		return not[p.condition(e.X, known)]
	case *ast.BinaryExpr:
		is := p.condition(e.X, known)
		if p.TypesInfo.Types[e.Y].IsNil() {
			return map[token.Token]fact{token.EQL: not[is], token.NEQ: is}[e.Op]
		} else if (e.Op == token.LAND || e.Op == token.LOR) && is == p.condition(e.Y, known) {
			return is
		}
	case *ast.CallExpr: // such as errors.Is(err, …) of an err that is nil
		if slices.ContainsFunc(e.Args, func(a ast.Expr) bool { return known[p.variable(a)] == no }) {
			return no
		}
	}
	if p.mentions(cond, known, yes) {
		return bound
	}
	return 0
}

func (p *pkg) mentions(n ast.Node, known facts, least fact) bool {
	return has(n, func(id *ast.Ident) bool { return known[p.variable(id)] >= least })
}

// changed lets what a node assigns to be bound: of a parameter or the receiver,
// such as r.Body, the field alone, since all that a handler does goes by these.
func (p *pkg) changed(n ast.Node, known facts) {
	bind := func(e ast.Expr) {
		has(e, func(id *ast.Ident) bool {
			v := p.variable(id)
			if v != nil && (v.Kind() == types.ParamVar || v.Kind() == types.RecvVar) &&
				has(e, func(s *ast.SelectorExpr) bool { return s.X == id }) {
				return false
			}
			known[v] = bound
			return true
		})
	}
	has(n, func(s *ast.AssignStmt) bool {
		for _, l := range s.Lhs {
			if s.Tok != token.DEFINE {
				bind(l)
			}
		}
		return false
	})
	has(n, func(s *ast.IncDecStmt) bool { bind(s.X); return false })
	delete(known, nil)
}

// learn returns what is known after a node: of the results of a call that begins
// a path, of others what follows from before. What a call returns is bound if it
// is a method of such a value, as in n, err := result.RowsAffected().
func (p *pkg) learn(n ast.Node, before facts, result fact) facts {
	known := maps.Clone(before)
	defer delete(known, nil)
	s, ok := n.(*ast.AssignStmt)
	if !ok {
		p.changed(n, known)
		return known
	}
	for i, l := range s.Lhs {
		if _, ok := ast.Unparen(l).(*ast.Ident); !ok {
			p.changed(s, known)
			continue
		}
		v, from, least := p.variable(l), s.Rhs[min(i, len(s.Rhs)-1)], yes
		value, adds := p.TypesInfo.Types[from], s.Tok != token.ASSIGN && s.Tok != token.DEFINE
		if call, ok := from.(*ast.CallExpr); ok && !p.TypesInfo.Types[call.Fun].IsType() {
			from, least = call.Fun, bound
		}
		switch {
		case result != 0 && typeName(p.TypesInfo.TypeOf(l)) == "error":
			known[v] = no
		case result != 0:
			known[v] = result
		case adds || value.Value != nil || value.IsNil() || p.mentions(from, before, least):
			known[v] = bound
		default:
			delete(known, v)
		}
	}
	return known
}
