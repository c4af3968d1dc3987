package decode

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/tests/lab/samples"
)

func TestReadReportsInvalidDocumentOnce(t *testing.T) {
	const policy = "NetworkPolicy shop/web: "
	const wantName = "letters or digits at both ends, at most "
	for name, c := range map[string]struct{ in, want string }{
		"no apiVersion":            {"kind: Pod\nmetadata: {name: a}", "apiVersion: is missing: write for example apiVersion: v1"},
		"no kind":                  {"apiVersion: v1\nmetadata: {name: a}", "kind: is missing: write for example kind: Pod"},
		"kind is a list":           {"apiVersion: v1\nkind: [a]", "kind: must be a string"},
		"a text":                   {"just text", "is not a Kubernetes object: want apiVersion, kind and metadata"},
		"a list":                   {"- a\n- b", "is not a Kubernetes object: want apiVersion, kind and metadata"},
		"no YAML":                  {"a: b: c", "is not valid YAML: mapping values are not allowed in this context, in the document from line 5 on"},
		"a key twice in YAML":      {"a: 1\nb: 1\na: 2", `is not valid YAML: line 7: key "a" already set in map`},
		"a tab":                    {"a:\n\tfoo: bar", "is not valid YAML: line 6: found character that cannot start any token"},
		"open JSON":                {`{"apiVersion":"v1"`, "is not valid JSON or YAML: line 5: did not find expected ',' or '}'"},
		"a key twice in JSON":      {`{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":"b","c":"d","a":"e"},"name":"x"}}`, "Pod x: metadata.labels.a: is there twice"},
		"an unknown kind":          {"apiVersion: networking.k8s.io/v1\nkind: NetworkPolice\nmetadata: {name: web, namespace: shop}", `NetworkPolice shop/web: kind: "NetworkPolice" is not a kind of Kubernetes: did you mean NetworkPolicy?`},
		"a kind in lower case":     {"apiVersion: v1\nkind: pod\nmetadata: {name: web}", `pod web: kind: "pod" is not a kind of Kubernetes: did you mean Pod?`},
		"a misspelt other kind":    {"apiVersion: v1\nkind: Servce\nmetadata: {name: web}", `Servce web: kind: "Servce" is not a kind of Kubernetes: did you mean Service?`},
		"a kind of somebody else":  {"apiVersion: example.com/v1\nkind: FooBar\nmetadata: {name: web}", `FooBar web: kind: "FooBar" is not a kind of Kubernetes`},
		"an old NetworkPolicy":     {"apiVersion: extensions/v1beta1\nkind: NetworkPolicy\nmetadata: {name: web, namespace: shop}\nspec: {podSelector: {}}", policy + `apiVersion: "extensions/v1beta1" is a legacy version, whose meaning depends on the namespace: convert the manifests with "sluicectl convert", or accept them with --accept-legacy`},
		"a pod of the future":      {"apiVersion: v2\nkind: Pod\nmetadata: {name: web}", `Pod default/web: apiVersion: "v2" is not the version in which a Pod is read: write v1`},
		"no podSelector":           {samples.Policy("{}"), policy + "spec.podSelector: is missing: write podSelector: {} to select every pod of the namespace"},
		"no spec":                  {"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web, namespace: shop}", policy + "spec.podSelector: is missing: write podSelector: {} to select every pod of the namespace"},
		"a misspelt field":         {samples.Policy("{podSelectr: {}}"), policy + "spec.podSelectr: is not a known field: did you mean podSelector?"},
		"a field in wrong case":    {samples.Policy("{podselector: {}}"), policy + "spec.podselector: is not a known field: did you mean podSelector?"},
		"a deep unknown field":     {samples.Policy("{podSelector: {}, ingress: [{from: [{podSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8, excepts: []}}]}]}"), policy + "spec.ingress[0].from[1].ipBlock.excepts: is not a known field: did you mean except?"},
		"from in an egress rule":   {samples.Policy("{podSelector: {}, egress: [{from: []}]}"), policy + "spec.egress[0].from: is not a known field"},
		"unknown in metadata":      {"apiVersion: v1\nkind: Pod\nmetadata: {name: web, color: red}", "Pod default/web: metadata.color: is not a known field"},
		"unknown at the top":       {samples.Pod("spec: {}\nrest: 1"), "Pod default/web: rest: is not a known field"},
		"case in a lenient part":   {samples.Pod("spec: {hostnetwork: true}"), "Pod default/web: spec.hostnetwork: is not a known field: did you mean hostNetwork?"},
		"a boolean port":           {samples.Policy("{podSelector: {}, ingress: [{ports: [{port: true}]}]}"), policy + "spec.ingress[0].ports[0].port: must be a number or a name, not true"},
		"a huge port":              {samples.Policy("{podSelector: {}, ingress: [{ports: [{port: 99999999999}]}]}"), policy + "spec.ingress[0].ports[0].port: must be a whole number of 32 bits, not the number 99999999999"},
		"half a port":              {samples.Policy("{podSelector: {}, ingress: [{ports: [{port: 1.5}]}]}"), policy + "spec.ingress[0].ports[0].port: must be a whole number of 32 bits, not the number 1.5"},
		"an endPort in quotes":     {samples.Policy("{podSelector: {}, ingress: [{ports: [{port: 1, endPort: '2'}]}]}"), policy + `spec.ingress[0].ports[0].endPort: must be a whole number, not the string "2"`},
		"an empty rule item":       {samples.Policy("{podSelector: {}, ingress: [null]}"), policy + "spec.ingress[0]: must not be null: write the item, or leave it out"},
		"an object for a list":     {samples.Policy("{podSelector: {}, ingress: {}}"), policy + "spec.ingress: must be a list, not an object"},
		"a list for an object":     {samples.Policy("{podSelector: []}"), policy + "spec.podSelector: must be an object, not a list"},
		"a label that is a yes":    {samples.Policy("{podSelector: {matchLabels: {app: yes}}}"), policy + "spec.podSelector.matchLabels[app]: must be a string, not true: put it in quotes"},
		"a label that is a number": {"apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {v: 1}}", "Pod default/web: metadata.labels[v]: must be a string, not the number 1: put it in quotes"},
		"labels that are a list":   {"apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: [a]}", "Pod default/web: metadata.labels: must be an object, not a list"},
		"hostNetwork as a text":    {samples.Pod(`spec: {hostNetwork: "true"}`), `Pod default/web: spec.hostNetwork: must be true or false, not the string "true"`},
		"a port of a container":    {samples.Pod("spec: {containers: [{name: c, ports: [{containerPort: '80'}]}]}"), `Pod default/web: spec.containers[0].ports[0].containerPort: must be a whole number, not the string "80"`},
		"a quantity":               {samples.Pod("spec: {containers: [{name: c, resources: {limits: {cpu: much}}}]}"), `Pod default/web: spec.containers[0].resources.limits[cpu]: the string "much" is not a quantity`},
		"a time":                   {"apiVersion: v1\nkind: Pod\nmetadata: {name: web, creationTimestamp: yesterday}", `Pod default/web: metadata.creationTimestamp: the string "yesterday" is not a time`},
		"no name":                  {"apiVersion: v1\nkind: Pod\nmetadata: {generateName: web-}", "Pod: metadata.name: is missing"},
		"a bad name":               {"apiVersion: v1\nkind: Pod\nmetadata: {name: Web_1}", `Pod default/Web_1: metadata.name: "Web_1" is not a name: want lower-case letters, digits, '-' and '.', ` + wantName + "253"},
		"a name with a slash":      {"apiVersion: v1\nkind: Pod\nmetadata: {name: a/b}", `Pod default/a/b: metadata.name: "a/b" is not a name: want lower-case letters, digits, '-' and '.', ` + wantName + "253"},
		"a bad namespace":          {"apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: a.b}", `Pod a.b/web: metadata.namespace: "a.b" is not a name: want lower-case letters, digits and '-', ` + wantName + "63"},
		"a dotted Namespace":       {"apiVersion: v1\nkind: Namespace\nmetadata: {name: a.b}", `Namespace a.b: metadata.name: "a.b" is not a name: want lower-case letters, digits and '-', ` + wantName + "63"},
		"a Namespace in one":       {"apiVersion: v1\nkind: Namespace\nmetadata: {name: a, namespace: b}", "Namespace a: metadata.namespace: must not be there: a Namespace is in no namespace"},
		"a bad label key":          {"apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {'a b': c}}", `Pod default/web: metadata.labels[a b]: "a b" is not a label key`},
		"a bad label value":        {"apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {a: 'b c'}}", `Pod default/web: metadata.labels[a]: "b c" is not a label value`},
		"items are no list":        {`{"apiVersion":"v1","kind":"List","items":{}}`, "List: items: must be a list"},
		"an item is no object":     {`{"apiVersion":"v1","kind":"List","items":[1]}`, "is not a Kubernetes object: want apiVersion, kind and metadata"},
		"a list of old policies":   {"apiVersion: extensions/v1beta1\nkind: NetworkPolicyList\nitems: []", `NetworkPolicyList: apiVersion: "extensions/v1beta1" is a legacy version, whose meaning depends on the namespace: convert the manifests with "sluicectl convert", or accept them with --accept-legacy`},
		"an object too large":      {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"nodeName":"` + strings.Repeat("x", maxObject) + `"}}`, "Pod web: has 16777297 bytes as JSON, the limit is 16777216: split it"},
		"lists within lists":       {strings.Repeat("{apiVersion: v1, kind: List, items: [", 12) + strings.Repeat("]}", 12), "List: items: are lists within lists, deeper than the limit of 8"},
	} {
		t.Run(name, func(t *testing.T) {
			good := "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n---\n"
			objs, problems := decodeText(strings.NewReader(fmt.Sprintf(good, "before")+c.in+"\n---\n"+fmt.Sprintf(good, "after")), "f.yaml")
			if diff := cmp.Diff([]string{"Namespace before", "Namespace after"}, samples.IDs(objs)); diff != "" {
				t.Errorf("the other documents (-want +got):\n%s", diff)
			}
			got := samples.Texts(problems)
			for i, text := range got {
				prefix, rest, _ := strings.Cut(text, ")")
				if !strings.HasPrefix(prefix, "f.yaml (document 2") {
					t.Errorf("problem is of %q, want document 2", prefix)
				}
				got[i] = strings.TrimPrefix(rest, ": ")
			}
			if diff := cmp.Diff([]string{c.want}, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadSplitsStreamsIntoDocuments(t *testing.T) {
	pod := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q}}`, name)
	}
	yamlPod := func(name string) string { return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\n" }
	for name, c := range map[string]struct {
		in   string
		want []string // names with the sources
	}{
		"nothing":                  {"", nil},
		"comments only":            {"# a\n---\n\n# b\n---\n", nil},
		"null":                     {"~\n", nil},
		"one document":             {yamlPod("a"), []string{"a f"}},
		"markers around one":       {"---\n" + yamlPod("a") + "---\n", []string{"a f"}},
		"several":                  {yamlPod("a") + "---\n# c\n---\n" + yamlPod("b"), []string{"a f (document 1)", "b f (document 2)"}},
		"carriage returns":         {strings.ReplaceAll(yamlPod("a")+"---\n"+yamlPod("b"), "\n", "\r\n"), []string{"a f (document 1)", "b f (document 2)"}},
		"a byte order mark":        {"\ufeff" + yamlPod("a"), []string{"a f"}},
		"directives":               {"%YAML 1.1\n---\n" + yamlPod("a") + "...\n%YAML 1.1\n---\n" + yamlPod("b"), []string{"a f (document 1)", "b f (document 2)"}},
		"a comment at a marker":    {"--- # first\n" + yamlPod("a"), []string{"a f"}},
		"flow YAML at a marker":    {"--- {apiVersion: v1, kind: Pod, metadata: {name: a}}\n", []string{"a f"}},
		"a marker within a text":   {yamlPod("a") + "  annotations:\n    x: |\n      ---\n      y\n", []string{"a f"}},
		"JSON":                     {pod("a"), []string{"a f"}},
		"JSON lines":               {pod("a") + "\n" + pod("b") + "\n", []string{"a f (document 1)", "b f (document 2)"}},
		"JSON without white space": {pod("a") + pod("b"), []string{"a f (document 1)", "b f (document 2)"}},
		"JSON and YAML":            {pod("a") + "\n---\n" + yamlPod("b"), []string{"a f (document 1)", "b f (document 2)"}},
		"a list": {`{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":[` + pod("a") + "," + pod("b") + "]}",
			[]string{"a f (item 1)", "b f (item 2)"}},
		"a list in a list": {`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"List","items":[` + pod("a") + "]}]}",
			[]string{"a f (item 1, item 1)"}},
		"a typed list":       {`{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a"}}]}`, []string{"a f (item 1)"}},
		"a typed empty list": {`{"apiVersion":"v1","kind":"PodList","items":null}`, nil},
		"an anchor":          {"apiVersion: v1\nkind: Pod\nmetadata:\n  name: &n a\n  labels: {app: *n}\n", []string{"a f"}},
	} {
		t.Run(name, func(t *testing.T) {
			objs, problems := decodeText(strings.NewReader(c.in), "f")
			if len(problems) > 0 {
				t.Errorf("problems: %v", problems)
			}
			var got []string
			for _, o := range objs {
				got = append(got, o.ID().Name+" "+o.Source)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadReportsBrokenJSONLineOnce(t *testing.T) {
	in := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}
{"apiVersion":"v1","ki
{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"}}
`
	objs, problems := decodeText(strings.NewReader(in), "f")
	if diff := cmp.Diff([]string{"Pod default/a", "Pod default/b"}, samples.IDs(objs)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	want := []string{"f (document 2): is not valid JSON or YAML: line 3: found unexpected end of stream"}
	if diff := cmp.Diff(want, samples.Texts(problems)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestReadTakesOutputOfKubectl(t *testing.T) {
	const in = `{"apiVersion":"v1","kind":"List","items":[
	{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop","uid":"u","managedFields":[{"manager":"k","fieldsV1":{"f:metadata":{}}}]},"spec":{"finalizers":["kubernetes"],"newer":1},"status":{"phase":"Active","newer":{}}},
	{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop","creationTimestamp":"2026-01-02T03:04:05Z"},
	 "spec":{"newerField":{"a":1},"containers":[{"name":"c","image":"i","newerToo":true,"resources":{"requests":{"cpu":"100m"}},"livenessProbe":{"httpGet":{"path":"/","port":"http"}}}],"volumes":[{"name":"v","emptyDir":{}}]},
	 "status":{"phase":"Running","podIPs":[{"ip":"10.1.0.5"}],"newer":[]}},
	{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"web","namespace":"shop"},"spec":{"podSelector":null},"status":{}}
	]}`
	objs, problems := decodeText(strings.NewReader(in), "-")
	if len(problems) > 0 {
		t.Errorf("problems: %v", problems)
	}
	if diff := cmp.Diff([]string{"Namespace shop", "Pod shop/web", "NetworkPolicy shop/web"}, samples.IDs(objs)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func TestReadSkipsOtherKinds(t *testing.T) {
	var docs []string
	kinds := []string{"Deployment", "ConfigMap", "Secret", "ServiceAccount", "Role", "Lease", "StatefulSet", "DaemonSet", "ReplicaSet", "Ingress", "SecretList"}
	for _, kind := range kinds {
		docs = append(docs, "apiVersion: v1\nkind: "+kind+"\nwhatever: {1: 2}\n")
	}
	p := Reading{}.Read(strings.NewReader(strings.Join(docs, "---\n")), "f")
	if len(p.Objects) > 0 || len(p.Refusals) > 0 || len(p.Skipped) != len(kinds) {
		t.Errorf("objects %v, refusals %v, skipped %v; want %d skipped only", p.Objects, p.Refusals, p.Skipped, len(kinds))
	}
}

func TestReadReportsBrokenStream(t *testing.T) {
	objs, problems := decodeText(iotest.ErrReader(errors.New("gone")), "f")
	if diff := cmp.Diff([]string{"f: cannot be read: gone"}, samples.Texts(problems)); diff != "" || len(objs) > 0 {
		t.Errorf("objects %v, problems (-want +got):\n%s", objs, diff)
	}
}

func TestRefusalNamesObjectOfID(t *testing.T) {
	for in, want := range map[string]string{
		samples.Policy("{}"):                                           "NetworkPolicy shop/web",
		samples.Policy("{podSelector: 1}"):                             "NetworkPolicy shop/web",
		"apiVersion: v2\nkind: Pod\nmetadata: {name: a}":               "Pod default/a",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: A}":               " ",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: 1}": " ",
		"apiVersion: v1\nkind: Pdo\nmetadata: {name: a}":               " ",
	} {
		p := Reading{}.Read(strings.NewReader(in), "f")
		if len(p.Refusals) != 1 || p.Refusals[0].ID.String() != want {
			t.Errorf("%q: refusals %v, want one of %q", in, p.Refusals, want)
		}
	}
}

func TestReadOfHostileStreamsIsFast(t *testing.T) {
	bomb := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", c-1), 9), ", "))
	}
	for name, in := range map[string]string{
		"every line holds all that follow": strings.Repeat("{\"a\":\n", 200_000),
		"many markers":                     strings.Repeat("---\n", 500_000),
		"many broken documents":            strings.Repeat("---\n{\n", 20_000),
		"deep flow YAML":                   strings.Repeat("[", 200_000),
		"deep JSON":                        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"spec\":" + strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000) + "}",
		"an alias bomb":                    bomb,
		"many unknown kinds":               strings.Repeat("{\"apiVersion\":\"v1\",\"kind\":\"PersistentVolumeClimes\"}\n", 2_000),
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			if objs, _ := decodeText(strings.NewReader(in), "f"); len(objs) > 0 {
				t.Errorf("%d objects", len(objs))
			}
			if took := time.Since(start); took > time.Minute {
				t.Errorf("took %v for %d bytes", took, len(in))
			}
		})
	}
}
