package policytest

import (
	"log/slog"
	"strings"
	"testing"
)

// TestRunTestsAdminPolicies has every kind of them applied, changed and
// deleted, for the specification and for the product.
func TestRunTestsAdminPolicies(t *testing.T) {
	f := parseOne(t, header+`
objects:
- `+podLine("shop", "web", "web", "10.0.0.1")+`
- `+podLine("shop", "db", "db", "10.0.0.2")+`
- {apiVersion: v1, kind: Node, metadata: {name: edge}, status: {addresses: [{type: ExternalIP, address: 203.0.113.7}]}}
- `+policyLine+`
probes:
- {from: shop/web, to: shop/db, port: 80, expect: deny}
- {from: shop/web, to: 203.0.113.7, port: 443, expect: allow}
steps:
- name: an administrator allows it
  apply:
  - apiVersion: policy.networking.k8s.io/v1alpha1
    kind: AdminNetworkPolicy
    metadata: {name: web}
    spec:
      priority: 5
      subject: {namespaces: {}}
      ingress: [{action: Allow, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}], ports: [{namedPort: http}]}]
  probes:
  - {from: shop/web, to: shop/db, port: 80, expect: allow}
  - {from: shop/web, to: shop/db, port: 81, expect: deny}
- name: another one is asked before
  apply:
  - apiVersion: policy.networking.k8s.io/v1alpha2
    kind: ClusterNetworkPolicy
    metadata: {name: nobody}
    spec:
      tier: Admin
      priority: 4
      subject: {namespaces: {}}
      ingress: [{action: Deny, from: [{namespaces: {}}]}]
      egress: [{action: Deny, to: [{nodes: {}}]}]
  probes:
  - {from: shop/web, to: shop/db, port: 80, expect: deny}
  - {from: shop/web, to: 203.0.113.7, port: 443, expect: deny}
- name: only the baseline is left
  apply:
  - apiVersion: policy.networking.k8s.io/v1alpha1
    kind: BaselineAdminNetworkPolicy
    metadata: {name: default}
    spec:
      subject: {namespaces: {}}
      ingress: [{action: Deny, from: [{namespaces: {}}], ports: [{portNumber: {protocol: TCP, port: 81}}]}]
  delete:
  - {kind: AdminNetworkPolicy, name: web}
  - {kind: ClusterNetworkPolicy, name: nobody}
  - {kind: NetworkPolicy, namespace: shop, name: deny}
  probes:
  - {from: shop/web, to: shop/db, port: 80, expect: allow}
  - {from: shop/web, to: shop/db, port: 81, expect: deny}
`)
	fabric := NewFabric(slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		if err := fabric.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, s := range []Subject{NewOracle(), fabric} {
		if report := mustRun(t, NewRunner(s), f); !report.OK() || report.Probes != 8 {
			t.Errorf("%s, %d probes:\n%s", s.Name(), report.Probes, written(t, report))
		}
	}
}

func TestMismatchNamesAdminRule(t *testing.T) {
	f := parseOne(t, header+`
objects:
- `+podLine("shop", "web", "web", "10.0.0.1")+`
- `+podLine("shop", "db", "db", "10.0.0.2")+`
- {apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: nobody}, spec: {tier: Admin, priority: 4, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}}
probes: [{from: shop/web, to: shop/db, port: 80, expect: allow}]
`)
	report := mustRun(t, NewRunner(NewOracle()), f)
	want := "ingress of shop/db: denied by ingress rule 0 of ClusterNetworkPolicy nobody, in the Admin tier"
	if len(report.Mismatches) != 1 || !strings.Contains(report.Mismatches[0].Why, want) {
		t.Errorf("mismatches %+v, want one because of %q", report.Mismatches, want)
	}
}

// TestRunChecksPortNamesBesideUnknownPeers has a rule that allows by one of its
// peers: the other one, which has no field, is nothing that could lack names.
func TestRunChecksPortNamesBesideUnknownPeers(t *testing.T) {
	f := parseOne(t, header+`
allowProblems: true
objects:
- `+podLine("shop", "web", "web", "10.0.0.1")+`
- `+podLine("shop", "db", "db", "10.0.0.2")+`
- `+policyLine+`
- {apiVersion: policy.networking.k8s.io/v1alpha1, kind: AdminNetworkPolicy, metadata: {name: a}, spec: {priority: 4, subject: {namespaces: {}}, ingress: [{action: Allow, from: [{}, {namespaces: {}}], ports: [{namedPort: http}]}]}}
probes: [{from: shop/web, to: shop/db, port: 80, expect: allow}]
`)
	fabric := NewFabric(slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		if err := fabric.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, s := range []Subject{NewOracle(), fabric} {
		if report := mustRun(t, NewRunner(s), f); !report.OK() {
			t.Errorf("%s:\n%s", s.Name(), written(t, report))
		}
	}
}
