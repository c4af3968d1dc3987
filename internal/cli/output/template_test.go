package output

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type thing struct {
	Name string            `json:"name"`
	N    int64             `json:"n,omitempty"`
	M    map[string]string `json:"m,omitempty"`
}

func things() []thing {
	return []thing{{"b", 10, map[string]string{"k\x1b[2J": "v\u202e"}}, {"a", 9, nil}, {"c", 0, nil}, {"d", 1234567890123, nil}}
}

func written(t *testing.T, text string, read func(string) (Template, error)) string {
	t.Helper()
	tmpl, err := read(text)
	if err != nil {
		t.Fatal(err)
	}
	value, err := Plain(things())
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := tmpl(&b, value); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestJSONPathReadsWhatJSONHas(t *testing.T) {
	for path, want := range map[string]string{
		"{[*].name}": "b a c d", "[*].name": "b a c d", "[0].m": `{"k\\x1b[2J":"v\\u202e"}`, "{[?(@.n>9)].name}": "b d",
		`{range [*]}{.name}={.n};{end}`: "b=10;a=9;c=;d=1234567890123;", "[0].nosuch": "", "{[3].n}": "1234567890123",
	} {
		if got := written(t, path, JSONPath); got != want {
			t.Errorf("%s writes %q, want %q", path, got, want)
		}
	}
}

func TestGoTemplateReadsWhatJSONHas(t *testing.T) {
	for text, want := range map[string]string{
		"{{range .}}{{.name}}:{{.n}} {{end}}": "b:10 a:9 c:<no value> d:1234567890123 ",
		"{{len .}} {{(index . 0).m}}":         `4 map[k\x1b[2J:v\u202e]`,
		`{{printf "%05d" (index . 0).n}}`:     "00010",
	} {
		if got := written(t, text, GoTemplate); got != want {
			t.Errorf("%s writes %q, want %q", text, got, want)
		}
	}
}

func TestSortIsByNumbersAndTexts(t *testing.T) {
	for path, want := range map[string]string{".n": "c a b d", "n": "c a b d", "{.name}": "a b c d"} {
		list := things()
		if err := Sort(list, path); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, x := range list {
			names = append(names, x.Name)
		}
		if d := cmp.Diff(want, strings.Join(names, " ")); d != "" {
			t.Errorf("by %s (-want +got):\n%s", path, d)
		}
	}
}

// FuzzTemplates: whatever is asked for, nothing panics.
func FuzzTemplates(f *testing.F) {
	for _, seed := range []string{"{[*].name}", "{{range .}}{{.name}}{{end}}", "{..}", "{[?(@.n>1)]}", "{range [*]}", "{.m['k']}", "{[-1:0:0]}", "{{index . 9}}", "{[::-1]}", "{[1:0]}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		value, err := Plain(things())
		if err != nil {
			t.Fatal(err)
		}
		for _, read := range []func(string) (Template, error){JSONPath, GoTemplate} {
			if tmpl, err := read(text); err == nil {
				_ = tmpl(&strings.Builder{}, value) // an error is as good
			}
		}
		_ = Sort(things(), text) // the same
	})
}
