package ksr

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api/model"
)

// legacyYAML is a legacy policy shop/web with a spec in flow style.
func legacyYAML(spec string) string {
	return "---\napiVersion: extensions/v1beta1\nkind: NetworkPolicy\nmetadata: {name: web, namespace: shop}\nspec: " + spec + "\n"
}

// annotatedYAML is the namespace shop with the annotation that isolated it.
func annotatedYAML(annotation string) string {
	return "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop, annotations: {net.beta.kubernetes.io/network-policy: '" + annotation + "', other: stays}}\n"
}

const (
	denyAnnotation = `{"ingress": {"isolation": "DefaultDeny"}}`
	shopYAML       = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"
	denySpec       = `{"podSelector":{},"policyTypes":["Ingress"]}`
	shopDeny       = "shop/" + LegacyDenyName + " " + denySpec
	unknownShop    = "Namespace shop: is not among the manifests, so it is not known whether it was isolated: its legacy policies are converted as if it were"
	annotationAt   = "Namespace shop: metadata.annotations[net.beta.kubernetes.io/network-policy]: "
	asIsolated     = "; the namespace is treated as isolated"
)

// readLegacy decodes with legacy kinds; what is wrong with a document fails the test.
func readLegacy(t *testing.T, in string) []Object {
	t.Helper()
	p := reading{legacy: true}.parseBytes([]byte(in), "f")
	for _, r := range p.refusals {
		t.Fatal(r.problem)
	}
	return p.objects
}

// specsOf tells the policies with their specs, and the names of everything else.
func specsOf(t *testing.T, objs []Object) []string {
	t.Helper()
	var out []string
	for _, o := range objs {
		np, ok := o.Object.(*networkingv1.NetworkPolicy)
		if !ok {
			out = append(out, o.ID().String())
			continue
		}
		if np.APIVersion != networkingV1 || np.Kind != "NetworkPolicy" {
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

func (c modernCase) check(t *testing.T, cluster LegacyCluster) {
	t.Helper()
	got := Modernise(readLegacy(t, c.in), cluster)
	strip := func(texts []string) (out []string) {
		for _, text := range texts {
			_, rest, _ := strings.Cut(text, ": ")
			out = append(out, rest)
		}
		return out
	}
	for what, diff := range map[string]string{
		"objects":  cmp.Diff(c.want, specsOf(t, got.Objects)),
		"notes":    cmp.Diff(c.notes, strip(texts(got.Notes))),
		"problems": cmp.Diff(c.problems, strip(texts(got.Problems))),
	} {
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	for _, o := range got.Objects {
		if msg, problems := Convert(o); msg == nil || len(problems) > 0 {
			t.Errorf("%s is not accepted: %v", o.ID(), problems)
		}
	}
}

func TestIsolationComesFromTheAnnotation(t *testing.T) {
	const policy = `{podSelector: {}, ingress: [{}]}`
	const allows = `shop/web {"podSelector":{},"ingress":[{}],"policyTypes":["Ingress"]}`
	for title, c := range map[string]modernCase{
		"no annotation": {shopYAML + legacyYAML(policy), []string{"Namespace shop"},
			[]string{"NetworkPolicy shop/web: had no effect, because its namespace was not isolated: it is left out"}, nil},
		"DefaultDeny":                  {annotatedYAML(denyAnnotation) + legacyYAML(policy), []string{"Namespace shop", shopDeny, allows}, nil, nil},
		"DefaultDeny without policies": {annotatedYAML(denyAnnotation), []string{"Namespace shop", shopDeny}, nil, nil},
		"the namespace comes last":     {legacyYAML(policy) + annotatedYAML(denyAnnotation), []string{allows, "Namespace shop", shopDeny}, nil, nil},
		"the namespace is not there":   {legacyYAML(policy), []string{shopDeny, allows}, []string{unknownShop}, nil},
		"the namespace of two is not there": {legacyYAML(policy) + strings.Replace(legacyYAML(policy), "name: web", "name: db", 1),
			[]string{shopDeny, allows, strings.Replace(allows, "/web", "/db", 1)}, []string{unknownShop}, nil},
		"nothing at all":                {"", nil, nil, nil},
		"no isolation":                  {annotatedYAML("{}"), []string{"Namespace shop"}, nil, nil},
		"no isolation of ingress":       {annotatedYAML(`{"ingress": {}}`), []string{"Namespace shop"}, nil, nil},
		"null":                          {annotatedYAML(`{"ingress": {"isolation": null}}`), []string{"Namespace shop"}, nil, nil},
		"an isolation that is unknown":  {annotatedYAML(`{"ingress": {"isolation": "None"}}`), []string{"Namespace shop", shopDeny}, nil, []string{annotationAt + `"None" is not an isolation: want DefaultDeny` + asIsolated}},
		"an isolation in another case":  {annotatedYAML(`{"ingress": {"isolation": "defaultDeny"}}`), []string{"Namespace shop", shopDeny}, nil, []string{annotationAt + `"defaultDeny" is not an isolation: want DefaultDeny` + asIsolated}},
		"an isolation without a name":   {annotatedYAML(`{"ingress": {"isolation": ""}}`), []string{"Namespace shop", shopDeny}, nil, []string{annotationAt + `"" is not an isolation: want DefaultDeny` + asIsolated}},
		"no JSON":                       {annotatedYAML("ingress"), []string{"Namespace shop", shopDeny}, nil, []string{annotationAt + `"ingress" is not JSON` + asIsolated}},
		"JSON and more":                 {annotatedYAML("{} {}"), []string{"Namespace shop", shopDeny}, nil, []string{annotationAt + `"{} {}" is not JSON` + asIsolated}},
		"an empty text":                 {annotatedYAML(""), []string{"Namespace shop", shopDeny}, nil, []string{annotationAt + `"" is not JSON` + asIsolated}},
		"no object":                     {annotatedYAML("null"), []string{"Namespace shop", shopDeny}, nil, []string{annotationAt + `"null" is not an object with each field once` + asIsolated}},
		"a field twice":                 {annotatedYAML(`{"ingress": {"isolation": "DefaultDeny"}, "ingress": {}}`), []string{"Namespace shop", shopDeny}, nil, []string{annotationAt + `"{\"ingress\": {\"isolation\": \"DefaultDeny\"}, \"ingress\": {}}" is not an object with each field once` + asIsolated}},
		"a field that is not known":     {annotatedYAML(`{"egress": {}}`), []string{"Namespace shop", shopDeny}, nil, []string{annotationAt + `egress: is not a known field: did you mean ingress?` + asIsolated}},
		"a type that is wrong":          {annotatedYAML(`{"ingress": {"isolation": 1}}`), []string{"Namespace shop", shopDeny}, nil, []string{annotationAt + `ingress.isolation: must be a string, not the number 1: put it in quotes` + asIsolated}},
		"policies of another namespace": {annotatedYAML(denyAnnotation) + strings.Replace(legacyYAML(policy), "namespace: shop", "namespace: data", 1), []string{"Namespace shop", shopDeny, "data/" + LegacyDenyName + " " + denySpec, strings.Replace(allows, "shop/", "data/", 1)}, []string{strings.ReplaceAll(unknownShop, "shop", "data")}, nil},
	} {
		t.Run(title, func(t *testing.T) { c.check(t, Before17) })
	}
}

func TestRulesOfLegacyPoliciesKeepTheirMeaning(t *testing.T) {
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
			modernCase{annotatedYAML(denyAnnotation) + legacyYAML(c.spec), []string{"Namespace shop", shopDeny, "shop/web " + c.want}, c.notes, nil}.check(t, Before17)
		})
	}
}

// TestPoliciesWithTodaysMeaningKeepIt: whatever their namespace says.
func TestPoliciesWithTodaysMeaningKeepIt(t *testing.T) {
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
			modernCase{shopYAML + legacyYAML(c.spec), []string{"Namespace shop", policy}, nil, nil}.check(t, Before17)
			modernCase{annotatedYAML(denyAnnotation) + legacyYAML(c.spec), []string{"Namespace shop", shopDeny, policy}, nil, nil}.check(t, Before17)
			modernCase{legacyYAML(c.spec), []string{policy}, nil, nil}.check(t, Before17)
		})
	}
}

func TestNewerClustersIgnoreTheAnnotation(t *testing.T) {
	const policy = "{podSelector: {}, ingress: [{from: []}]}"
	const asIs = `shop/web {"podSelector":{},"ingress":[{}]}`
	for title, namespace := range map[string]string{"isolated": annotatedYAML(denyAnnotation), "not isolated": shopYAML, "unreadable": annotatedYAML("x")} {
		t.Run(title, func(t *testing.T) {
			modernCase{namespace + legacyYAML(policy), []string{"Namespace shop", asIs}, nil, nil}.check(t, From17)
		})
	}
	modernCase{legacyYAML(policy), []string{asIs}, nil, nil}.check(t, From17)
}

func TestANameThatIsTakenIsToldAndOpensNothing(t *testing.T) {
	named := func(n, spec string) string {
		return "---\n" + strings.Replace(policyYAML(spec), "name: web", "name: "+LegacyDenyName+n, 1)
	}
	taken := func(n string) string {
		return "NetworkPolicy shop/" + LegacyDenyName + n + ": metadata.name: is reserved for the policy that isolates the namespace, which gets another name: rename this one"
	}
	const open = `{podSelector: {}, ingress: [{}]}`
	const isOpen = ` {"podSelector":{},"ingress":[{}]}`
	for title, c := range map[string]modernCase{
		"by another policy": {annotatedYAML(denyAnnotation) + named("", open),
			[]string{"Namespace shop", "shop/" + LegacyDenyName + "-2 " + denySpec, "shop/" + LegacyDenyName + isOpen}, nil, []string{taken("")}},
		"by two": {annotatedYAML(denyAnnotation) + named("", open) + named("-2", open),
			[]string{"Namespace shop", "shop/" + LegacyDenyName + "-3 " + denySpec, "shop/" + LegacyDenyName + isOpen, "shop/" + LegacyDenyName + "-2" + isOpen}, nil, []string{taken(""), taken("-2")}},
		"by a legacy policy": {annotatedYAML(denyAnnotation) + strings.Replace(legacyYAML(open), "name: web", "name: "+LegacyDenyName, 1),
			[]string{"Namespace shop", "shop/" + LegacyDenyName + "-2 " + denySpec, "shop/" + LegacyDenyName + ` {"podSelector":{},"ingress":[{}],"policyTypes":["Ingress"]}`}, nil, []string{taken("")}},
		"by the same policy":     {annotatedYAML(denyAnnotation) + named("", "{podSelector: {}, policyTypes: [Ingress]}"), []string{"Namespace shop", shopDeny}, nil, nil},
		"where nothing is taken": {shopYAML + named("", open), []string{"Namespace shop", "shop/" + LegacyDenyName + isOpen}, nil, nil},
	} {
		t.Run(title, func(t *testing.T) { c.check(t, Before17) })
	}
}

func TestModerniseDoesNotChangeItsInput(t *testing.T) {
	in := annotatedYAML(denyAnnotation) + legacyYAML("{podSelector: {}, ingress: [{from: []}, {}]}")
	objs := readLegacy(t, in)
	Modernise(objs, Before17)
	if diff := cmp.Diff(readLegacy(t, in), objs); diff != "" {
		t.Error(diff)
	}
	ns := Modernise(objs, Before17).Objects[0].Object.(*corev1.Namespace)
	if diff := cmp.Diff(map[string]string{"other": "stays"}, ns.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

// TestLegacyObjectsAreRefusedUnlessTheyAreAskedFor: and the error says what to do.
func TestLegacyObjectsAreRefusedUnlessTheyAreAskedFor(t *testing.T) {
	const do = `convert the manifests with "sluicectl convert", or accept them with --accept-legacy`
	objs, problems := Decode(strings.NewReader(annotatedYAML(denyAnnotation)+legacyYAML("{podSelector: {}}")), "f")
	want := []string{`f (document 2): NetworkPolicy shop/web: apiVersion: "extensions/v1beta1" is a legacy version, whose meaning depends on the namespace: ` + do}
	if diff := cmp.Diff(want, texts(problems)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	checkConversion(t, objs[0], model.KindNamespace, `name: "shop" labels {key: "kubernetes.io/metadata.name" value: "shop"}`, []string{
		`metadata.annotations[net.beta.kubernetes.io/network-policy]: is a legacy annotation that isolates nothing: ` + do + `, or remove it`})
	checkConversion(t, readLegacy(t, annotatedYAML("{}"))[0], model.KindNamespace, `name: "shop" labels {key: "kubernetes.io/metadata.name" value: "shop"}`, nil)
	checkConversion(t, readLegacy(t, legacyYAML("{podSelector: {}}"))[0], model.KindNetworkPolicy, "", []string{
		`apiVersion: "extensions/v1beta1" is a legacy version, whose meaning depends on the namespace: ` + do})
}

func TestLegacyPoliciesAreReadStrictly(t *testing.T) {
	for title, c := range map[string]struct{ in, want string }{
		"a misspelt field":      {legacyYAML("{podSelector: {}, ingres: []}"), "f: NetworkPolicy shop/web: spec.ingres: is not a known field: did you mean ingress?"},
		"no podSelector":        {legacyYAML("{}"), "f: NetworkPolicy shop/web: spec.podSelector: is missing: write podSelector: {} to select every pod of the namespace"},
		"a range of ports":      {legacyYAML("{podSelector: {}, ingress: [{}, {ports: [{port: 1, endPort: 2}]}]}"), "f: NetworkPolicy shop/web: spec.ingress[1].ports[0].endPort: is no field of extensions/v1beta1: write networking.k8s.io/v1"},
		"a range out of a pod":  {legacyYAML("{podSelector: {}, egress: [{ports: [{port: 1, endPort: 2}]}]}"), "f: NetworkPolicy shop/web: spec.egress[0].ports[0].endPort: is no field of extensions/v1beta1: write networking.k8s.io/v1"},
		"a null rule":           {legacyYAML("{podSelector: {}, ingress: [null]}"), "f: NetworkPolicy shop/web: spec.ingress[0]: must not be null: write the item, or leave it out"},
		"another kind of that":  {"apiVersion: extensions/v1beta1\nkind: Pod\nmetadata: {name: a}\n", `f: Pod default/a: apiVersion: "extensions/v1beta1" is not the version in which a Pod is read: write v1`},
		"another version of it": {"apiVersion: extensions/v1\nkind: NetworkPolicy\nmetadata: {name: a}\n", `f: NetworkPolicy default/a: apiVersion: "extensions/v1" is not the version in which a NetworkPolicy is read: write networking.k8s.io/v1`},
	} {
		p := reading{legacy: true}.parseBytes([]byte(c.in), "f")
		if len(p.objects) > 0 || len(p.refusals) != 1 || p.refusals[0].problem.Error() != c.want {
			t.Errorf("%s: %d objects, %v, want %s", title, len(p.objects), p.refusals, c.want)
		}
	}
	list := readLegacy(t, "apiVersion: extensions/v1beta1\nkind: NetworkPolicyList\nitems: [{metadata: {name: a}, spec: {podSelector: {}}}]\n")
	if diff := cmp.Diff([]string{"NetworkPolicy default/a"}, ids(list)); diff != "" {
		t.Errorf("a list (-want +got):\n%s", diff)
	}
}
