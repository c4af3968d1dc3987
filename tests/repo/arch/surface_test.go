package arch

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/surface.txt anew")

// identifier is one of a package that others see.
type identifier struct{ name, declaration string }

// surface returns what others see of a package, sorted.
func surface(t *testing.T, folder string) (top, members []identifier) {
	t.Helper()
	files := productFiles(t, filepath.Join("..", "..", "..", folder))
	if len(files) == 0 {
		t.Fatalf("%s has no files", folder)
	}
	for _, f := range files {
		ast.FileExports(f)
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				d.Body, d.Doc = nil, nil
				id := identifier{d.Name.Name, text(d)}
				if d.Recv == nil {
					top = append(top, id)
				} else {
					members = append(members, id)
				}
			case *ast.GenDecl:
				top = append(top, declared(d)...)
			}
		}
	}
	byName := func(a, b identifier) int { return strings.Compare(a.declaration, b.declaration) }
	slices.SortFunc(top, byName)
	slices.SortFunc(members, byName)
	return top, members
}

// productFiles parses the files of a folder that are neither tests nor generated.
func productFiles(t *testing.T, folder string) (files []*ast.File) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if !ast.IsGenerated(parsed) {
			files = append(files, parsed)
		}
	}
	return files
}

// declared returns the types, constants and variables of a declaration.
func declared(d *ast.GenDecl) (all []identifier) {
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			spec.Doc, spec.Comment = nil, nil
			all = append(all, identifier{spec.Name.Name, "type " + text(spec)})
		case *ast.ValueSpec:
			kind := text(spec.Type)
			for _, name := range spec.Names {
				all = append(all, identifier{name.Name, strings.TrimSpace(fmt.Sprint(d.Tok, " ", name.Name, " ", kind))})
			}
		}
	}
	return all
}

// text prints a node without its comments, in one line.
func text(n ast.Node) string {
	if n == nil {
		return ""
	}
	ast.Inspect(n, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok {
			f.Doc, f.Comment = nil, nil
		}
		return true
	})
	var out bytes.Buffer
	_ = printer.Fprint(&out, token.NewFileSet(), n) // to memory
	return strings.Join(strings.Fields(out.String()), " ")
}

// public returns the packages that others can import and are meant to.
func public(t *testing.T) (all []string) {
	t.Helper()
	for pkg := range imports(t) {
		inside := slices.Contains(strings.Split(pkg, "/"), "internal")
		if !inside && !strings.HasPrefix(pkg, "tests/") && !strings.HasPrefix(pkg, "cmd/") && !strings.HasPrefix(pkg, "docs/") {
			all = append(all, pkg)
		}
	}
	slices.Sort(all)
	return all
}

// TestSurfaceChangesOnPurpose compares what others can use with testdata/surface.txt: a line that
// goes or changes breaks their code, and belongs into the CHANGELOG.
func TestSurfaceChangesOnPurpose(t *testing.T) {
	var now strings.Builder
	for _, pkg := range public(t) {
		top, members := surface(t, pkg)
		for _, id := range slices.Concat(top, members) {
			now.WriteString(pkg + ": " + id.declaration + "\n")
		}
	}
	const file = "testdata/surface.txt"
	if *update {
		if err := os.WriteFile(file, []byte(now.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(was), "\n"), strings.Split(now.String(), "\n")); d != "" {
		t.Errorf("others see something else (-was +is); if it is meant: go test ./tests/repo/arch -run Surface -update\n%s", d)
	}
}
