package oracle_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	st := shop()
	st.Pods = append(st.Pods, newPod("ops", "new", "app=new", "", nil))
	st.Policies = parsePolicies(t, policies)
	o := oracle.New(st)
	q := parseQuestion(t, o, question+" deny")
	return o.Explain(q.src, q.dst, q.protocol, q.port)
}

// explanations are what people read. The widths of columns do not matter.
var explanations = map[string]struct{ policies, question, want string }{
	"a denial names every policy, every failed term and the nearest change": {dbClients, "shop/web > shop/db 5432/tcp", `
DENIED  by ingress of shop/db
  egress   shop/web  open: no policy selects it
  ingress  shop/db   isolated by shop/db-clients, shop/quarantine
    shop/db-clients  (policyTypes: Ingress)
      rule 0   from app=api          no match: shop/web has app=web
               port 5432/tcp         match: 5432
      rule 1   from anywhere         match
               port 9187/tcp         no match: 5432
               port dns/udp          no match: 5432/tcp
    shop/quarantine  (policyTypes: Ingress)
      no rules: allows nothing
    default deny: shop/db-clients, shop/quarantine
  closest change:
    label shop/web app=api
    add "port 5432/tcp" to ingress rule 1 of shop/db-clients
    add "from app=web in namespace shop" to ingress rule 0 of shop/db-clients
    add a rule "from app=web in namespace shop, port 5432/tcp" to ingress of a policy that selects shop/db
`},
	"what is allowed names the rule": {dbClients, "shop/api > shop/db 5432/tcp", `
ALLOWED
  egress   shop/api  open: no policy selects it
  ingress  shop/db   isolated by shop/db-clients, shop/quarantine
    shop/db-clients  (policyTypes: Ingress)
      rule 0   from app=api          match: shop/api matches
               port 5432/tcp         match: 5432
               allows
      rule 1   from anywhere         match
               port 9187/tcp         no match: 5432
               port dns/udp          no match: 5432/tcp
    shop/quarantine  (policyTypes: Ingress)
      no rules: allows nothing
  closest change:
    remove ingress rule 0 of shop/db-clients
    add a policy that isolates egress of shop/api
`},
	"an end outside of the cluster": {dbFrom(`{ipBlock: {cidr: 203.0.113.0/24, except: [203.0.113.0/28]}}`), "203.0.113.9 > shop/db icmp", `
DENIED  by ingress of shop/db
  egress   203.0.113.9  open: not the address of a pod
  ingress  shop/db      isolated by shop/p0
    shop/p0  (policyTypes: Ingress)
      rule 0   from 203.0.113.0/24 except 203.0.113.0/28  no match: 203.0.113.9 is in except 203.0.113.0/28
               every port and protocol                    match
    default deny: shop/p0
  closest change:
    add "from 203.0.113.9" to ingress rule 0 of shop/p0
    add a rule "from 203.0.113.9, every port and protocol" to ingress of a policy that selects shop/db
`},
	"an exemption": {denyAll, "192.168.0.1 > shop/db 1/tcp", `
ALLOWED
  egress   192.168.0.1  open: not the address of a pod
  ingress  shop/db      always permitted: the other end is the pod's own node
    shop/p0  (policyTypes: Ingress, Egress)
      no rules: allows nothing
`},
	"both directions deny": {denyAll, "shop/web > shop/db 1/tcp", `
DENIED  by egress of shop/web and ingress of shop/db
  egress   shop/web  isolated by shop/p0
    shop/p0  (policyTypes: Ingress, Egress)
      no rules: allows nothing
    default deny: shop/p0
  ingress  shop/db   isolated by shop/p0
    shop/p0  (policyTypes: Ingress, Egress)
      no rules: allows nothing
    default deny: shop/p0
  closest change:
    add a rule "to app=db in namespace shop, port 1/tcp" to egress of a policy that selects shop/web  (not enough alone: opens egress)
    add a rule "from app=web in namespace shop, port 1/tcp" to ingress of a policy that selects shop/db  (not enough alone: opens ingress)
`},
}

func TestAnExplanationReads(t *testing.T) {
	for name, tc := range explanations {
		t.Run(name, func(t *testing.T) {
			got := explained(t, tc.policies, tc.question).String()
			want := strings.TrimPrefix(tc.want, "\n")
			if diff := cmp.Diff(squeeze(want), squeeze(got)); diff != "" {
				t.Errorf("-want +got:\n%s\nwhole:\n%s", diff, got)
			}
		})
	}
}

// squeeze makes runs of blanks inside of lines one, so that the tests do not
// depend on the widths of columns.
func squeeze(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		out = append(out, indent[:min(len(indent), 6)]+strings.Join(strings.Fields(line), " "))
	}
	return out
}

func TestTheWhyOfATermNamesWhatFailed(t *testing.T) {
	for name, tc := range map[string]struct{ policies, question, want string }{
		"a missing label":       {fromPods(`{key: role, operator: Exists}`), "shop/web > shop/db 1/tcp", "shop/web has no label role"},
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
		"a protocol":            {dbPorts(`{}`), "shop/web > shop/db icmp", "icmp"},
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
	if got, want := v.Changes[0].Text, "label shop/web app=api"; got != want || !v.Changes[0].Flips {
		t.Errorf("the closest change is %q (flips %t), want %q", got, v.Changes[0].Flips, want)
	}
	v = explained(t, fromPods(`{key: app, operator: NotIn, values: [web]}, {key: app, operator: In, values: [web]}`), "shop/web > shop/db 1/tcp")
	for _, c := range v.Changes {
		if c.Kind == oracle.LabelPod {
			t.Errorf("a selector that contradicts itself led to %q", c.Text)
		}
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
