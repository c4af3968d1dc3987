package oracle_test

import (
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/oracle"
)

// sameAddr compares addresses with ==.
var sameAddr = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

const dbClients = `
metadata: {name: db-clients}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: api}}}]
    ports: [{port: 5432}]
  - ports: [{port: 9187}, {port: dns, protocol: UDP}]
---
metadata: {name: quarantine}
spec: {podSelector: {}, policyTypes: [Ingress]}`

func explained(t *testing.T, policies, question string) oracle.Verdict {
	t.Helper()
	return explainedInTiers(t, policies, "", question)
}

func explainedInTiers(t *testing.T, policies, tiers, question string) oracle.Verdict {
	t.Helper()
	st := shop()
	st.Pods = append(st.Pods, newPod("ops", "new", "app=new", "", nil))
	st.Policies = parsePolicies(t, policies)
	addTiers(t, &st, tiers)
	o := oracle.New(st)
	q := parseQuestion(t, o, question+" deny")
	return o.Explain(q.src, q.dst, q.protocol, q.port)
}

var update = flag.Bool("update", false, "write the golden files anew")

// explanations are what people read, in testdata/explain: every column counts.
var explanations = map[string]struct{ policies, question string }{
	"denied":             {dbClients, "shop/web > shop/db 5432/tcp"}, // every policy, every failed term, the nearest change
	"allowed":            {dbClients, "shop/api > shop/db 5432/tcp"},
	"except":             {dbFrom(`{ipBlock: {cidr: 203.0.113.0/24, except: [203.0.113.0/28]}}`), "203.0.113.9 > shop/db icmp"},
	"own-node":           {denyAll, "192.168.0.1 > shop/db 1/tcp"},
	"self":               {denyAll, "shop/db > shop/db 1/tcp"},
	"both-deny":          {denyAll, "shop/web > shop/db 1/tcp"},
	"open":               {"", "shop/web > shop/db 1/tcp"},
	"outside-to-outside": {denyAll, "203.0.113.9 > 203.0.113.10 1/tcp"},
	"other-direction":    {otherDirection, "shop/web > shop/db 80/tcp"},
	"pending":            {dbClients, "ops/new > shop/db 5432/tcp"},
	"named-port":         {dbPorts(`{port: http}, {port: pg, protocol: SCTP}`), "shop/web > shop/db 80/tcp"},
	"sctp":               {dbPorts(`{port: pg}, {port: 7000, endPort: 7010, protocol: SCTP}`), "shop/web > shop/db 7011/sctp"},
	"many-policies":      {manyPolicies, "shop/web > shop/db 80/tcp"},
	"icmp-with-ports":    {dbPorts(`{port: 1}, {port: 2}`), "shop/web > shop/db icmp"},
	"two-rules-allow":    {twoRules, "shop/web > shop/db 80/tcp"},
}

// otherDirection selects both ends, each for the direction that does not matter.
const otherDirection = `
metadata: {name: receives}
spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress], egress: [{}, {ports: [{port: 1}]}]}
---
metadata: {name: sends}
spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Egress]}
---
metadata: {name: defaulted}
spec: {podSelector: {matchLabels: {app: web}}}`

const manyPolicies = `
{metadata: {name: a}, spec: {podSelector: {}}}
---
{metadata: {name: b}, spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress, Egress]}}
---
{metadata: {name: c}, spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 81}]}]}}
---
{metadata: {name: d}, spec: {podSelector: {}, egress: [{}]}}
---
{metadata: {name: e}, spec: {podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: "::/0"}}]}]}}
---
{metadata: {name: f}, spec: {podSelector: {matchExpressions: [{key: app, operator: Exists}]}}}`

const twoRules = `
{metadata: {name: a}, spec: {podSelector: {}, ingress: [{from: [{podSelector: {}}], ports: [{port: 80}, {port: 81}]}, {from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}}
---
{metadata: {name: b}, spec: {podSelector: {}, egress: [{}]}}`

func TestAnExplanationReads(t *testing.T) {
	for name, tc := range explanations {
		t.Run(name, func(t *testing.T) {
			golden(t, name+".golden", explained(t, tc.policies, tc.question).String())
		})
	}
}

// golden compares a text with a file, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "explain", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestTheWhyOfATermNamesWhatFailed(t *testing.T) {
	for name, tc := range map[string]struct{ policies, question, want string }{
		"a missing label":       {fromPods(`{key: role, operator: Exists}`), "shop/web > shop/db 1/tcp", "shop/web has no label role"},
		"two labels":            {fromPods(`{key: app, operator: In, values: [api]}, {key: role, operator: Exists}`), "shop/web > shop/db 1/tcp", "shop/web has app=web, has no label role"},
		"a pod in a namespace":  {dbFrom(`{podSelector: {matchLabels: {app: api}}}`), "infra/web > shop/db 1/tcp", "infra/web is not in namespace shop and has app=web"},
		"a pod, its namespace":  {dbFrom(`{podSelector: {matchLabels: {app: api}}, namespaceSelector: {matchLabels: {team: a}}}`), "infra/web > shop/db 1/tcp", "namespace infra has team=b; infra/web has app=web"},
		"the namespace only":    {dbFrom(`{podSelector: {matchLabels: {app: web}}, namespaceSelector: {matchLabels: {team: a}}}`), "infra/web > shop/db 1/tcp", "namespace infra has team=b"},
		"another namespace":     {dbFrom(`{podSelector: {}}`), "infra/web > shop/db 1/tcp", "infra/web is not in namespace shop"},
		"a namespace label":     {dbFrom(`{namespaceSelector: {matchLabels: {team: a}}}`), "infra/web > shop/db 1/tcp", "namespace infra has team=b"},
		"an unknown namespace":  {dbFrom(`{namespaceSelector: {}}`), "ghost/web > shop/db 1/tcp", "namespace ghost is not known"},
		"an external address":   {dbFrom(`{podSelector: {}}`), "203.0.113.9 > shop/db 1/tcp", "not the address of a pod"},
		"an empty peer":         {dbFrom(`{}`), "shop/web > shop/db 1/tcp", "invalid: a peer must have a field"},
		"a bad block":           {dbFrom(`{ipBlock: {cidr: x}}`), "shop/web > shop/db 1/tcp", `invalid: cidr "x": not an address and a prefix length`},
		"a bad operator":        {fromPods(`{key: app, operator: Like}`), "shop/web > shop/db 1/tcp", `invalid selector: "Like" is not a valid label selector operator`},
		"a name not on the pod": {dbPorts(`{port: http}`), "shop/web > shop/db 1/tcp", "shop/db has no tcp port named http"},
		"a name elsewhere":      {dbPorts(`{port: pg}`), "shop/web > shop/db 1/tcp", "pg is 5432 on shop/db, not 1"},
		"a name outside":        {dbEgress(`{ports: [{port: http}]}`), "shop/db > 203.0.113.9 80/tcp", "203.0.113.9 is not a pod, the name http stands for nothing there"},
		"an inverted range":     {dbPorts(`{port: 90, endPort: 80}`), "shop/web > shop/db 85/tcp", "invalid: endPort 80 is below port 90"},
		"a pod that waits":      {dbFrom(`{ipBlock: {cidr: 10.0.0.0/8}}`), "ops/new > shop/db 1/tcp", "ops/new has no address"},
		"a protocol":            {dbPorts(`{}`), "shop/web > shop/db icmp", "the flow is icmp"},
	} {
		t.Run(name, func(t *testing.T) {
			v := explained(t, tc.policies, tc.question)
			d := v.Ingress
			if !d.Isolated {
				d = v.Egress
			}
			var got []string
			for _, term := range append(d.Policies[0].Rules[0].Peers, d.Policies[0].Rules[0].Ports...) {
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

func TestTheNotesSayWhatAReaderMightNotExpect(t *testing.T) {
	st := shop()
	st.Policies = parsePolicies(t, `{metadata: {name: typo}, spec: {podSelector: {matchExpressions: [{key: app, operator: Like}]}}}
---
{metadata: {name: types}, spec: {podSelector: {}, policyTypes: [ingress]}}`)
	setIPs(podOf(&st, "shop/web"))
	o := oracle.New(st)
	v := o.VerdictPods(oracle.PodEndpoint("shop", "web"), oracle.PodEndpoint("shop", "db"), api.TCP, 1)
	want := []string{
		`NetworkPolicy shop/types has no effect: spec.policyTypes has the unknown type "ingress"`,
		`NetworkPolicy shop/typo has no effect: spec.podSelector is invalid: "Like" is not a valid label selector operator`,
		"shop/web has no address: judged by its labels, no block matches it",
	}
	if diff := cmp.Diff(want, v.Notes); diff != "" || !v.Allowed {
		t.Errorf("allowed %t, notes -want +got:\n%s", v.Allowed, diff)
	}
}

func TestALabelThatOneRequirementForbidsAndAnotherNeedsIsSetOnce(t *testing.T) {
	v := explained(t, fromPods(`{key: app, operator: NotIn, values: [web]}, {key: app, operator: In, values: [web, api]}`), "shop/web > shop/db 1/tcp")
	if got, want := v.Changes[0].Text, "label pod shop/web app=api"; got != want || !v.Changes[0].Flips {
		t.Errorf("the closest change is %q (flips %t), want %q", got, v.Changes[0].Flips, want)
	}
	v = explained(t, fromPods(`{key: app, operator: NotIn, values: [web]}, {key: app, operator: In, values: [web]}`), "shop/web > shop/db 1/tcp")
	for _, c := range v.Changes {
		if c.Kind == oracle.LabelPod {
			t.Errorf("a selector that contradicts itself led to %q", c.Text)
		}
	}
}

func TestANewRuleIsOfThePolicyThatSelectsTheLeast(t *testing.T) {
	v := explained(t, `
{metadata: {name: a-labelled}, spec: {podSelector: {matchExpressions: [{key: app, operator: Exists}]}}}
---
{metadata: {name: b-every}, spec: {podSelector: {}}}
---
{metadata: {name: c-own}, spec: {podSelector: {matchLabels: {app: db}}}}`, "shop/web > shop/db 1/tcp")
	if want := `add the rule "from app=web in namespace shop, port 1/tcp" to ingress of shop/c-own`; v.Changes[0].Text != want {
		t.Errorf("the smallest change is %q, want %q", v.Changes[0].Text, want)
	}
}

func TestAnEndpointThatIsNotKnownIsAnErrorOrADenial(t *testing.T) {
	o := oracle.New(shop())
	if _, err := o.Resolve("shop/none"); !errors.Is(err, oracle.ErrUnknownPod) {
		t.Errorf("Resolve: %v, want ErrUnknownPod", err)
	}
	for _, text := range []string{"", "web", "a/b/c", "/", "10.0.0.1/8", "fe80::1%eth0"} {
		if _, err := o.Resolve(text); err == nil {
			t.Errorf("Resolve(%q) succeeded", text)
		}
	}
	none, db := oracle.PodEndpoint("shop", "none"), oracle.PodEndpoint("shop", "db")
	if v := o.VerdictPods(none, db, api.TCP, 1); v.Allowed || len(v.Notes) != 1 {
		t.Errorf("a flow of a pod that is not known: %s", v)
	}
	if _, err := o.Flows(none, db, api.TCP, 1); !errors.Is(err, oracle.ErrUnknownPod) {
		t.Errorf("Flows: %v, want ErrUnknownPod", err)
	}
	if v := o.Verdict(api.Flow{}); v.Allowed {
		t.Errorf("a flow without addresses: %s", v)
	}
}

func TestFlowsPairsTheAddressesOfOneFamily(t *testing.T) {
	o := oracle.New(shop())
	flows, err := o.Flows(oracle.PodEndpoint("shop", "web"), oracle.PodEndpoint("shop", "db"), api.TCP, 80)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"10.0.1.1:0 -> 10.0.1.3:80/tcp", "[fd00::1:1]:0 -> [fd00::1:3]:80/tcp"}
	var got []string
	for _, f := range flows {
		got = append(got, f.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if pods := o.PodsAt(netip.MustParseAddr("::ffff:10.0.1.3")); len(pods) != 1 || pods[0].Name != "db" {
		t.Errorf("PodsAt: %v", pods)
	}
}

func TestTheOtherEndOfAPodThatWaitsHasItsAddress(t *testing.T) {
	for dst, want := range map[string]bool{"203.0.113.9": true, "203.0.113.10": false} {
		v := explained(t, `{metadata: {namespace: ops}, spec: {podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 203.0.113.9/32}}]}]}}`,
			"ops/new > "+dst+" 80/tcp")
		if v.Allowed != want || v.Flow.Src.IsValid() || !v.Flow.Dst.IsValid() {
			t.Errorf("to %s, want allowed=%t\n%s", dst, want, v)
		}
	}
}

func TestAPodThatHasFinishedHasNoFlow(t *testing.T) {
	st := shop()
	podOf(&st, "shop/web").Status.Phase = corev1.PodSucceeded
	o := oracle.New(st)
	for _, v := range []oracle.Verdict{
		o.Explain(oracle.PodEndpoint("shop", "web"), oracle.PodEndpoint("shop", "db"), api.TCP, 80),
		o.Explain(oracle.PodEndpoint("shop", "db"), oracle.PodEndpoint("shop", "web"), api.TCP, 80),
	} {
		if want := "no flow: shop/web has finished and has no address"; v.Allowed || v.Reason != want || len(v.Changes) > 0 {
			t.Errorf("got\n%swant the reason %q", v, want)
		}
	}
}
