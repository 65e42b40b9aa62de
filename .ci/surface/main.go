// Surface prints the exported surface of packages: declarations without
// comments, bodies and what is not exported. The gate compares it with
// .ci/surface/surface.txt.
//
//	go run ./.ci/surface DIR… >.ci/surface/surface.txt
package main

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	for _, dir := range os.Args[1:] {
		if err := show(dir); err != nil {
			fmt.Fprintln(os.Stderr, "surface:", err)
			os.Exit(1)
		}
	}
}

func show(dir string) error {
	names, _ := filepath.Glob(filepath.Join(dir, "*.go"))
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution) // without comments
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(fset, files, filepath.ToSlash(dir)) // sorted, and exported alone
	if err != nil {
		return err
	}
	fmt.Printf("package %s // %s\n\n", p.Name, p.ImportPath)
	for _, v := range append(p.Consts, p.Vars...) {
		write(fset, v.Decl)
	}
	write(fset, funcs(p.Funcs)...)
	for _, t := range p.Types {
		write(fset, t.Decl)
		for _, v := range append(t.Consts, t.Vars...) {
			write(fset, v.Decl)
		}
		write(fset, append(funcs(t.Funcs), funcs(t.Methods)...)...)
	}
	fmt.Println()
	return nil
}

func funcs(all []*doc.Func) (declared []ast.Decl) {
	for _, f := range all {
		f.Decl.Body = nil
		declared = append(declared, f.Decl)
	}
	return declared
}

func write(fset *token.FileSet, declared ...ast.Decl) {
	for _, d := range declared {
		printer.Fprint(os.Stdout, fset, d)
		fmt.Println()
	}
}
