package oracle_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/oracle"
)

// guarded is a cluster whose administrators deny the database to everybody but the
// API, which is left to its namespace, and open it to what watches.
const guarded = forDB + `ingress: [` +
	`{name: watchers, action: Allow, from: [{namespaces: {matchLabels: {team: b}}}], ports: [{portNumber: {protocol: TCP, port: 9187}}]}, ` +
	`{name: leave-to-shop, action: Pass, from: ` + apiPods + `}, ` +
	`{name: nobody-else, action: Deny, from: [{namespaces: {}}, {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: never}}}}]}, ` +
	`{action: Allow, from: ` + allPods + `}]`

// tierExplanations are what people read where there are tiers, in testdata/explain.
var tierExplanations = map[string]struct{ policies, tiers, question string }{
	"admin-deny":          {allowWeb, anp("guard", 10, guarded), "shop/web > shop/db 5432/tcp"},
	"admin-allow":         {denyDB, anp("guard", 10, guarded), "infra/mon > shop/db 9187/tcp"},
	"admin-pass-isolated": {dbClients, anp("guard", 10, guarded) + banp(forDB+denyWeb), "shop/api > shop/db 80/tcp"},
	"admin-pass-baseline": {"", anp("guard", 10, guarded) + banp(forAll+`ingress: [{name: default-deny, action: Deny, from: `+allPods+`}]`), "shop/api > shop/db 80/tcp"},
	"baseline-deny":       {"", banp(forAll + `ingress: [{name: default-deny, action: Deny, from: ` + allPods + `}]`), "shop/web > shop/db 80/tcp"},
	"baseline-allow": {"", cnp("Baseline", "own", 1, forShop+`ingress: [{action: Accept, from: `+webPods+`}]`) +
		banp(forAll+`ingress: [{action: Deny, from: `+allPods+`}]`), "shop/web > shop/db 80/tcp"},
	"baseline-pass":    {"", cnp("Baseline", "own", 1, forShop+`ingress: [{action: Pass, from: `+webPods+`}]`) + banp(forDB+denyWeb), "shop/web > shop/db 80/tcp"},
	"two-denials":      {allowWeb, anp("a", 1, forDB+denyWeb) + cnp("Admin", "b", 2, forDB+`ingress: [{action: Deny, from: `+allPods+`}]`), "shop/web > shop/db 80/tcp"},
	"both-ends-denied": {"", anp("a", 1, forAll+`ingress: [{action: Deny, from: `+webPods+`}], egress: [{action: Deny, to: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}}]}]`), "shop/web > shop/db 80/tcp"},
	"denied-and-isolated": {denyDB, anp("a", 1, forDB+`ingress: [{action: Deny, from: [{}]}]`),
		"203.0.113.9 > shop/db 80/tcp"}, // not understood, and behind it nobody allows the flow either
	"networks-and-nodes": {"", anp("out", 3, forDB+`egress: [{action: Allow, to: [{networks: [198.51.100.0/24, 192.0.2.0/24]}], ports: [{namedPort: http}, {portRange: {protocol: TCP, start: 80, end: 90}}]}, {action: Deny, to: [{nodes: {}}, {networks: [0.0.0.0/0]}]}]`),
		"shop/db > 192.168.0.2 10250/tcp"},
	"odd-rules": {"", cnp("Admin", "odd", 3, forDB+`egress: [{action: Accept, to: [{domainNames: [example.org]}, {networks: [x, 198.51.100.0/24]}, {}]}, {action: Accept, to: []}, {action: Log, to: [{networks: [203.0.113.0/24]}], protocols: [{destinationNamedPort: http}, {tcp: {destinationPort: {number: 443}}}]}]`) +
		cnp("Nowhere", "refused", 1, forDB), "shop/db > 203.0.113.9 443/tcp"},
	"no-rule-decides": {"", anp("a", 1, forDB+denyWeb) + banp(forDB+denyWeb), "shop/api > shop/db 80/tcp"},
}

func TestAnExplanationWithTiersReads(t *testing.T) {
	for name, tc := range tierExplanations {
		t.Run(name, func(t *testing.T) {
			golden(t, "tiers-"+name+".golden", explainedInTiers(t, tc.policies, tc.tiers, tc.question).String())
		})
	}
}

func TestTheJSONOfAVerdictWithTiersIsStable(t *testing.T) {
	v := explainedInTiers(t, denyDB, anp("guard", 10, forDB+`ingress: [{name: mine, action: Pass, from: `+apiPods+`}, {action: Deny, from: `+webPods+`}]`), "shop/web > shop/db 80/tcp")
	got, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "tiers-verdict.json", string(got)+"\n") // what other programs read: fields are only ever added
	var back oracle.Verdict
	if err := json.Unmarshal(got, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v, back, sameAddr); diff != "" {
		t.Errorf("after reading it back -want +got:\n%s", diff)
	}
}

// TestANetworkPolicyCannotFlipWhatAdministratorsDeny wants nothing to be offered that
// changes a NetworkPolicy alone.
func TestANetworkPolicyCannotFlipWhatAdministratorsDeny(t *testing.T) {
	v := explainedInTiers(t, dbClients, anp("a", 1, forDB+denyWeb), "shop/web > shop/db 5432/tcp")
	if v.Allowed || len(v.Changes) == 0 {
		t.Fatalf("the case is not the one that is meant:\n%s", v)
	}
	for _, c := range v.Changes {
		touches := func(c oracle.Change) bool {
			return slices.ContainsFunc(c.Origins, func(g api.Origin) bool { return g.Policy.Name == "a" })
		}
		if !touches(c) && !slices.ContainsFunc(c.Parts, touches) {
			t.Errorf("%q cannot be enough", c.Text)
		}
	}
}

// TestAnAdministratorsRuleIsChangedBeforeLabelsGetRoundIt: whoever relabels a namespace to get
// round a rule takes all its pods out of it, and is often not allowed to.
func TestAnAdministratorsRuleIsChangedBeforeLabelsGetRoundIt(t *testing.T) {
	const (
		fromTeam  = `ingress: [{action: Deny, from: [{namespaces: {matchLabels: {team: a}}}]}]`
		fromPods  = `ingress: [{action: Deny, from: [{pods: {namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: web}}}}]}]`
		allowTeam = `ingress: [{action: Allow, from: [{namespaces: {matchLabels: {team: b}}}]}, {action: Deny, from: [{namespaces: {}}]}]`
	)
	for name, tc := range map[string]struct{ policies, tiers, kind string }{
		"admin":           {"", anp("guard", 10, forDB+fromTeam), "AdminNetworkPolicy guard"},
		"admin, pods":     {"", anp("guard", 10, forDB+fromPods), "AdminNetworkPolicy guard"},
		"admin, allowing": {"", anp("guard", 10, forDB+allowTeam), "AdminNetworkPolicy guard"},
		"and isolated":    {dbClients, anp("guard", 10, forDB+fromTeam), "AdminNetworkPolicy guard"},
		"cluster":         {"", cnp("Admin", "guard", 10, forDB+fromTeam), "ClusterNetworkPolicy guard"},
		"baseline":        {"", banp(forDB + fromTeam), "BaselineAdminNetworkPolicy default"},
	} {
		v := explainedInTiers(t, tc.policies, tc.tiers, "shop/web > shop/db 80/tcp")
		if v.Allowed || v.Ingress.Subjects[0].Rule == nil || len(v.Changes) == 0 {
			t.Fatalf("%s: the case is not the one that is meant:\n%s", name, v)
		}
		rule := originOf(*v.Ingress.Subjects[0].Rule)
		if !strings.Contains(v.String(), "\n  ask the administrators about "+rule+", which is theirs and denies it\n  smallest change") {
			t.Errorf("%s: nobody is named to ask:\n%s", name, v)
		}
		if c := v.Changes[0]; !c.Flips || labels(c) > 0 || !strings.Contains(c.Text, "rule 0 of "+tc.kind) && !strings.Contains(c.Text, "rule 1 of "+tc.kind) {
			t.Errorf("%s: the first change is %q", name, c.Text)
		}
		for i, c := range v.Changes {
			if c.Flips && i > 0 && labels(v.Changes[i-1]) > labels(c) {
				t.Errorf("%s: %q comes after %q", name, c.Text, v.Changes[i-1].Text)
			}
		}
	}
}

func originOf(g api.Origin) string {
	return fmt.Sprintf("%s rule %d of %s", g.Direction, g.Rule, g.Policy)
}

// labels is 1 for a change that labels a pod, and 2 for one that labels a namespace.
func labels(c oracle.Change) (n int) {
	switch c.Kind {
	case oracle.LabelPod:
		n = 1
	case oracle.LabelNamespace:
		n = 2
	default:
	}
	for _, p := range c.Parts {
		n = max(n, labels(p))
	}
	return n
}

// TestTheWhyOfATierTermNamesWhatFailed is about terms that NetworkPolicy does not have.
func TestTheWhyOfATierTermNamesWhatFailed(t *testing.T) {
	deny := func(peers, ports string) string {
		return anp("a", 1, forDB+`egress: [{action: Deny, to: [`+peers+`], ports: [`+ports+`]}]`)
	}
	for name, tc := range map[string]struct{ tiers, question, want string }{
		"a node with other labels": {deny(`{nodes: {matchLabels: {role: x}}}`, `{portNumber: {port: 1}}`), "shop/db > 192.168.0.1 1/tcp", "node n1 has no label role"},
		"no node":                  {deny(`{nodes: {}}`, `{portNumber: {port: 1}}`), "shop/db > 203.0.113.9 1/tcp", "203.0.113.9 is not the address of a node"},
		"another network":          {deny(`{networks: [10.0.0.0/8]}`, `{portNumber: {port: 1}}`), "shop/db > 203.0.113.9 1/tcp", "203.0.113.9 is not in it"},
		"another namespace":        {deny(`{namespaces: {matchLabels: {kubernetes.io/metadata.name: ops}}}`, `{portNumber: {port: 1}}`), "shop/db > shop/web 1/tcp", "shop/web is not in namespace ops"},
		"namespace and pod": {deny(`{pods: {namespaceSelector: {matchLabels: {team: b}}, podSelector: {matchLabels: {app: x}}}}`, `{portNumber: {port: 1}}`),
			"shop/db > shop/web 1/tcp", "namespace shop has team=a; shop/web has app=web"},
		"an unknown namespace": {deny(`{namespaces: {}}`, `{portNumber: {port: 1}}`), "shop/db > ghost/web 1/tcp", "namespace ghost is not known"},
		"another port":         {deny(`{namespaces: {}}`, `{portNumber: {port: 1}}`), "shop/db > shop/web 2/tcp", "the flow is 2/tcp"},
		"a name elsewhere":     {deny(`{namespaces: {}}`, `{namedPort: http}`), "shop/db > shop/web 2/tcp", "http is 8080/tcp on shop/web, not 2/tcp"},
		"a name nowhere":       {deny(`{namespaces: {}}`, `{namedPort: none}`), "shop/db > shop/web 2/tcp", "shop/web has no port named none"},
		"a name for no pod":    {deny(`{nodes: {}}`, `{namedPort: http}`), "shop/db > 192.168.0.2 2/tcp", "impossible: nodes, networks and domainNames have no port names"},
		"an inverted range":    {deny(`{namespaces: {}}`, `{portRange: {start: 9, end: 8}}`), "shop/db > shop/web 8/tcp", "impossible: the range ends with 8, and starts with 9"},
		"a pod that waits":     {deny(`{networks: [0.0.0.0/0]}`, `{portNumber: {port: 1}}`), "shop/db > ops/new 1/tcp", "ops/new has no address"},
	} {
		t.Run(name, func(t *testing.T) {
			v := explainedInTiers(t, "", tc.tiers, tc.question)
			var got []string
			re := v.Egress.Admin[0].Rules[0]
			for _, term := range slices.Concat(re.Peers, re.Ports) {
				if !term.Matched {
					got = append(got, term.Why)
				}
			}
			if diff := cmp.Diff([]string{tc.want}, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
