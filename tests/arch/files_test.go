package arch

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// oneWay lists the packages whose files refer to each other in one direction only: who follows a
// policy through them reads each file once.
var oneWay = []string{
	"plugins/datasync", "plugins/ksr/kube", "plugins/policy", "plugins/policy/internal/cache", "plugins/policy/internal/configurator",
	"plugins/policy/internal/intent", "plugins/policy/internal/membership", "plugins/policy/internal/processor",
	"renderer/acl", "renderer/cache", "renderer/xdp",
}

// noPackages knows no other package: what is declared in one can be resolved without.
type noPackages struct{}

func (noPackages) Import(string) (*types.Package, error) { return nil, errors.New("not needed") }

// references returns for each file of a package the files whose declarations it uses, sorted.
func references(t *testing.T, folder string) map[string][]string {
	t.Helper()
	fset := token.NewFileSet()
	paths, err := filepath.Glob(filepath.Join("..", "..", folder, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %d files, %v", folder, len(paths), err)
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: noPackages{}, Error: func(error) {}} // of the imports
	pkg, _ := config.Check(folder, fset, files, &info)
	out := map[string][]string{}
	for id, o := range info.Uses {
		v, isVar := o.(*types.Var)
		if local := isVar && !v.IsField() && o.Parent() != pkg.Scope(); o.Pkg() != pkg || local {
			continue
		}
		if _, isImport := o.(*types.PkgName); isImport {
			continue
		}
		from, to := filepath.Base(fset.Position(id.Pos()).Filename), filepath.Base(fset.Position(o.Pos()).Filename)
		if from != to {
			out[from] = append(out[from], to)
		}
	}
	for from, to := range out {
		slices.Sort(to)
		out[from] = slices.Compact(to)
	}
	return out
}

// circle returns files each of which refers to the next, and the last to the first; nil if there
// are none.
func circle(refs map[string][]string) []string {
	done := map[string]bool{}
	var visit func(path []string) []string
	visit = func(path []string) []string {
		last := path[len(path)-1]
		if i := slices.Index(path[:len(path)-1], last); i >= 0 {
			return path[i:]
		}
		if done[last] {
			return nil
		}
		for _, to := range refs[last] {
			if found := visit(append(slices.Clip(path), to)); found != nil {
				return found
			}
		}
		done[last] = true
		return nil
	}
	for from := range refs {
		if found := visit([]string{from}); found != nil {
			return found
		}
	}
	return nil
}

func TestFilesReferOneWay(t *testing.T) {
	for _, folder := range oneWay {
		refs := references(t, folder)
		if found := circle(refs); found != nil {
			t.Errorf("%s: files refer to each other in a circle: %s", folder, strings.Join(found, " -> "))
		}
	}
}

func TestFilesInACircleAreFound(t *testing.T) {
	if got := references(t, "renderer/cache"); len(got) == 0 {
		t.Error("no file of renderer/cache uses another one")
	}
	if found := circle(map[string][]string{"a": {"b"}, "b": {"c", "d"}, "d": {"b"}}); len(found) != 3 {
		t.Errorf("the circle b -> d -> b is %v", found)
	}
	if found := circle(map[string][]string{"a": {"b", "c"}, "b": {"c"}}); found != nil {
		t.Errorf("%v is no circle", found)
	}
}
