package manifests

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api/model"

	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/plugins/ksr/decode"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/plugins/ksr/legacy"
	"github.com/sluice-net/sluice/plugins/ksr/strict"
	"github.com/sluice-net/sluice/tests/lab/samples"
)

// fataler is a *testing.T or a *rapid.T.
type fataler interface{ Fatalf(string, ...any) }

// rewrite converts manifests to the present form and returns them as text, with their notes and
// problems without the source.
func rewrite(t fataler, in string, cluster legacy.Cluster) (out string, notes, problems []string) {
	m, err := ModerniseFiles([]string{Stdin}, strings.NewReader(in), cluster)
	if err != nil {
		t.Fatalf("%v", err)
	}
	var b bytes.Buffer
	if err := decode.WriteYAML(&b, m.Trees); err != nil {
		t.Fatalf("%v", err)
	}
	return b.String(), samples.Texts(m.Notes), samples.Texts(m.Problems)
}

// checkStays checks that what was rewritten is not rewritten again.
func checkStays(t fataler, out string, cluster legacy.Cluster) {
	again, notes, problems := rewrite(t, out, cluster)
	if again != out || len(notes)+len(problems) > 0 {
		t.Fatalf("rewritten again, %q becomes %q; notes %q, problems %q", out, again, notes, problems)
	}
}

// TestModerniseConvertsExamplesOfProposal: the three of the proposal of NetworkPolicy.
func TestModerniseConvertsExamplesOfProposal(t *testing.T) {
	for _, name := range []string{"frontend", "https", "everything"} {
		t.Run(name, func(t *testing.T) {
			in, err := os.ReadFile(filepath.Join("testdata", "legacy", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(filepath.Join("testdata", "legacy", name+".today.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			got, _, problems := rewrite(t, string(in), legacy.Before17)
			if diff := cmp.Diff(string(want), got); diff != "" || len(problems) > 0 {
				t.Errorf("problems %v; (-want +got):\n%s", problems, diff)
			}
			checkStays(t, got, legacy.Before17)
			objs, found := Decode(strings.NewReader(got), "f")
			if n := strings.Count(got, "kind: "); len(objs) != n || len(found) > 0 {
				t.Errorf("%d objects are read, want %d; %v", len(objs), n, found)
			}
		})
	}
}

func TestModerniseKeepsOtherDocuments(t *testing.T) {
	const in = `# a comment
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replicas: 3, ratio: 0.5, text: "yes", empty: {}, none: null}
---
apiVersion: v1
kind: List
metadata: {resourceVersion: ""}
items:
- apiVersion: v1
  kind: Namespace
  metadata: {name: shop, annotations: {net.beta.kubernetes.io/network-policy: '{"ingress":{"isolation":"DefaultDeny"}}'}, managedFields: [{manager: kubectl}]}
  spec: {finalizers: [kubernetes], newer: 1}
  status: {phase: Active}
- {apiVersion: longhorn.io/v1beta2, kind: Node, metadata: {name: disk}}
- {apiVersion: projectcalico.org/v3, kind: NetworkPolicy, metadata: {name: c}, spec: {order: 1}}
---
apiVersion: extensions/v1beta1
kind: NetworkPolicyList
items:
- metadata: {name: web, namespace: shop, labels: {a: b}, resourceVersion: "7"}
  spec: {podSelector: {}, ingress: [{ports: [{port: http}]}]}
  status: {x: written}
---
apiVersion: v1
kind: SecretList
items: [{metadata: {name: s}}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: wrong, namespace: shop}
spec: {podSelector: {}, ingres: []}
`
	const want = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  empty: {}
  none: null
  ratio: 0.5
  replicas: 3
  text: "yes"
---
apiVersion: v1
kind: Namespace
metadata:
  managedFields:
  - manager: kubectl
  name: shop
spec:
  finalizers:
  - kubernetes
  newer: 1
status:
  phase: Active
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
apiVersion: longhorn.io/v1beta2
kind: Node
metadata:
  name: disk
---
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata:
  name: c
spec:
  order: 1
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  labels:
    a: b
  name: web
  namespace: shop
  resourceVersion: "7"
spec:
  ingress:
  - ports:
    - port: http
  podSelector: {}
  policyTypes:
  - Ingress
status:
  x: written
---
apiVersion: v1
items:
- metadata:
    name: s
kind: SecretList
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: wrong
  namespace: shop
spec:
  ingres: []
  podSelector: {}
`
	got, notes, problems := rewrite(t, in, legacy.Before17)
	if diff := cmp.Diff(want, got); diff != "" || len(notes)+len(problems) > 0 {
		t.Errorf("notes %v, problems %v; (-want +got):\n%s", notes, problems, diff)
	}
	checkStays(t, got, legacy.Before17)
}

func TestModerniseReportsUnconvertible(t *testing.T) {
	in := samples.Annotated(samples.DenyAnnotation) + samples.LegacyPolicy("{podSelector: {}, ingres: []}") + "---\na: b: c\n---\nkind: Pod\n" +
		strings.Replace(samples.LegacyPolicy("{podSelector: {}}"), "name: web", "name: twice", 1) + "---\n" + strings.Replace(samples.Policy("{podSelector: {}}"), "name: web", "name: twice", 1) +
		"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: Wrong}\n"
	got, _, problems := rewrite(t, in, legacy.Before17)
	if len(problems) != 5 || strings.Count(got, "kind: ") != 3 {
		t.Errorf("problems %q in\n%s", problems, got)
	}
	for i, want := range []string{
		"(document 2): NetworkPolicy shop/web: spec.ingres: is not a known field: did you mean ingress?",
		"(document 3): is not valid YAML: ",
		"(document 4): apiVersion: is missing",
		`(document 7): Namespace Wrong: metadata.name: "Wrong" is not a name`,
		"(document 6): NetworkPolicy shop/twice: is defined in stdin (document 5) already",
	} {
		if i < len(problems) && !strings.Contains(problems[i], want) {
			t.Errorf("problem %d is %s, want %s", i, problems[i], want)
		}
	}
	checkStays(t, got, legacy.Before17)
}

// TestModerniseKeepsNumbersAndTexts: YAML reads some samples.Texts as something else.
func TestModerniseKeepsNumbersAndTexts(t *testing.T) {
	for _, value := range []string{`"yes"`, `"012"`, `"1e3"`, `"0x10"`, `"~"`, `"<<"`, `"---"`, `"... x"`, `"a\n---\nb"`, `" a "`, `"\u007f\u0085\u2028\ufeff"`, `"1:20"`, `"2001-01-01"`,
		`"` + strings.Repeat("long words ", 40) + `"`, `1.5`, `1e21`, `-0`, `9007199254740993`, `18446744073709551615`, `true`, `null`, `[]`, `{}`, `[[[]]]`, `{"1":2,"":3,"y":4}`} {
		in := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":` + value + `}`
		out, _, problems := rewrite(t, in, legacy.Before17)
		if len(problems) > 0 {
			t.Errorf("%s: %v", value, problems)
		}
		checkStays(t, out, legacy.Before17)
		raw, err := strict.YAMLToJSON([]byte(out))
		if err != nil {
			t.Fatalf("%s: %v", value, err)
		}
		var got, want any
		if json.Unmarshal(raw, &got) != nil || json.Unmarshal([]byte(in), &want) != nil || cmp.Diff(want, got) != "" {
			t.Errorf("%s becomes %s", value, raw)
		}
	}
}

func TestModerniseRefusesInvalidYAML(t *testing.T) {
	for value, want := range map[string]string{
		`1e999`:      "a ConfigMap: holds what YAML cannot express: write JSON: the number 1e999",
		`{"<<":"a"}`: "a ConfigMap: holds what YAML cannot express: write JSON: yaml: map merge requires",
	} {
		m, err := ModerniseFiles([]string{Stdin}, strings.NewReader(`{"apiVersion":"v1","kind":"ConfigMap","data":`+value+`}`), legacy.Before17)
		if err != nil {
			t.Fatal(err)
		}
		if err := decode.WriteYAML(&bytes.Buffer{}, m.Trees); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", value, err, want)
		}
	}
}

// FuzzModernise: what comes out stays as it is, and is what the reflector makes of the
// same manifests.
func FuzzModernise(f *testing.F) {
	for _, in := range []string{
		samples.Annotated(samples.DenyAnnotation) + samples.LegacyPolicy("{podSelector: {}, ingress: [{from: []}, {ports: [{port: http}]}]}"),
		samples.Shop + samples.LegacyPolicy("{podSelector: {}, ingress: [{}]}"),
		samples.LegacyPolicy("{podSelector: , policyTypes: [Ingress]}") + samples.Annotated("x"),
		"apiVersion: extensions/v1beta1\nkind: NetworkPolicyList\nitems: [{metadata: {name: a}, spec: {podSelector: {}}}, {kind: Pod, apiVersion: v1, metadata: {name: b}}]\n",
	} {
		f.Add([]byte(in), false)
		f.Add([]byte(in), true)
	}
	f.Fuzz(func(t *testing.T, in []byte, newer bool) {
		cluster := legacy.Before17
		if newer {
			cluster = legacy.From17
		}
		m, err := ModerniseFiles([]string{Stdin}, bytes.NewReader(in), cluster)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if decode.WriteYAML(&b, m.Trees) != nil {
			return // a number that YAML does not have
		}
		checkStays(t, b.String(), cluster)
		if len(m.Problems) > 0 || newer {
			return
		}
		l, err := LoadFiles([]string{Stdin}, bytes.NewReader(in), AcceptLegacy())
		if err != nil {
			t.Fatal(err)
		}
		objs, _ := Decode(bytes.NewReader(b.Bytes()), "f")
		if diff := cmp.Diff(bytesOf(t, l.Objects), bytesOf(t, objs)); diff != "" {
			t.Errorf("reflected is not what is written (-reflected +written):\n%s", diff)
		}
	})
}

// bytesOf returns what the store gets of objects.
func bytesOf(t *testing.T, objs []kinds.Object) map[string]string {
	out := map[string]string{}
	for _, o := range objs {
		msg, problems := convert.ToModel(o)
		if msg == nil {
			out[o.ID().String()] = "refused"
			continue
		}
		value, err := model.Encode(msg)
		if err != nil {
			t.Fatal(err)
		}
		out[o.ID().String()] = string(value)
		if _, ok := msg.(*model.Namespace); ok && len(problems) > 0 {
			t.Errorf("%s: %v", o.ID(), problems)
		}
	}
	return out
}
