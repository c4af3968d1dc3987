package arch

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What is larger than this is taken apart: a reader keeps it in mind no longer.
const (
	maxMethods          = 40
	maxFields           = 20
	maxInterfaceMethods = 8
	maxPackageLines     = 4000
)

// sizes returns what is above the limits, by name: "acl.Renderer methods" in its folder, for
// example. Tests, generated code and modules of their own do not count.
func sizes(t *testing.T) map[string]int {
	t.Helper()
	all := map[string]int{}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !entry.IsDir() {
			return nil
		}
		name := entry.Name()
		if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != "../.." {
			return filepath.SkipDir
		}
		if path != "../.." && (strings.HasPrefix(name, ".") || name == "testdata") {
			return filepath.SkipDir
		}
		files, err := productFiles(path)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel("../..", path)
		if err != nil {
			return err
		}
		measure(filepath.ToSlash(folder), files, all)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// file is a parsed file and how many lines it has.
type file struct {
	*ast.File
	lines int
}

// productFiles parses the files of a folder that are neither tests nor generated.
func productFiles(folder string) ([]file, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	var files []file
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		if !ast.IsGenerated(parsed) {
			files = append(files, file{parsed, bytes.Count(src, []byte("\n"))})
		}
	}
	return files, nil
}

// measure enters into all what is above the limits in the package of one folder.
func measure(folder string, files []file, all map[string]int) {
	counts := map[string]int{}
	lines := 0
	for _, f := range files {
		lines += f.lines
		for _, decl := range f.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Recv != nil {
					counts[receiver(decl.Recv.List[0].Type)+" methods"]++
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok {
						measureType(spec, counts)
					}
				}
			}
		}
	}
	counts["lines"] = lines
	for what, n := range counts {
		if n > limitOf(what) {
			all[folder+" "+what] = n
		}
	}
}

func limitOf(what string) int {
	switch {
	case what == "lines":
		return maxPackageLines
	case strings.HasSuffix(what, " fields"):
		return maxFields
	case strings.HasSuffix(what, " interface"):
		return maxInterfaceMethods
	}
	return maxMethods
}

// receiver returns the name of a method's type.
func receiver(expr ast.Expr) string {
	switch x := expr.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return "?"
}

// measureType counts the fields of a struct, and the methods of an interface.
func measureType(spec *ast.TypeSpec, counts map[string]int) {
	switch x := spec.Type.(type) {
	case *ast.StructType:
		for _, field := range x.Fields.List {
			counts[spec.Name.Name+" fields"] += max(1, len(field.Names))
		}
	case *ast.InterfaceType:
		for _, method := range x.Methods.List {
			counts[spec.Name.Name+" interface"] += max(1, len(method.Names))
		}
	}
}

func TestSizesAreLimited(t *testing.T) {
	found := sizes(t)
	for _, what := range slices.Sorted(maps.Keys(found)) {
		t.Errorf("%s: %d, above the limit of %d", what, found[what], limitOf(what[strings.Index(what, " ")+1:]))
	}
}
