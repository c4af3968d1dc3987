package reference

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Check fails a test where the page differs from the metrics of a program; root is the top of the
// repository as the test sees it.
func Check(t testing.TB, root, program string, registry *prometheus.Registry) {
	t.Helper()
	page, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	problems, err := Compare(page, program, registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
}

// Compare returns in what the page differs from the metrics of a program. The registry
// should have a series of each: only series say of which type a metric is.
func Compare(page, program string, registry *prometheus.Registry) ([]string, error) {
	documented, err := rows(page, program)
	if err != nil {
		return nil, err
	}
	registered, err := described(registry)
	if err != nil {
		return nil, err
	}
	return differences(documented, registered), nil
}

func differences(documented, registered []metric) (out []string) {
	seen := map[string]bool{}
	for _, m := range registered {
		i := slices.IndexFunc(documented, func(d metric) bool { return d.name == m.name })
		if i < 0 {
			i = slices.IndexFunc(documented, func(d metric) bool {
				return d.family() && strings.HasPrefix(m.name, strings.TrimSuffix(d.name, "*"))
			})
		}
		if i < 0 {
			out = append(out, m.name+" is registered, and the page does not name it")
			continue
		}
		d := documented[i]
		seen[d.name] = true
		switch {
		case d.family():
		case m.kind == "":
			out = append(out, m.name+" has no series here, so its type is not known")
		case d.kind != m.kind || !slices.Equal(d.labels, m.labels):
			out = append(out, fmt.Sprintf("%s is a %s with labels %q, the page says %s with %q", m.name, m.kind, m.labels, d.kind, d.labels))
		}
	}
	for i, d := range documented {
		if !seen[d.name] {
			out = append(out, "the page names "+d.name+", which is not registered")
		}
		if slices.ContainsFunc(documented[:i], func(o metric) bool { return o.name == d.name }) {
			out = append(out, "the page names "+d.name+" twice")
		}
	}
	return out
}

// description matches the text form of prometheus.Desc, which has no accessors.
var (
	description = regexp.MustCompile(`fqName: "([^"]*)".*constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	constant    = regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`)
	word        = regexp.MustCompile(`\w+`)
)

// described returns all metrics of a registry, also those without a series.
func described(registry *prometheus.Registry) (out []metric, err error) {
	families, err := registry.Gather()
	if err != nil {
		return nil, err
	}
	kinds := map[string]string{}
	for _, f := range families {
		kinds[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	descs := make(chan *prometheus.Desc)
	go func() {
		registry.Describe(descs)
		close(descs)
	}()
	for d := range descs {
		m, e := parse(d.String())
		if e != nil {
			err = e
			continue // lets Describe end
		}
		m.kind = kinds[m.name]
		out = append(out, m)
	}
	return out, err
}

func parse(text string) (m metric, err error) {
	found := description.FindStringSubmatch(text)
	if found == nil {
		return m, fmt.Errorf("a description is not understood: %s", text)
	}
	m.name = found[1]
	for _, l := range constant.FindAllStringSubmatch(found[2], -1) {
		m.labels = append(m.labels, l[1])
	}
	m.labels = append(m.labels, word.FindAllString(found[3], -1)...)
	slices.Sort(m.labels)
	return m, nil
}
