package oracle_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/shop"
)

func verdictOf(t *testing.T, policies, admin, question string) oracle.Verdict {
	t.Helper()
	q := shop.Ask(t, question+" deny")
	return oracle.New(shop.Under(t, policies, admin)).VerdictPods(q.Src, q.Dst, q.Protocol, q.Port)
}

func TestTermEvalNamesWhatFailed(t *testing.T) {
	for name, tc := range map[string]struct{ policies, question, want string }{
		"a missing label":       {shop.FromPods(`{key: role, operator: Exists}`), "shop/web > shop/db 1/tcp", "shop/web has no label role"},
		"two labels":            {shop.FromPods(`{key: app, operator: In, values: [api]}, {key: role, operator: Exists}`), "shop/web > shop/db 1/tcp", "shop/web has app=web, has no label role"},
		"a pod in a namespace":  {shop.DBFrom(`{podSelector: {matchLabels: {app: api}}}`), "infra/web > shop/db 1/tcp", "infra/web is not in namespace shop and has app=web"},
		"a pod, its namespace":  {shop.DBFrom(`{podSelector: {matchLabels: {app: api}}, namespaceSelector: {matchLabels: {team: a}}}`), "infra/web > shop/db 1/tcp", "namespace infra has team=b; infra/web has app=web"},
		"the namespace only":    {shop.DBFrom(`{podSelector: {matchLabels: {app: web}}, namespaceSelector: {matchLabels: {team: a}}}`), "infra/web > shop/db 1/tcp", "namespace infra has team=b"},
		"another namespace":     {shop.DBFrom(`{podSelector: {}}`), "infra/web > shop/db 1/tcp", "infra/web is not in namespace shop"},
		"a namespace label":     {shop.DBFrom(`{namespaceSelector: {matchLabels: {team: a}}}`), "infra/web > shop/db 1/tcp", "namespace infra has team=b"},
		"an unknown namespace":  {shop.DBFrom(`{namespaceSelector: {}}`), "ghost/web > shop/db 1/tcp", "namespace ghost is not known"},
		"an external address":   {shop.DBFrom(`{podSelector: {}}`), "203.0.113.9 > shop/db 1/tcp", "not the address of a pod"},
		"an empty peer":         {shop.DBFrom(`{}`), "shop/web > shop/db 1/tcp", "invalid: a peer must have a field"},
		"a bad block":           {shop.DBFrom(`{ipBlock: {cidr: x}}`), "shop/web > shop/db 1/tcp", `invalid: cidr "x": not an address and a prefix length`},
		"a bad operator":        {shop.FromPods(`{key: app, operator: Like}`), "shop/web > shop/db 1/tcp", `invalid selector: "Like" is not a valid label selector operator`},
		"a name not on the pod": {shop.DBPorts(`{port: http}`), "shop/web > shop/db 1/tcp", "shop/db has no tcp port named http"},
		"a name elsewhere":      {shop.DBPorts(`{port: pg}`), "shop/web > shop/db 1/tcp", "pg is 5432 on shop/db, not 1"},
		"a name outside":        {shop.DBEgress(`{ports: [{port: http}]}`), "shop/db > 203.0.113.9 80/tcp", "203.0.113.9 is not a pod, named port http cannot be resolved there"},
		"an inverted range":     {shop.DBPorts(`{port: 90, endPort: 80}`), "shop/web > shop/db 85/tcp", "invalid: endPort 80 is below port 90"},
		"a pod that waits":      {shop.DBFrom(`{ipBlock: {cidr: 10.0.0.0/8}}`), "ops/new > shop/db 1/tcp", "ops/new has no address"},
		"a protocol":            {shop.DBPorts(`{}`), "shop/web > shop/db icmp", "the flow is icmp"},
	} {
		t.Run(name, func(t *testing.T) {
			v := verdictOf(t, tc.policies, "", tc.question)
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

func TestVerdictNotesExplainSurprises(t *testing.T) {
	st := shop.Cluster()
	st.Policies = shop.Policies(t, `{metadata: {name: typo}, spec: {podSelector: {matchExpressions: [{key: app, operator: Like}]}}}
---
{metadata: {name: types}, spec: {podSelector: {}, policyTypes: [ingress]}}`)
	shop.SetIPs(shop.PodOf(&st, "shop/web"))
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

func TestVerdictOfUnknownEndpointFails(t *testing.T) {
	o := oracle.New(shop.Cluster())
	none, db := oracle.PodEndpoint("shop", "none"), oracle.PodEndpoint("shop", "db")
	if v := o.VerdictPods(none, db, api.TCP, 1); v.Allowed || len(v.Notes) != 1 {
		t.Errorf("a flow of a pod that is not known: %s", reason.Of(v))
	}
	if v := o.Verdict(api.Flow{}); v.Allowed {
		t.Errorf("a flow without addresses: %s", reason.Of(v))
	}
}

func TestPodsAtTakesMappedAddresses(t *testing.T) {
	o := oracle.New(shop.Cluster())
	if pods := o.PodsAt(netip.MustParseAddr("::ffff:10.0.1.3")); len(pods) != 1 || pods[0].Name != "db" {
		t.Errorf("PodsAt: %v", pods)
	}
}

func TestVerdictOfPendingPodHasPeerAddress(t *testing.T) {
	for dst, want := range map[string]bool{"203.0.113.9": true, "203.0.113.10": false} {
		v := verdictOf(t, `{metadata: {namespace: ops}, spec: {podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 203.0.113.9/32}}]}]}}`, "",
			"ops/new > "+dst+" 80/tcp")
		if v.Allowed != want || v.Flow.Src.IsValid() || !v.Flow.Dst.IsValid() {
			t.Errorf("to %s, want allowed=%t\n%s", dst, want, reason.Of(v))
		}
	}
}

// TestTierRuleEvalNamesWhatFailed is about terms that NetworkPolicy does not have.
func TestTierRuleEvalNamesWhatFailed(t *testing.T) {
	deny := func(peers, ports string) string {
		return shop.Admin("a", 1, shop.ForDB+`egress: [{action: Deny, to: [`+peers+`], ports: [`+ports+`]}]`)
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
			v := verdictOf(t, "", tc.tiers, tc.question)
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
