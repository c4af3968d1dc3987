package policytest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/expr"
	"github.com/sluice-net/sluice/plugins/ksr/strict"
)

// maxFile is a limit against hostile input, in bytes.
const maxFile = 64 << 20

// Stdin is the path that stands for the standard input.
const Stdin = "-"

// Load reads the policy tests of a file; "-" is read from stdin. Their Files are
// relative to the directory of the file, those of the standard input to the
// working directory.
func Load(path string, stdin io.Reader) ([]*File, error) {
	if path == Stdin {
		return load(stdin, "stdin", ".")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("load policy test: %w", err)
	}
	files, err := load(f, path, filepath.Dir(path))
	return files, errors.Join(err, f.Close())
}

func load(r io.Reader, source, dir string) ([]*File, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("load policy test: %s: %w", source, err)
	}
	files, err := Parse(source, data)
	for _, f := range files {
		f.Dir = dir
	}
	return files, err
}

// Parse reads the policy tests of a file: YAML or JSON, one or more documents.
// source names the file in messages. The error is of type Problems; the
// documents that are right are returned nevertheless.
func Parse(source string, data []byte) ([]*File, error) {
	if len(data) > maxFile {
		return nil, Problems{{Source: source, Reason: fmt.Sprintf("is larger than the limit of %d bytes", maxFile)}}
	}
	docs := strict.Documents(data, len(data))
	if len(docs) == 0 {
		return nil, Problems{{Source: source, Reason: "holds no policy test: want apiVersion " + APIVersion + ", kind " + Kind}}
	}
	var files []*File
	var problems Problems
	for i, doc := range docs {
		name := source
		if len(docs) > 1 {
			name = fmt.Sprintf("%s (document %d)", source, i+1)
		}
		r := &reader{source: name}
		f := r.document(doc, source)
		if problems = append(problems, r.problems...); len(r.problems) == 0 {
			files = append(files, f)
		}
	}
	return files, problems.orNil()
}

// document reads a whole document. The result counts only without problems.
func (r *reader) document(d strict.Document, source string) *File {
	raw, reason := d.JSON()
	if reason != "" {
		r.failf("", "%s", reason)
		return nil
	}
	var tree any // of null: nil
	if raw != nil {
		object, err := strict.Tree(raw)
		switch {
		case err == nil:
			tree = object
		case errors.Is(err, strict.ErrNotObject):
			_ = json.Unmarshal(raw, &tree) // for what it is instead
		default:
			r.failf("", "%v", err)
			return nil
		}
	}
	m, ok := r.mapping("", tree)
	if !ok {
		return nil
	}
	if v := m.text("apiVersion"); v != APIVersion {
		m.failf("apiVersion", "is %s: want %s", expr.Quoted(v), APIVersion)
	}
	if k := m.text("kind"); k != Kind {
		m.failf("kind", "is %s: want %s", expr.Quoted(k), Kind)
	}
	if len(r.problems) > 0 {
		return nil // another kind of file: its fields would only make noise
	}
	f := &File{Source: r.source, Dir: ".", Name: m.text("name"), AllowProblems: m.flag("allowProblems")}
	if f.Name == "" {
		f.Name = strings.TrimSuffix(filepath.Base(source), filepath.Ext(source))
	}
	f.Externals = r.externals(m)
	p := parser{reader: r, externals: f.Externals}
	f.Start = p.state(m, "objects")
	for _, it := range m.list("steps") {
		f.Steps = append(f.Steps, p.step(it))
	}
	m.close()
	if len(r.problems) == 0 && !f.asks() {
		r.failf("", "asks nothing: want probes or a matrix, here or in a step")
	}
	return f
}

// asks reports whether any step has something to ask.
func (f *File) asks() bool {
	return slices.ContainsFunc(f.states(), func(s Step) bool { return len(s.Probes) > 0 || s.Matrix != nil })
}

// states returns Start and the Steps.
func (f *File) states() []Step { return append([]Step{f.Start}, f.Steps...) }

var externalName = regexp.MustCompile(`^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$`)

// externals reads the named addresses.
func (r *reader) externals(m *mapping) map[string][]netip.Addr {
	value := m.value("externals")
	if value == nil {
		return nil
	}
	names, ok := r.mapping("externals", value)
	if !ok {
		return nil
	}
	out := map[string][]netip.Addr{}
	for name := range names.values {
		_, notAddress := netip.ParseAddr(name)
		if !externalName.MatchString(name) || notAddress == nil {
			r.failf(names.pathOf(printable(name)), "is not a name: want letters, digits, '-', '_' and '.', and no address")
			continue
		}
		items := names.oneOrMore(name)
		for _, it := range items {
			if a, ok := r.address(it); ok {
				out[name] = append(out[name], a)
			}
		}
		if len(items) == 0 {
			r.failf(names.pathOf(name), "has no address")
		}
	}
	// The map was read in no order.
	slices.SortFunc(r.problems, func(a, b api.Problem) int { return strings.Compare(a.Field, b.Field) })
	return out
}

func (r *reader) address(it item) (netip.Addr, bool) {
	s, ok := it.value.(string)
	a, err := netip.ParseAddr(s)
	if !ok || err != nil || a.Zone() != "" {
		r.failf(it.path, "is %s: want an IP address", describe(it.value))
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}
