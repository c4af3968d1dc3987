package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"go/format"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Fault is one mistake that a developer could make, as an edit of one file.
type Fault struct {
	Name string `json:"name"`
	// Area is the part of the semantics that the fault is about, or the job of the component that
	// it is in. It is the name of the file that lists the fault.
	Area string `json:"-"`
	File string `json:"file"` // from the root of the module
	Was  string `json:"was"`  // occurs once in the file
	Now  string `json:"now"`  // empty: the lines of Was go
	// Why describes how the fault comes about, and its effect.
	Why string `json:"why"`
}

// ID is what -run selects by: the area and the name.
func (f Fault) ID() string { return f.Area + "/" + f.Name }

// folder is that of the package that the fault is in.
func (f Fault) folder() string {
	if f.inKernel() {
		return kernelPackage
	}
	return path.Dir(f.File)
}

// isOf reports whether the fault is in a package or tree, given by its folder.
func (f Fault) isOf(folder string) bool { return strings.HasPrefix(f.File, folder+"/") }

// errFault is the error of a fault that does not fit its file.
var errFault = errors.New("the fault does not fit")

// apply returns the content of the file with the fault in it.
func (f Fault) apply(source []byte) ([]byte, error) {
	if n := bytes.Count(source, []byte(f.Was)); n != 1 || f.Was == "" {
		return nil, fmt.Errorf("%w: its text is %d times in %s, want once", errFault, n, f.File)
	}
	out := f.replace(source)
	if bytes.Equal(source, out) {
		return nil, fmt.Errorf("%w: it changes nothing in %s", errFault, f.File)
	}
	if f.inKernel() {
		return out, nil
	}
	clean, err := format.Source(out)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %s with it does not parse: %w", errFault, f.File, err)
	case !bytes.Equal(clean, out) && isClean(source):
		return nil, fmt.Errorf("%w: %s with it is not as gofmt would have it", errFault, f.File)
	}
	return out, nil
}

// isClean reports whether gofmt has nothing to say; where the file itself is otherwise, that
// is no mistake of the fault.
func isClean(source []byte) bool {
	clean, err := format.Source(source)
	return err == nil && bytes.Equal(clean, source)
}

// replace edits the source, in which the text is once.
func (f Fault) replace(source []byte) []byte {
	first := bytes.Index(source, []byte(f.Was))
	last := first + len(f.Was)
	if f.Now == "" {
		first = bytes.LastIndexByte(source[:first], '\n') + 1
		if n := bytes.IndexByte(source[last:], '\n'); n >= 0 {
			last += n + 1
		}
	}
	return slices.Concat(source[:first], []byte(f.Now), source[last:])
}

// read returns the mutated file of a tree.
func (f Fault) read(root string) ([]byte, error) {
	if strings.HasSuffix(f.File, "_test.go") || !strings.HasSuffix(f.File, ".go") && !f.inKernel() {
		return nil, fmt.Errorf("%w: %s is not a source file of the product", errFault, f.File)
	}
	source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(f.File)))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFault, err)
	}
	return f.apply(source)
}

//go:embed faults/*.yaml
var lists embed.FS

// load returns all faults, by area in the order of the lists.
func load() ([]Fault, error) {
	names, err := lists.ReadDir("faults")
	if err != nil {
		return nil, err
	}
	var out []Fault
	for _, n := range names {
		text, err := lists.ReadFile(path.Join("faults", n.Name()))
		if err != nil {
			return nil, err
		}
		var faults []Fault
		if err := yaml.UnmarshalStrict(text, &faults); err != nil {
			return nil, fmt.Errorf("%s: %w", n.Name(), err)
		}
		for _, f := range faults {
			f.Area = strings.TrimSuffix(n.Name(), ".yaml")
			out = append(out, f)
		}
	}
	return out, nil
}

// choose returns the faults whose ID matches.
func choose(faults []Fault, pattern *regexp.Regexp) []Fault {
	return slices.DeleteFunc(slices.Clone(faults), func(f Fault) bool { return !pattern.MatchString(f.ID()) })
}
