package convert

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api/model"

	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/tests/lab/samples"
)

// adminYAML is an AdminNetworkPolicy web with a spec in flow style.
func adminYAML(spec string) string { return clusterYAML("v1alpha1", "AdminNetworkPolicy", "web", spec) }

// baselineYAML is the BaselineAdminNetworkPolicy.
func baselineYAML(spec string) string {
	return clusterYAML("v1alpha1", "BaselineAdminNetworkPolicy", "default", spec)
}

// tierYAML is a ClusterNetworkPolicy web.
func tierYAML(spec string) string {
	return clusterYAML("v1alpha2", "ClusterNetworkPolicy", "web", spec)
}

func clusterYAML(version, kind, name, spec string) string {
	return "apiVersion: policy.networking.k8s.io/" + version + "\nkind: " + kind + "\nmetadata: {name: " + name + "}\nspec: " + spec + "\n"
}

const (
	adminHead    = `kind: KIND_ADMIN_NETWORK_POLICY name: "web" tier: TIER_ADMIN `
	baselineHead = `kind: KIND_BASELINE_ADMIN_NETWORK_POLICY name: "default" tier: TIER_BASELINE priority: 1001 `
	tierHead     = `kind: KIND_CLUSTER_NETWORK_POLICY name: "web" tier: TIER_ADMIN `
	everyPod     = "{namespaces {} pods {}} "
	ofEveryPod   = "subject " + everyPod
	fromEveryPod = "peers {pods " + everyPod + "} "
)

func TestToModelOfClusterPolicies(t *testing.T) {
	for title, c := range map[string]struct{ in, want string }{
		"an AdminNetworkPolicy without rules": {adminYAML("{priority: 0, subject: {namespaces: {}}}"), adminHead + ofEveryPod},
		"an AdminNetworkPolicy of the least importance": {adminYAML("{priority: 1000, subject: {namespaces: {}}, ingress: [], egress: []}"),
			adminHead + "priority: 1000 " + ofEveryPod},
		"a subject of namespaces": {adminYAML("{priority: 7, subject: {namespaces: {matchLabels: {b: x, a: ''}, matchExpressions: [{key: c, operator: NotIn, values: [z, w, z]}]}}}"),
			adminHead + `priority: 7 subject {namespaces {match_labels {key: "a"} match_labels {key: "b" value: "x"}
				match_expressions {key: "c" operator: OPERATOR_NOT_IN values: "w" values: "z"}} pods {}}`},
		"a subject of pods": {adminYAML("{priority: 7, subject: {pods: {namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: web}}}}}"),
			adminHead + `priority: 7 subject {namespaces {match_labels {key: "team" value: "a"}} pods {match_labels {key: "app" value: "web"}}}`},
		"the BaselineAdminNetworkPolicy, which comes last": {baselineYAML("{subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}], egress: [{action: Allow, to: [{nodes: {}}]}]}"),
			baselineHead + ofEveryPod + "ingress {action: ACTION_DENY any_port: true " + fromEveryPod + "} egress {action: ACTION_ALLOW any_port: true peers {nodes {}}}"},
		"a ClusterNetworkPolicy of the Admin tier": {tierYAML("{tier: Admin, priority: 5, subject: {namespaces: {}}}"),
			tierHead + "priority: 5 " + ofEveryPod},
		"a ClusterNetworkPolicy of the Baseline tier": {tierYAML("{tier: Baseline, priority: 0, subject: {pods: {podSelector: {}}}}"),
			`kind: KIND_CLUSTER_NETWORK_POLICY name: "web" tier: TIER_BASELINE ` + ofEveryPod},
		"actions and names of v1alpha1, in order": {adminYAML(`{priority: 1, subject: {namespaces: {}}, ingress: [
				{name: first, action: Pass, from: [{namespaces: {}}]}, {name: second, action: Deny, from: [{namespaces: {}}]}, {action: Allow, from: [{namespaces: {}}]}]}`),
			adminHead + "priority: 1 " + ofEveryPod + `ingress {name: "first" action: ACTION_PASS any_port: true ` + fromEveryPod +
				`} ingress {name: "second" action: ACTION_DENY any_port: true ` + fromEveryPod + "} ingress {action: ACTION_ALLOW any_port: true " + fromEveryPod + "}"},
		"actions of v1alpha2": {tierYAML(`{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [
				{action: Accept, to: [{namespaces: {}}]}, {action: Deny, to: [{namespaces: {}}]}, {action: Pass, to: [{namespaces: {}}]}]}`),
			tierHead + "priority: 1 " + ofEveryPod + "egress {action: ACTION_ALLOW any_port: true " + fromEveryPod +
				"} egress {action: ACTION_DENY any_port: true " + fromEveryPod + "} egress {action: ACTION_PASS any_port: true " + fromEveryPod + "}"},
	} {
		t.Run(title, func(t *testing.T) {
			checkConversion(t, decodeOne(t, c.in), model.KindClusterNetworkPolicy, c.want, nil)
		})
	}
}

// TestBitsBehindPrefixAreMasked: they do not count. The definitions of ClusterNetworkPolicy refuse
// them since network-policy-api v0.2.1, those of the older kinds admit them. What was stored before
// is served as it is, and stays in force.
func TestBitsBehindPrefixAreMasked(t *testing.T) {
	for _, kind := range []string{"AdminNetworkPolicy", "BaselineAdminNetworkPolicy"} {
		k := clusterKinds[kind]
		checkConversion(t, decodeOne(t, k.yaml("{action: Deny, to: [{networks: [10.1.2.3/8, 10.0.0.0/8, 'FD00:0::1/8']}]}")), model.KindClusterNetworkPolicy,
			k.head+`egress {action: ACTION_DENY any_port: true peers {network: "10.0.0.0/8"} peers {network: "fd00::/8"}}`, nil)
	}
	const spec = "{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: [10.1.2.3/8, 'fd00::1/8', 10.0.0.0/16]}]}]}"
	const want = tierHead + "priority: 1 " + ofEveryPod + `egress {action: ACTION_DENY any_port: true peers {network: "10.0.0.0/8"} peers {network: "10.0.0.0/16"} peers {network: "fd00::/8"}}`
	checkConversion(t, decodeOne(t, tierYAML(spec)), model.KindClusterNetworkPolicy, want, []string{
		`spec.egress[0].to[0].networks[0]: "10.1.2.3/8" has bits behind its prefix: write 10.0.0.0/8`,
		`spec.egress[0].to[0].networks[1]: "fd00::1/8" has bits behind its prefix: write fd00::/8`,
	})
}

func TestToModelIgnoresStatusOfClusterPolicy(t *testing.T) {
	for _, in := range []string{
		adminYAML("{priority: 1, subject: {namespaces: {}}}"), baselineYAML("{subject: {namespaces: {}}}"), tierYAML("{tier: Admin, priority: 1, subject: {namespaces: {}}}"),
	} {
		in += "status: {conditions: [{type: Ready, status: 'True', newer: 1, reason: R, message: '', lastTransitionTime: '2026-01-02T03:04:05Z'}], newer: {}}\n"
		if msg, problems := ToModel(decodeOne(t, in)); msg == nil || len(problems) > 0 {
			t.Errorf("%v, %v", msg, problems)
		}
	}
}

// TestToModelRefusesClusterPolicyOfUnknownScope: all errors are reported.
func TestToModelRefusesClusterPolicyOfUnknownScope(t *testing.T) {
	const subject = "spec.subject: must have exactly one of namespaces and pods"
	for title, c := range map[string]struct {
		in       string
		problems []string
	}{
		"priority below":          {adminYAML("{priority: -1, subject: {namespaces: {}}}"), []string{"spec.priority: -1 is not a priority: want 0 to 1000"}},
		"priority above":          {adminYAML("{priority: 1001, subject: {namespaces: {}}}"), []string{"spec.priority: 1001 is not a priority: want 0 to 1000"}},
		"priority of a tier":      {tierYAML("{tier: Baseline, priority: 1001, subject: {namespaces: {}}}"), []string{"spec.priority: 1001 is not a priority: want 0 to 1000"}},
		"no tier":                 {tierYAML("{priority: 1, subject: {namespaces: {}}}"), []string{`spec.tier: "" is not a tier: want Admin or Baseline`}},
		"an unknown tier":         {tierYAML("{tier: admin, priority: 1, subject: {namespaces: {}}}"), []string{`spec.tier: "admin" is not a tier: want Admin or Baseline`}},
		"the tier between":        {tierYAML("{tier: NetworkPolicy, priority: 1, subject: {namespaces: {}}}"), []string{`spec.tier: "NetworkPolicy" is not a tier: want Admin or Baseline`}},
		"another baseline":        {clusterYAML("v1alpha1", "BaselineAdminNetworkPolicy", "other", "{subject: {namespaces: {}}}"), []string{`metadata.name: "other" is not the name of a BaselineAdminNetworkPolicy: there is one only, and its name is default`}},
		"no subject":              {adminYAML("{priority: 1}"), []string{subject}},
		"an empty subject":        {tierYAML("{tier: Admin, priority: 1, subject: {}}"), []string{subject}},
		"a null subject":          {baselineYAML("{subject: {namespaces: null}}"), []string{subject}},
		"two subjects":            {baselineYAML("{subject: {namespaces: {}, pods: {namespaceSelector: {}, podSelector: {}}}}"), []string{subject}},
		"a bad subject":           {adminYAML("{priority: 1, subject: {namespaces: {matchLabels: {a: b c}}}}"), []string{`spec.subject.namespaces.matchLabels[a]: "b c" is not a label value`}},
		"a bad namespaceSelector": {tierYAML("{tier: Admin, priority: 1, subject: {pods: {namespaceSelector: {matchExpressions: [{key: a, operator: in}]}, podSelector: {}}}}"), []string{`spec.subject.pods.namespaceSelector.matchExpressions[0].operator: "in" is not an operator: want In, NotIn, Exists or DoesNotExist`}},
		"a bad podSelector":       {baselineYAML("{subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {a b: c}}}}}"), []string{`spec.subject.pods.podSelector.matchLabels[a b]: "a b" is not a label key`}},
		"everything": {tierYAML("{tier: x, priority: -5, subject: {}, ingress: [{action: z}]}"), []string{
			`spec.tier: "x" is not a tier: want Admin or Baseline`, "spec.priority: -5 is not a priority: want 0 to 1000", subject,
			`spec.ingress[0].action: "z" is not an action of a ClusterNetworkPolicy: want Accept, Deny or Pass; what the rule matches is denied`,
			"spec.ingress[0].from: has no peers: write for example namespaces: {} for every pod",
			"spec.ingress[0]: denies everything: it does not allow, and not all of its peers and ports are known",
		}},
		"no spec": {"apiVersion: policy.networking.k8s.io/v1alpha1\nkind: BaselineAdminNetworkPolicy\nmetadata: {name: default}", []string{subject}},
	} {
		t.Run(title, func(t *testing.T) {
			checkConversion(t, decodeOne(t, c.in), model.KindClusterNetworkPolicy, "", c.problems)
		})
	}
}

// TestToModelRefusesMissingPriorityOrSelector: a missing priority would be the most
// important one, and a missing selector would select everything.
func TestToModelRefusesMissingPriorityOrSelector(t *testing.T) {
	rule := func(egress, rule string) string {
		return "{tier: Admin, priority: 1, subject: {namespaces: {}}, " + egress + ": [" + rule + "]}"
	}
	admin := func(rule string) string {
		return adminYAML("{priority: 1, subject: {namespaces: {}}, egress: [" + rule + "]}")
	}
	const empty = ": must not be empty: leave it out, or write an item"
	for title, c := range map[string]struct{ in, want string }{
		"no priority in v1alpha1":              {adminYAML("{subject: {namespaces: {}}}"), "AdminNetworkPolicy web: spec.priority: is missing"},
		"no priority in v1alpha2":              {tierYAML("{tier: Admin, subject: {namespaces: {}}}"), "ClusterNetworkPolicy web: spec.priority: is missing"},
		"a null priority":                      {tierYAML("{tier: Admin, priority: null, subject: {namespaces: {}}}"), "ClusterNetworkPolicy web: spec.priority: is missing"},
		"no podSelector of a subject":          {tierYAML("{tier: Admin, priority: 1, subject: {pods: {namespaceSelector: {}}}}"), "ClusterNetworkPolicy web: spec.subject.pods.podSelector: is missing"},
		"no podSelector in v1alpha1":           {baselineYAML("{subject: {pods: {namespaceSelector: {}}}}"), "BaselineAdminNetworkPolicy default: spec.subject.pods.podSelector: is missing"},
		"no namespaceSelector in v1alpha1":     {adminYAML("{priority: 1, subject: {pods: {podSelector: {}}}}"), "AdminNetworkPolicy web: spec.subject.pods.namespaceSelector: is missing"},
		"no podSelector of a peer":             {tierYAML(rule("ingress", "{action: Accept, from: [{pods: {}}]}")), "ClusterNetworkPolicy web: spec.ingress[0].from[0].pods.podSelector: is missing"},
		"a null podSelector of a peer":         {tierYAML(rule("egress", "{action: Accept, to: [{pods: {podSelector: null}}]}")), "ClusterNetworkPolicy web: spec.egress[0].to[0].pods.podSelector: is missing"},
		"no networks beside namespaces":        {tierYAML(rule("egress", "{action: Accept, to: [{namespaces: {}, networks: []}]}")), "ClusterNetworkPolicy web: spec.egress[0].to[0].networks" + empty},
		"no networks in v1alpha1":              {admin("{action: Allow, to: [{networks: []}]}"), "AdminNetworkPolicy web: spec.egress[0].to[0].networks" + empty},
		"no networks in the baseline":          {baselineYAML("{subject: {namespaces: {}}, egress: [{action: Allow, to: [{networks: []}]}]}"), "BaselineAdminNetworkPolicy default: spec.egress[0].to[0].networks" + empty},
		"no names in v1alpha1":                 {admin("{action: Allow, to: [{domainNames: []}]}"), "AdminNetworkPolicy web: spec.egress[0].to[0].domainNames" + empty},
		"no names in v1alpha2":                 {tierYAML(rule("egress", "{action: Accept, to: [{domainNames: []}]}")), "ClusterNetworkPolicy web: spec.egress[0].to[0].domainNames" + empty},
		"no protocols of ingress":              {tierYAML(rule("ingress", "{action: Accept, from: [{namespaces: {}}], protocols: []}")), "ClusterNetworkPolicy web: spec.ingress[0].protocols" + empty},
		"no protocols of egress":               {tierYAML(rule("egress", "{action: Accept, to: [{namespaces: {}}], protocols: []}")), "ClusterNetworkPolicy web: spec.egress[0].protocols" + empty},
		"a name that is empty beside a port":   {tierYAML(rule("egress", "{action: Accept, to: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 1}}, destinationNamedPort: ''}]}")), `ClusterNetworkPolicy web: spec.egress[0].protocols[0].destinationNamedPort: must not be the string "" beside another field: leave one of them out`},
		"a number that is zero beside a range": {tierYAML(rule("egress", "{action: Accept, to: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 0, range: {start: 1, end: 2}}}}]}")), "ClusterNetworkPolicy web: spec.egress[0].protocols[0].tcp.destinationPort.number: must not be the number 0 beside another field: leave one of them out"},
		"an unknown peer":                      {tierYAML(rule("egress", "{action: Accept, to: [{services: {}}]}")), "ClusterNetworkPolicy web: spec.egress[0].to[0].services: is not a known field"},
		"networks of ingress":                  {tierYAML(rule("ingress", "{action: Accept, from: [{networks: [10.0.0.0/8]}]}")), "ClusterNetworkPolicy web: spec.ingress[0].from[0].networks: is not a known field"},
		"names in the baseline":                {baselineYAML("{subject: {namespaces: {}}, egress: [{action: Allow, to: [{domainNames: [a.b]}]}]}"), "BaselineAdminNetworkPolicy default: spec.egress[0].to[0].domainNames: is not a known field"},
		"a misspelt field":                     {adminYAML("{priorty: 1, subject: {namespaces: {}}}"), "AdminNetworkPolicy web: spec.priorty: is not a known field: did you mean priority?"},
		"a field in wrong case":                {tierYAML(rule("egress", "{action: Accept, to: [{domainnames: [a.b]}]}")), "ClusterNetworkPolicy web: spec.egress[0].to[0].domainnames: is not a known field: did you mean domainNames?"},
		"ports of the other version":           {tierYAML(rule("egress", "{action: Accept, to: [{namespaces: {}}], ports: []}")), "ClusterNetworkPolicy web: spec.egress[0].ports: is not a known field"},
		"protocols of the other version":       {admin("{action: Allow, to: [{namespaces: {}}], protocols: []}"), "AdminNetworkPolicy web: spec.egress[0].protocols: is not a known field"},
		"a null rule":                          {tierYAML(rule("egress", "null")), "ClusterNetworkPolicy web: spec.egress[0]: must not be null: write the item, or leave it out"},
		"a null network":                       {tierYAML(rule("egress", "{action: Accept, to: [{networks: [null]}]}")), "ClusterNetworkPolicy web: spec.egress[0].to[0].networks[0]: must not be null: write the item, or leave it out"},
		"a priority in quotes":                 {adminYAML("{priority: '1', subject: {namespaces: {}}}"), `AdminNetworkPolicy web: spec.priority: must be a whole number, not the string "1"`},
		"a priority of more than 32 bits":      {adminYAML("{priority: 4294967297, subject: {namespaces: {}}}"), "AdminNetworkPolicy web: spec.priority: must be a whole number of 32 bits, not the number 4294967297"},
		"a namespace of an AdminNetworkPolicy": {"apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\nmetadata: {name: web, namespace: shop}", "AdminNetworkPolicy web: metadata.namespace: must not be there: an AdminNetworkPolicy is in no namespace"},
		"a ClusterNetworkPolicy of v1alpha1":   {clusterYAML("v1alpha1", "ClusterNetworkPolicy", "web", "{}"), `ClusterNetworkPolicy web: apiVersion: "policy.networking.k8s.io/v1alpha1" is not the version in which a ClusterNetworkPolicy is read: write policy.networking.k8s.io/v1beta1`},
		"an AdminNetworkPolicy of v1alpha2":    {clusterYAML("v1alpha2", "AdminNetworkPolicy", "web", "{}"), `AdminNetworkPolicy web: apiVersion: "policy.networking.k8s.io/v1alpha2" is not the version in which an AdminNetworkPolicy is read: write policy.networking.k8s.io/v1alpha1`},
		"a policy of somebody else":            {"apiVersion: crd.antrea.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {name: web}", `ClusterNetworkPolicy web: apiVersion: "crd.antrea.io/v1beta1" is not the version in which a ClusterNetworkPolicy is read: write policy.networking.k8s.io/v1beta1`},
		"a misspelt kind":                      {clusterYAML("v1alpha1", "AdminNetworkPolicies", "web", "{}"), `AdminNetworkPolicies web: kind: "AdminNetworkPolicies" is not a kind of Kubernetes`},
		"a kind in another case":               {clusterYAML("v1alpha2", "clusterNetworkPolicy", "web", "{}"), `clusterNetworkPolicy web: kind: "clusterNetworkPolicy" is not a kind of Kubernetes: did you mean ClusterNetworkPolicy?`},
	} {
		t.Run(title, func(t *testing.T) {
			objs, problems := decodeText(strings.NewReader(c.in), "f")
			if diff := cmp.Diff([]string{"f: " + c.want}, samples.Texts(problems)); diff != "" || len(objs) > 0 {
				t.Errorf("objects %v, problems (-want +got):\n%s", samples.IDs(objs), diff)
			}
		})
	}
}

// TestToModelOfClusterPolicyLists: as kubectl and the API server write them.
func TestToModelOfClusterPolicyLists(t *testing.T) {
	const in = `{"apiVersion":"policy.networking.k8s.io/v1alpha1","kind":"AdminNetworkPolicyList","items":[{"metadata":{"name":"a"},"spec":{"priority":1,"subject":{"namespaces":{}}}}]}
{"apiVersion":"policy.networking.k8s.io/v1alpha1","kind":"BaselineAdminNetworkPolicyList","items":[{"metadata":{"name":"default"},"spec":{"subject":{"namespaces":{}}}}]}
{"apiVersion":"policy.networking.k8s.io/v1alpha2","kind":"ClusterNetworkPolicyList","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"c"},"spec":{"tier":"Admin","priority":1,"subject":{"namespaces":{}}}}]}
{"apiVersion":"v1","kind":"NodeList","items":[{"metadata":{"name":"n1"}}]}
{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Node","metadata":{"name":"n2"}}]}`
	objs, problems := decodeText(strings.NewReader(in), "-")
	if len(problems) > 0 {
		t.Errorf("problems: %v", problems)
	}
	want := []string{"AdminNetworkPolicy a", "BaselineAdminNetworkPolicy default", "ClusterNetworkPolicy c", "Node n1", "Node n2"}
	if diff := cmp.Diff(want, samples.IDs(objs)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	if implied := kinds.ImpliedNamespaces(objs); len(implied) > 0 {
		t.Errorf("implied namespaces: %v", implied)
	}
}

func TestToModelRefusesNilPoliciesAndNodes(t *testing.T) {
	for _, obj := range []any{(*v1alpha1.AdminNetworkPolicy)(nil), (*v1alpha1.BaselineAdminNetworkPolicy)(nil), (*v1alpha2.ClusterNetworkPolicy)(nil), v1alpha2.ClusterNetworkPolicy{}} {
		if msg, problems := ToModel(obj); msg != nil || len(problems) != 1 {
			t.Errorf("%T: %v, %v", obj, msg, problems)
		}
	}
}

// TestToModelTakesEmptyListAsAbsent: the JSON of the types has no empty lists, so
// an empty list in a Go value has the same meaning as a missing one.
func TestToModelTakesEmptyListAsAbsent(t *testing.T) {
	cnp := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	cnp.Spec.Tier, cnp.Spec.Subject.Namespaces = v1alpha2.AdminTier, &metav1.LabelSelector{}
	cnp.Spec.Egress = []v1alpha2.ClusterNetworkPolicyEgressRule{{
		Action: v1alpha2.ClusterNetworkPolicyRuleActionAccept, Protocols: []v1alpha2.ClusterNetworkPolicyProtocol{},
		To: []v1alpha2.ClusterNetworkPolicyEgressPeer{{Namespaces: &metav1.LabelSelector{}, Networks: []v1alpha2.CIDR{}, DomainNames: []v1alpha2.DomainName{}}},
	}}
	checkConversion(t, cnp, model.KindClusterNetworkPolicy, tierHead+ofEveryPod+"egress {action: ACTION_ALLOW any_port: true "+fromEveryPod+"}", nil)
}
