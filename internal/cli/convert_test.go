package cli

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/internal/view"
)

const oldManifests = `
apiVersion: v1
kind: Namespace
metadata: {name: shop, annotations: {net.beta.kubernetes.io/network-policy: '{"ingress":{"isolation":"DefaultDeny"}}'}}
---
apiVersion: extensions/v1beta1
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec: {podSelector: {}, ingress: [{from: []}, {ports: [{port: 80}]}]}
`

const converted = `apiVersion: v1
kind: Namespace
metadata:
  name: shop
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: legacy-default-deny-ingress
  namespace: shop
spec:
  podSelector: {}
  policyTypes:
  - Ingress
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: web
  namespace: shop
spec:
  ingress:
  - ports:
    - port: 80
  podSelector: {}
  policyTypes:
  - Ingress
`

const note = "note: stdin (document 2): NetworkPolicy shop/web: spec.ingress[0].from: is empty and matched nothing: the rule is left out\n"

func TestConvertWritesManifestsAndNotesApart(t *testing.T) {
	for _, args := range [][]string{nil, {"-o", "yaml"}} {
		code, out, errOut := sluicectl("/nowhere", oldManifests, append([]string{"convert", "-f", "-"}, args...)...)
		if diff := cmp.Diff(converted, out) + cmp.Diff(note, errOut); diff != "" || code != ExitOK {
			t.Errorf("%v: exit code %d (-want +got):\n%s", args, code, diff)
		}
		code, again, errOut := sluicectl("/nowhere", out, append([]string{"convert", "-f", "-"}, args...)...)
		if diff := cmp.Diff(out, again); diff != "" || code != ExitOK || errOut != "" {
			t.Errorf("%v again: exit code %d, %q (-want +got):\n%s", args, code, errOut, diff)
		}
	}
}

func TestConvertWritesObjectOrListAsJSON(t *testing.T) {
	for name, c := range map[string]struct {
		in    string
		kind  string
		items int
	}{
		"several": {oldManifests, "List", 3},
		"one":     {policy, "NetworkPolicy", 0},
		"nothing": {"", "List", 0},
	} {
		code, out, _ := sluicectl("/nowhere", c.in, "convert", "-f", "-", "-o", "json")
		var got struct {
			Kind  string
			Items []any
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != ExitOK || got.Kind != c.kind || len(got.Items) != c.items {
			t.Errorf("%s: exit code %d, %v: %s", name, code, err, out)
		}
		if code, again, _ := sluicectl("/nowhere", out, "convert", "-f", "-", "-o", "json"); code != ExitOK || again != out {
			t.Errorf("%s again: exit code %d (-want +got):\n%s", name, code, cmp.Diff(out, again))
		}
	}
}

func TestConvertReadsDirectoryAsWhole(t *testing.T) {
	dir := t.TempDir()
	namespace, policies, _ := strings.Cut(oldManifests, "---\n")
	for name, text := range map[string]string{"a-policies.yaml": policies, "b/namespace.yml": namespace} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errOut := sluicectl("/nowhere", "", "convert", "-f", dir)
	if want := "name: web"; code != ExitOK || strings.Count(out, "kind: ") != 3 || strings.Index(out, want) > strings.Index(out, "kind: Namespace") || strings.Contains(errOut, "not among") {
		t.Errorf("exit code %d, %q:\n%s", code, errOut, out)
	}
}

func TestConvertIgnoresAnnotationByFlag(t *testing.T) {
	code, out, errOut := sluicectl("/nowhere", oldManifests, "convert", "-f", "-", "--ignore-annotation")
	if code != ExitOK || errOut != "" || strings.Contains(out, "legacy-default-deny") || strings.Contains(out, "annotations") || strings.Count(out, "kind: ") != 2 {
		t.Errorf("exit code %d, %q:\n%s", code, errOut, out)
	}
}

func TestConvertReportsErrorAtEnd(t *testing.T) {
	in := strings.Replace(oldManifests, `"DefaultDeny"`, `"Never"`, 1) + "---\nkind: Pod\n"
	code, out, errOut := sluicectl("/nowhere", in, "convert", "-f", "-")
	want := note +
		"problem: stdin (document 3): apiVersion: is missing: write for example apiVersion: v1\n" +
		`problem: stdin (document 1): Namespace shop: metadata.annotations[net.beta.kubernetes.io/network-policy]: "Never" is not an isolation: want DefaultDeny; the namespace is treated as isolated` + "\n" +
		"sluicectl: 2 problems in the manifests; the rest was converted\n"
	if diff := cmp.Diff(want, errOut) + cmp.Diff(converted, out); diff != "" || code != ExitError {
		t.Errorf("exit code %d (-want +got):\n%s", code, diff)
	}
	for _, args := range [][]string{{"convert"}, {"convert", "-f", "nowhere.yaml"}, {"convert", "-f", "-", "-o", "table"}, {"convert", "-f", "-", "x"}} {
		if code, out, errOut := sluicectl("/nowhere", oldManifests, args...); code != ExitError || out != "" || !strings.HasPrefix(errOut, "sluicectl: ") {
			t.Errorf("%v: exit code %d, %q, %q", args, code, out, errOut)
		}
	}
	if code, out, errOut := sluicectl("/nowhere", `{"apiVersion":"v1","kind":"ConfigMap","data":{"<<":"a"}}`, "convert", "-f", "-"); code != ExitError || out != "" || !strings.Contains(errOut, "write JSON") {
		t.Errorf("what YAML cannot express: exit code %d, %q, %q", code, out, errOut)
	}
}

func TestApplyAndDeleteAcceptLegacyByFlag(t *testing.T) {
	var got view.Change
	socket := agent(t, map[string]http.HandlerFunc{"POST /v1/change": func(w http.ResponseWriter, r *http.Request) {
		got = view.Change{}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		says(view.Applied{Put: len(got.Put), Deleted: len(got.Delete), Enforced: true})(w, r)
	}})
	names := func(objs []view.ChangedObject) (out []string) {
		for _, o := range objs {
			out = append(out, o.Kind+"/"+o.Namespace+"/"+o.Name)
		}
		return out
	}
	all := []string{"namespace//shop", "networkpolicy/shop/legacy-default-deny-ingress", "networkpolicy/shop/web"}

	code, out, errOut := sluicectl(socket, oldManifests, "apply", "-f", "-", "--accept-legacy")
	if diff := cmp.Diff(all, names(got.Put)) + cmp.Diff(note, errOut); diff != "" || code != ExitOK || out != "3 written, 0 deleted, 0 unchanged; enforced\n" {
		t.Errorf("apply: exit code %d, %s(-want +got):\n%s", code, out, diff)
	}
	code, _, _ = sluicectl(socket, oldManifests, "delete", "-f", "-", "--accept-legacy")
	if diff := cmp.Diff(all, names(got.Delete)); diff != "" || code != ExitOK {
		t.Errorf("delete: exit code %d (-want +got):\n%s", code, diff)
	}
	code, out, _ = sluicectl(socket, oldManifests, "apply", "-f", "-")
	if diff := cmp.Diff(all[:1], names(got.Put)); diff != "" || code != ExitError || strings.Count(out, "--accept-legacy") != 2 {
		t.Errorf("apply without the flag: exit code %d, %s(-want +got):\n%s", code, out, diff)
	}
}

// TestConvertGuideShowsConvertedObjects: an example is a block of YAML,
// what becomes of it, and the notes.
func TestConvertGuideShowsConvertedObjects(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "guide", "legacy.md"))
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```.{0,20}?becomes\n\n```yaml\n(.*?)```\n\nwith the note\n\n```\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if n := strings.Count(string(text), "```yaml"); n < 6 || n != 2*len(examples) {
		t.Fatalf("%d examples in %d blocks", len(examples), n)
	}
	for _, e := range examples {
		code, out, errOut := sluicectl("/nowhere", e[1], "convert", "-f", "-")
		if diff := cmp.Diff(e[2], out) + cmp.Diff(e[3], errOut); diff != "" || code != ExitOK {
			t.Errorf("exit code %d (-guide +printed):\n%s", code, diff)
		}
	}
}
