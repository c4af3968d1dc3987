package decode

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/plugins/ksr/strict"
)

// FuzzYAML checks that a document is converted like by the library of Kubernetes, unless it is too
// large, and that the documents next to it are still read.
func FuzzYAML(f *testing.F) {
	for _, s := range []string{
		"a: 1\n", "a: &x [1, 2]\nb: *x\n", "a: &a [x]\nb: &b [*a,*a]\nc: [*b,*b]\n", "a: 1\na: 2\n", "<<: {a: 1}\n", "? [a]\n: b\n",
		"--- a\n", "...\n", "{\"a\":\n1}\n", "a: 'x\n--- y'\n", "a: |\n  ---\n", "%YAML 1.1\n---\na: 1\n", "a: !!binary aGk=\n", "\ufeffa: 1\n",
	} {
		f.Add([]byte(s))
	}
	const before, after = "apiVersion: v1\nkind: Namespace\nmetadata: {name: before}\n---\n", "\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: after}\n"
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := strict.YAMLToJSON(text)
		if len(text) < 1<<10 { // its aliases cannot come to much
			want, bad := yaml.YAMLToJSONStrict(text)
			if (err == nil) != (bad == nil) || string(got) != string(want) {
				t.Fatalf("%q is %q, %v; want %q, %v", text, got, err, want, bad)
			}
		}
		objs, _ := decodeText(strings.NewReader(before+string(text)+after), "f")
		names := map[string]bool{}
		for _, o := range objs {
			names[o.ID().Name] = true
		}
		if !names["before"] || !names["after"] {
			t.Errorf("%q hides what is beside it: %v", text, names)
		}
	})
}
