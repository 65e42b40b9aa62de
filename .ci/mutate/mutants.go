package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// mutant is one change: the bytes from start to end give way to new. The
// change is made in the text and not in the tree, so that nothing else moves.
type mutant struct {
	path       string // of the file
	shown      string // the path as it is printed
	line       int
	function   string
	start, end int
	new        string
	before     string // what is printed, on one line
	after      string
}

// text names a mutant without its line.
func (m mutant) text() string {
	return fmt.Sprintf("%s: %s: %s → %s", m.shown, m.function, m.before, m.after)
}

// place names all mutants of the same expression.
func (m mutant) place() string {
	return fmt.Sprintf("%s: %s: %s", m.shown, m.function, m.before)
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d:%s", m.shown, m.line, strings.TrimPrefix(m.text(), m.shown+":"))
}

// finder collects the mutants of one file.
type finder struct {
	path, shown string
	src         []byte
	fset        *token.FileSet
	function    string
	count       map[string]int
	found       []mutant
}

// find returns the mutants of a file, in its order.
func find(path, shown string, src []byte) ([]mutant, error) {
	f := finder{path: path, shown: shown, src: src, fset: token.NewFileSet(), count: map[string]int{}}
	file, err := parser.ParseFile(f.fset, path, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	ast.PreorderStack(file, nil, func(n ast.Node, stack []ast.Node) bool {
		f.function = f.functionOf(n, stack)
		f.visit(n, stack)
		return true
	})
	return f.found, nil
}

// functionOf names the declaration that a node is in.
func (f *finder) functionOf(n ast.Node, stack []ast.Node) string {
	for _, outer := range append(slices.Clone(stack), n) {
		switch d := outer.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				return d.Name.Name
			}
			// "*set[K]" is shown as "set".
			receiver, _, _ := strings.Cut(strings.TrimPrefix(f.text(d.Recv.List[0].Type), "*"), "[")
			return receiver + "." + d.Name.Name
		case *ast.ValueSpec:
			return d.Names[0].Name
		case *ast.TypeSpec:
			return d.Name.Name
		}
	}
	return "file"
}

var swapped = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS,
	token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD,
	token.MUL: token.QUO, token.QUO: token.MUL,
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN,
	token.INC: token.DEC, token.DEC: token.INC,
}

func (f *finder) visit(n ast.Node, stack []ast.Node) {
	switch n := n.(type) {
	case *ast.IfStmt:
		f.negate(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			f.negate(n.Cond)
		}
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, clause := range n.Body.List {
				for _, condition := range clause.(*ast.CaseClause).List {
					f.negate(condition)
				}
			}
		}
	case *ast.BinaryExpr:
		if !isString(n.X) && !isString(n.Y) {
			f.swap(n, n.OpPos, n.Op)
		}
	case *ast.IncDecStmt:
		f.swap(n, n.TokPos, n.Tok)
	case *ast.AssignStmt:
		f.swap(n, n.TokPos, n.Tok)
	case *ast.BasicLit:
		f.shift(n, stack)
	case *ast.ReturnStmt:
		f.zero(n, stack)
	case *ast.BlockStmt:
		f.deletions(n.List)
	case *ast.CaseClause:
		f.deletions(n.Body)
	case *ast.CommClause:
		f.deletions(n.Body)
	}
}

func isString(x ast.Expr) bool {
	literal, ok := x.(*ast.BasicLit)
	return ok && literal.Kind == token.STRING
}

func isLogical(n ast.Node) bool {
	x, ok := n.(*ast.BinaryExpr)
	return ok && (x.Op == token.LAND || x.Op == token.LOR)
}

// negate turns a condition round, unless swap does the same.
func (f *finder) negate(condition ast.Expr) {
	switch x := condition.(type) {
	case *ast.BinaryExpr:
		if x.Op == token.EQL || x.Op == token.NEQ {
			return
		}
	case *ast.UnaryExpr:
		if x.Op == token.NOT {
			f.add(condition, condition, "("+f.text(x.X)+")", f.text(x.X))
			return
		}
	}
	negated := "!(" + f.text(condition) + ")"
	f.add(condition, condition, negated, negated)
}

func (f *finder) swap(n ast.Node, at token.Pos, operator token.Token) {
	other, ok := swapped[operator]
	if !ok {
		return
	}
	start, end := f.offset(at), f.offset(at)+len(operator.String())
	after := string(f.src[f.offset(n.Pos()):start]) + other.String() + string(f.src[end:f.offset(n.End())])
	f.addBytes(n, start, end, other.String(), after)
}

// shift makes an integer one larger and one smaller. It is shown with what
// stands around it, unless that is long.
func (f *finder) shift(n *ast.BasicLit, stack []ast.Node) {
	value, err := strconv.ParseInt(n.Value, 0, 64)
	if n.Kind != token.INT || err != nil || isRoom(n, stack[len(stack)-1]) {
		return
	}
	format := "%d"
	if strings.HasPrefix(n.Value, "0x") {
		format = "%#x"
	}
	var shown ast.Node = n
	for _, around := range slices.Backward(stack) {
		if _, ok := around.(ast.Expr); !ok && shown != ast.Node(n) || isLogical(around) || len(f.text(around)) > 60 {
			break
		}
		shown = around
	}
	start, end := f.offset(n.Pos()), f.offset(n.End())
	for _, other := range []int64{value + 1, value - 1} {
		literal := fmt.Sprintf(format, other)
		if other < 0 {
			literal = "(" + literal + ")"
		}
		after := string(f.src[f.offset(shown.Pos()):start]) + literal + string(f.src[end:f.offset(shown.End())])
		f.addBytes(shown, start, end, literal, after)
	}
}

// isRoom reports whether a number says how much room an array, a channel, a map
// or a slice has. More or less of it changes no result that a test could see.
func isRoom(n *ast.BasicLit, around ast.Node) bool {
	switch around := around.(type) {
	case *ast.ArrayType:
		return true
	case *ast.CallExpr:
		if f, ok := around.Fun.(*ast.Ident); !ok || f.Name != "make" {
			return false
		}
		_, slice := around.Args[0].(*ast.ArrayType)
		return len(around.Args) == 3 && around.Args[2] == n || !slice && len(around.Args) == 2 && around.Args[1] == n
	}
	return false
}

// deletions removes calls, assignments, sends, defers and go statements.
// "if false" keeps what they use in use, so that the mutant builds.
func (f *finder) deletions(statements []ast.Stmt) {
	for _, s := range statements {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
		case *ast.ExprStmt, *ast.SendStmt, *ast.DeferStmt, *ast.GoStmt:
		default:
			continue
		}
		f.add(s, s, "if false { "+f.text(s)+" }", "deleted")
	}
}

// zero replaces each returned value by the zero value of its type.
func (f *finder) zero(n *ast.ReturnStmt, stack []ast.Node) {
	types := resultsOf(stack)
	if len(n.Results) == 0 || len(types) == 0 {
		return
	}
	values := make([]string, len(types))
	if len(n.Results) != len(types) { // return f()
		for i, t := range types {
			values[i] = f.zeroOf(t)
		}
		f.replaceReturn(n, values)
		return
	}
	for i, result := range n.Results {
		for j, other := range n.Results {
			values[j] = f.text(other)
		}
		values[i] = f.zeroOf(types[i])
		switch old := f.text(result); {
		case old == "false":
			values[i] = "true"
		case old == values[i] || old == "nil" || old == "0" || old == `""` || old == f.text(types[i])+"{}":
			continue
		}
		f.replaceReturn(n, values)
	}
}

func (f *finder) replaceReturn(n *ast.ReturnStmt, values []string) {
	after := "return " + strings.Join(values, ", ")
	f.add(n, n, "{ if false { "+f.text(n)+" }; "+after+" }", after)
}

// resultsOf returns a type for each result of the innermost function.
func resultsOf(stack []ast.Node) []ast.Expr {
	for _, n := range slices.Backward(stack) {
		var t *ast.FuncType
		switch n := n.(type) {
		case *ast.FuncDecl:
			t = n.Type
		case *ast.FuncLit:
			t = n.Type
		default:
			continue
		}
		var types []ast.Expr
		if t.Results != nil {
			for _, field := range t.Results.List {
				for range max(1, len(field.Names)) {
					types = append(types, field.Type)
				}
			}
		}
		return types
	}
	return nil
}

var zeros = map[string]string{"bool": "false", "string": `""`, "error": "nil", "any": "nil", "int": "0", "int64": "0",
	"int32": "0", "uint": "0", "uint64": "0", "uint32": "0", "uint16": "0", "byte": "0", "rune": "0", "float64": "0"}

func (f *finder) zeroOf(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr, *ast.MapType, *ast.FuncType, *ast.ChanType, *ast.InterfaceType:
		return "nil"
	case *ast.ArrayType:
		if t.Len == nil {
			return "nil"
		}
	}
	if zero, ok := zeros[f.text(t)]; ok {
		return zero
	}
	return "*new(" + f.text(t) + ")"
}

func (f *finder) offset(p token.Pos) int { return f.fset.Position(p).Offset }

func (f *finder) text(n ast.Node) string {
	return string(f.src[f.offset(n.Pos()):f.offset(n.End())])
}

// add replaces a whole node. The mutant is shown as a change of shown.
func (f *finder) add(n, shown ast.Node, replacement, after string) {
	f.addBytes(shown, f.offset(n.Pos()), f.offset(n.End()), replacement, after)
}

func (f *finder) addBytes(shown ast.Node, start, end int, replacement, after string) {
	m := mutant{
		path: f.path, shown: f.shown, line: f.fset.Position(shown.Pos()).Line, function: f.function,
		start: start, end: end, new: replacement, before: oneLine(f.text(shown)), after: oneLine(after),
	}
	f.count[m.text()]++
	if n := f.count[m.text()]; n > 1 {
		m.after += fmt.Sprintf(" #%d", n)
	}
	f.found = append(f.found, m)
}

// oneLine shortens a long text to what its ends say.
func oneLine(text string) string {
	r := []rune(strings.Join(strings.Fields(text), " "))
	if len(r) > 100 {
		return string(r[:70]) + " … " + string(r[len(r)-25:])
	}
	return string(r)
}
