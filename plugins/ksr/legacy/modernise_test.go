package legacy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/plugins/ksr/decode"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/plugins/ksr/legacy"
	"github.com/sluice-net/sluice/tests/lab/samples"
)

const (
	denySpec     = `{"podSelector":{},"policyTypes":["Ingress"]}`
	shopDeny     = "shop/" + legacy.DenyName + " " + denySpec
	unknownShop  = "Namespace shop: is not among the manifests, so it is not known whether it was isolated: its legacy policies are converted as if it were"
	annotationAt = "Namespace shop: metadata.annotations[net.beta.kubernetes.io/network-policy]: "
	asIsolated   = "; the namespace is treated as isolated"
)

// readLegacy decodes with legacy kinds; what is wrong with a document fails the test.
func readLegacy(t *testing.T, in string) []kinds.Object {
	t.Helper()
	p := decode.Reading{Legacy: true}.Bytes([]byte(in), "f")
	for _, r := range p.Refusals {
		t.Fatal(r.Problem)
	}
	return p.Objects
}

// specsOf returns the policies with their specs, and the names of everything else.
func specsOf(t *testing.T, objs []kinds.Object) []string {
	t.Helper()
	var out []string
	for _, o := range objs {
		np, ok := o.Object.(*networkingv1.NetworkPolicy)
		if !ok {
			out = append(out, o.ID().String())
			continue
		}
		if np.APIVersion != kinds.NetworkingV1 || np.Kind != "NetworkPolicy" {
			t.Errorf("%s says of itself %v", o.ID(), np.TypeMeta)
		}
		spec, err := json.Marshal(np.Spec)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, np.Namespace+"/"+np.Name+" "+string(spec))
	}
	return out
}

type modernCase struct {
	in       string
	want     []string
	notes    []string
	problems []string
}

func (c modernCase) check(t *testing.T, cluster legacy.Cluster) {
	t.Helper()
	got := legacy.Modernise(readLegacy(t, c.in), cluster)
	strip := func(texts []string) (out []string) {
		for _, text := range texts {
			_, rest, _ := strings.Cut(text, ": ")
			out = append(out, rest)
		}
		return out
	}
	for what, diff := range map[string]string{
		"objects":  cmp.Diff(c.want, specsOf(t, got.Objects)),
		"notes":    cmp.Diff(c.notes, strip(samples.Texts(got.Notes))),
		"problems": cmp.Diff(c.problems, strip(samples.Texts(got.Problems))),
	} {
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	for _, o := range got.Objects {
		if msg, problems := convert.ToModel(o); msg == nil || len(problems) > 0 {
			t.Errorf("%s is not accepted: %v", o.ID(), problems)
		}
	}
}

func TestModerniseTakesIsolationFromAnnotation(t *testing.T) {
	const policy = `{podSelector: {}, ingress: [{}]}`
	const allows = `shop/web {"podSelector":{},"ingress":[{}],"policyTypes":["Ingress"]}`
	for title, c := range map[string]modernCase{
		"no annotation": {samples.Shop + samples.LegacyPolicy(policy), []string{"Namespace shop"},
			[]string{"NetworkPolicy shop/web: had no effect, because its namespace was not isolated: it is left out"}, nil},
		"DefaultDeny":                  {samples.Annotated(samples.DenyAnnotation) + samples.LegacyPolicy(policy), []string{"Namespace shop", shopDeny, allows}, nil, nil},
		"DefaultDeny without policies": {samples.Annotated(samples.DenyAnnotation), []string{"Namespace shop", shopDeny}, nil, nil},
		"the namespace comes last":     {samples.LegacyPolicy(policy) + samples.Annotated(samples.DenyAnnotation), []string{allows, "Namespace shop", shopDeny}, nil, nil},
		"the namespace is not there":   {samples.LegacyPolicy(policy), []string{shopDeny, allows}, []string{unknownShop}, nil},
		"the namespace of two is not there": {samples.LegacyPolicy(policy) + strings.Replace(samples.LegacyPolicy(policy), "name: web", "name: db", 1),
			[]string{shopDeny, allows, strings.Replace(allows, "/web", "/db", 1)}, []string{unknownShop}, nil},
		"nothing at all":                {"", nil, nil, nil},
		"no isolation":                  {samples.Annotated("{}"), []string{"Namespace shop"}, nil, nil},
		"no isolation of ingress":       {samples.Annotated(`{"ingress": {}}`), []string{"Namespace shop"}, nil, nil},
		"null":                          {samples.Annotated(`{"ingress": {"isolation": null}}`), []string{"Namespace shop"}, nil, nil},
		"an isolation that is unknown":  {samples.Annotated(`{"ingress": {"isolation": "None"}}`), []string{"Namespace shop", shopDeny}, nil, []string{annotationAt + `"None" is not an isolation: want DefaultDeny` + asIsolated}},
		"an isolation in another case":  {samples.Annotated(`{"ingress": {"isolation": "defaultDeny"}}`), []string{"Namespace shop", shopDeny}, nil, []string{annotationAt + `"defaultDeny" is not an isolation: want DefaultDeny` + asIsolated}},
		"an isolation without a name":   {samples.Annotated(`{"ingress": {"isolation": ""}}`), []string{"Namespace shop", shopDeny}, nil, []string{annotationAt + `"" is not an isolation: want DefaultDeny` + asIsolated}},
		"no JSON":                       {samples.Annotated("ingress"), []string{"Namespace shop", shopDeny}, nil, []string{annotationAt + `"ingress" is not JSON` + asIsolated}},
		"JSON and more":                 {samples.Annotated("{} {}"), []string{"Namespace shop", shopDeny}, nil, []string{annotationAt + `"{} {}" is not JSON` + asIsolated}},
		"an empty text":                 {samples.Annotated(""), []string{"Namespace shop", shopDeny}, nil, []string{annotationAt + `"" is not JSON` + asIsolated}},
		"no object":                     {samples.Annotated("null"), []string{"Namespace shop", shopDeny}, nil, []string{annotationAt + `"null" is not an object with each field once` + asIsolated}},
		"a field twice":                 {samples.Annotated(`{"ingress": {"isolation": "DefaultDeny"}, "ingress": {}}`), []string{"Namespace shop", shopDeny}, nil, []string{annotationAt + `"{\"ingress\": {\"isolation\": \"DefaultDeny\"}, \"ingress\": {}}" is not an object with each field once` + asIsolated}},
		"a field that is not known":     {samples.Annotated(`{"egress": {}}`), []string{"Namespace shop", shopDeny}, nil, []string{annotationAt + `egress: is not a known field: did you mean ingress?` + asIsolated}},
		"a type that is wrong":          {samples.Annotated(`{"ingress": {"isolation": 1}}`), []string{"Namespace shop", shopDeny}, nil, []string{annotationAt + `ingress.isolation: must be a string, not the number 1: put it in quotes` + asIsolated}},
		"policies of another namespace": {samples.Annotated(samples.DenyAnnotation) + strings.Replace(samples.LegacyPolicy(policy), "namespace: shop", "namespace: data", 1), []string{"Namespace shop", shopDeny, "data/" + legacy.DenyName + " " + denySpec, strings.Replace(allows, "shop/", "data/", 1)}, []string{strings.ReplaceAll(unknownShop, "shop", "data")}, nil},
	} {
		t.Run(title, func(t *testing.T) { c.check(t, legacy.Before17) })
	}
}

func TestModerniseKeepsMeaningOfRules(t *testing.T) {
	const rule = `{"podSelector":{},"ingress":[`
	const types = `],"policyTypes":["Ingress"]}`
	const nothing = `{"podSelector":{},"policyTypes":["Ingress"]}`
	empty := func(field string) []string {
		return []string{"NetworkPolicy shop/web: " + field + ": is empty and matched nothing: the rule is left out"}
	}
	for title, c := range map[string]struct {
		spec, want string
		notes      []string
	}{
		"neither list":           {"{podSelector: {}, ingress: [{}]}", rule + "{}" + types, nil},
		"null lists":             {"{podSelector: {}, ingress: [{ports: null, from: null}]}", rule + "{}" + types, nil},
		"ports only":             {"{podSelector: {}, ingress: [{ports: [{port: 80}]}]}", rule + `{"ports":[{"port":80}]}` + types, nil},
		"from only":              {"{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}", rule + `{"from":[{"podSelector":{}}]}` + types, nil},
		"an empty from":          {"{podSelector: {}, ingress: [{from: []}]}", nothing, empty("spec.ingress[0].from")},
		"empty ports":            {"{podSelector: {}, ingress: [{from: [{podSelector: {}}], ports: []}]}", nothing, empty("spec.ingress[0].ports")},
		"an empty from of many":  {"{podSelector: {}, ingress: [{ports: [{port: a}]}, {from: [], ports: []}, {}]}", rule + `{"ports":[{"port":"a"}]},{}` + types, empty("spec.ingress[1].from")},
		"no ingress":             {"{podSelector: {}}", nothing, nil},
		"ingress is null":        {"{podSelector: {}, ingress: null}", nothing, nil},
		"ingress is empty":       {"{podSelector: {}, ingress: []}", nothing, nil},
		"podSelector is null":    {"{podSelector: , ingress: [{}]}", rule + "{}" + types, nil},
		"all pods of namespaces": {"{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}", rule + `{"from":[{"namespaceSelector":{}}]}` + types, nil},
		"a protocol and no port": {"{podSelector: {}, ingress: [{ports: [{protocol: UDP}]}]}", rule + `{"ports":[{"protocol":"UDP"}]}` + types, nil},
	} {
		t.Run(title, func(t *testing.T) {
			modernCase{samples.Annotated(samples.DenyAnnotation) + samples.LegacyPolicy(c.spec), []string{"Namespace shop", shopDeny, "shop/web " + c.want}, c.notes, nil}.check(t, legacy.Before17)
		})
	}
}

// TestModerniseKeepsCurrentPolicies: whatever their namespace says.
func TestModerniseKeepsCurrentPolicies(t *testing.T) {
	for title, c := range map[string]struct{ spec, want string }{
		"policyTypes":     {"{podSelector: {}, policyTypes: [Ingress], ingress: [{from: []}]}", `{"podSelector":{},"ingress":[{}],"policyTypes":["Ingress"]}`},
		"no policy types": {"{podSelector: {}, policyTypes: []}", `{"podSelector":{}}`},
		"egress":          {"{podSelector: {}, egress: [{}]}", `{"podSelector":{},"egress":[{}]}`},
		"no egress":       {"{podSelector: {}, egress: []}", `{"podSelector":{}}`},
		"an ipBlock":      {"{podSelector: {}, ingress: [{}, {from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}", `{"podSelector":{},"ingress":[{},{"from":[{"ipBlock":{"cidr":"10.0.0.0/8"}}]}]}`},
		"both selectors":  {"{podSelector: {}, ingress: [{from: [{podSelector: {}, namespaceSelector: {}}]}]}", `{"podSelector":{},"ingress":[{"from":[{"podSelector":{},"namespaceSelector":{}}]}]}`},
	} {
		t.Run(title, func(t *testing.T) {
			policy := "shop/web " + c.want
			modernCase{samples.Shop + samples.LegacyPolicy(c.spec), []string{"Namespace shop", policy}, nil, nil}.check(t, legacy.Before17)
			modernCase{samples.Annotated(samples.DenyAnnotation) + samples.LegacyPolicy(c.spec), []string{"Namespace shop", shopDeny, policy}, nil, nil}.check(t, legacy.Before17)
			modernCase{samples.LegacyPolicy(c.spec), []string{policy}, nil, nil}.check(t, legacy.Before17)
		})
	}
}

func TestModerniseIgnoresAnnotationOfNewClusters(t *testing.T) {
	const policy = "{podSelector: {}, ingress: [{from: []}]}"
	const asIs = `shop/web {"podSelector":{},"ingress":[{}]}`
	for title, namespace := range map[string]string{"isolated": samples.Annotated(samples.DenyAnnotation), "not isolated": samples.Shop, "unreadable": samples.Annotated("x")} {
		t.Run(title, func(t *testing.T) {
			modernCase{namespace + samples.LegacyPolicy(policy), []string{"Namespace shop", asIs}, nil, nil}.check(t, legacy.From17)
		})
	}
	modernCase{samples.LegacyPolicy(policy), []string{asIs}, nil, nil}.check(t, legacy.From17)
}

func TestModerniseReportsNameCollision(t *testing.T) {
	named := func(n, spec string) string {
		return "---\n" + strings.Replace(samples.Policy(spec), "name: web", "name: "+legacy.DenyName+n, 1)
	}
	taken := func(n string) string {
		return "NetworkPolicy shop/" + legacy.DenyName + n + ": metadata.name: is reserved for the policy that isolates the namespace, which gets another name: rename this one"
	}
	const open = `{podSelector: {}, ingress: [{}]}`
	const isOpen = ` {"podSelector":{},"ingress":[{}]}`
	for title, c := range map[string]modernCase{
		"by another policy": {samples.Annotated(samples.DenyAnnotation) + named("", open),
			[]string{"Namespace shop", "shop/" + legacy.DenyName + "-2 " + denySpec, "shop/" + legacy.DenyName + isOpen}, nil, []string{taken("")}},
		"by two": {samples.Annotated(samples.DenyAnnotation) + named("", open) + named("-2", open),
			[]string{"Namespace shop", "shop/" + legacy.DenyName + "-3 " + denySpec, "shop/" + legacy.DenyName + isOpen, "shop/" + legacy.DenyName + "-2" + isOpen}, nil, []string{taken(""), taken("-2")}},
		"by a legacy policy": {samples.Annotated(samples.DenyAnnotation) + strings.Replace(samples.LegacyPolicy(open), "name: web", "name: "+legacy.DenyName, 1),
			[]string{"Namespace shop", "shop/" + legacy.DenyName + "-2 " + denySpec, "shop/" + legacy.DenyName + ` {"podSelector":{},"ingress":[{}],"policyTypes":["Ingress"]}`}, nil, []string{taken("")}},
		"by the same policy":     {samples.Annotated(samples.DenyAnnotation) + named("", "{podSelector: {}, policyTypes: [Ingress]}"), []string{"Namespace shop", shopDeny}, nil, nil},
		"where nothing is taken": {samples.Shop + named("", open), []string{"Namespace shop", "shop/" + legacy.DenyName + isOpen}, nil, nil},
	} {
		t.Run(title, func(t *testing.T) { c.check(t, legacy.Before17) })
	}
}

func TestModerniseDoesNotChangeItsInput(t *testing.T) {
	in := samples.Annotated(samples.DenyAnnotation) + samples.LegacyPolicy("{podSelector: {}, ingress: [{from: []}, {}]}")
	objs := readLegacy(t, in)
	legacy.Modernise(objs, legacy.Before17)
	if diff := cmp.Diff(readLegacy(t, in), objs); diff != "" {
		t.Error(diff)
	}
	ns := legacy.Modernise(objs, legacy.Before17).Objects[0].Object.(*corev1.Namespace)
	if diff := cmp.Diff(map[string]string{"other": "stays"}, ns.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

func TestPolicyIsReadStrictly(t *testing.T) {
	for title, c := range map[string]struct{ in, want string }{
		"a misspelt field":      {samples.LegacyPolicy("{podSelector: {}, ingres: []}"), "f: NetworkPolicy shop/web: spec.ingres: is not a known field: did you mean ingress?"},
		"no podSelector":        {samples.LegacyPolicy("{}"), "f: NetworkPolicy shop/web: spec.podSelector: is missing: write podSelector: {} to select every pod of the namespace"},
		"a range of ports":      {samples.LegacyPolicy("{podSelector: {}, ingress: [{}, {ports: [{port: 1, endPort: 2}]}]}"), "f: NetworkPolicy shop/web: spec.ingress[1].ports[0].endPort: is no field of extensions/v1beta1: write networking.k8s.io/v1"},
		"a range out of a pod":  {samples.LegacyPolicy("{podSelector: {}, egress: [{ports: [{port: 1, endPort: 2}]}]}"), "f: NetworkPolicy shop/web: spec.egress[0].ports[0].endPort: is no field of extensions/v1beta1: write networking.k8s.io/v1"},
		"a null rule":           {samples.LegacyPolicy("{podSelector: {}, ingress: [null]}"), "f: NetworkPolicy shop/web: spec.ingress[0]: must not be null: write the item, or leave it out"},
		"another kind of that":  {"apiVersion: extensions/v1beta1\nkind: Pod\nmetadata: {name: a}\n", `f: Pod default/a: apiVersion: "extensions/v1beta1" is not the version in which a Pod is read: write v1`},
		"another version of it": {"apiVersion: extensions/v1\nkind: NetworkPolicy\nmetadata: {name: a}\n", `f: NetworkPolicy default/a: apiVersion: "extensions/v1" is not the version in which a NetworkPolicy is read: write networking.k8s.io/v1`},
	} {
		p := decode.Reading{Legacy: true}.Bytes([]byte(c.in), "f")
		if len(p.Objects) > 0 || len(p.Refusals) != 1 || p.Refusals[0].Problem.Error() != c.want {
			t.Errorf("%s: %d objects, %v, want %s", title, len(p.Objects), p.Refusals, c.want)
		}
	}
	list := readLegacy(t, "apiVersion: extensions/v1beta1\nkind: NetworkPolicyList\nitems: [{metadata: {name: a}, spec: {podSelector: {}}}]\n")
	if diff := cmp.Diff([]string{"NetworkPolicy default/a"}, samples.IDs(list)); diff != "" {
		t.Errorf("a list (-want +got):\n%s", diff)
	}
}
