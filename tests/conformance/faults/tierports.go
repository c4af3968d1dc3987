package faults

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/tests/cluster"
)

// noName is a port name that no pod has.
const noName = "no-such-name"

var tierPortFaults = []Fault{
	misread("port names of administrators stand for nothing", "71", tierPorts(func(_ manifest, port tree) {
		for _, field := range []string{"namedPort", "destinationNamedPort"} {
			if port[field] != nil {
				port[field] = noName
			}
		}
	})),
	misread("a range of administrators ends before its end", "72", tierPorts(func(_ manifest, port tree) { shorter(port) })),
	misread("a range of administrators is its first port", "72", tierPorts(func(_ manifest, port tree) {
		for shorter(port) {
			continue
		}
	})),
	misread("only the first port of a rule counts", "79", tierRules(func(_ manifest, _ string, rule tree) []tree {
		for _, list := range []string{"ports", "protocols"} {
			if ports, _ := rule[list].([]any); len(ports) > 1 {
				rule[list] = ports[:1]
			}
		}
		return []tree{rule}
	})),
	misread("SCTP is not asked for", "60", tierRules(func(_ manifest, _ string, rule tree) []tree {
		if ports, _ := rule["ports"].([]any); slices.ContainsFunc(ports, isSCTP) {
			return nil
		}
		if ports, _ := rule["protocols"].([]any); slices.ContainsFunc(ports, isSCTP) {
			return nil
		}
		return []tree{rule}
	})),
}

// shorter takes the last port of a range away, and reports whether there was a range. That
// of one port becomes a number.
func shorter(port tree) bool {
	for _, field := range []string{"portRange", "range"} {
		if r, ok := port[field].(tree); ok && number(r["start"]) < number(r["end"]) {
			r["end"] = number(r["end"]) - 1
			if number(r["start"]) == number(r["end"]) && field == "range" {
				delete(port, "range")
				port["number"] = r["start"]
			}
			return true
		}
	}
	for _, field := range []string{"tcp", "udp", "sctp"} {
		protocol, _ := port[field].(tree)
		if to, ok := protocol["destinationPort"].(tree); ok {
			return shorter(to)
		}
	}
	return false
}

func number(n any) float64 {
	f, _ := n.(float64)
	return f
}

func isSCTP(port any) bool {
	p := port.(tree)
	if p["sctp"] != nil {
		return true
	}
	for _, field := range []string{"portNumber", "portRange"} {
		if t, ok := p[field].(tree); ok && t["protocol"] == "SCTP" {
			return true
		}
	}
	return false
}

var tierHistories = []Fault{
	late("a new priority is not followed", "57", func(before, now cluster.State) cluster.State {
		now.AdminPolicies = keep(before.AdminPolicies, now.AdminPolicies, func(p, old *v1alpha1.AdminNetworkPolicy) { p.Spec.Priority = old.Spec.Priority })
		now.ClusterPolicies = keep(before.ClusterPolicies, now.ClusterPolicies, func(p, old *v1alpha2.ClusterNetworkPolicy) { p.Spec.Priority = old.Spec.Priority })
		return now
	}),
	late("a new subject is not followed", "76", func(before, now cluster.State) cluster.State {
		now.AdminPolicies = keep(before.AdminPolicies, now.AdminPolicies, func(p, old *v1alpha1.AdminNetworkPolicy) { p.Spec.Subject = old.Spec.Subject })
		now.BaselinePolicies = keep(before.BaselinePolicies, now.BaselinePolicies, func(p, old *v1alpha1.BaselineAdminNetworkPolicy) { p.Spec.Subject = old.Spec.Subject })
		now.ClusterPolicies = keep(before.ClusterPolicies, now.ClusterPolicies, func(p, old *v1alpha2.ClusterNetworkPolicy) { p.Spec.Subject = old.Spec.Subject })
		return now
	}),
	late("new labels of a node are not followed", "70", func(before, now cluster.State) cluster.State {
		now.Nodes = keep(before.Nodes, now.Nodes, func(n, old *corev1.Node) { n.Labels = old.Labels })
		return now
	}),
	late("a deleted policy of administrators goes on", "80", func(before, now cluster.State) cluster.State {
		now.AdminPolicies = undeleted(before.AdminPolicies, now.AdminPolicies)
		now.BaselinePolicies = undeleted(before.BaselinePolicies, now.BaselinePolicies)
		now.ClusterPolicies = undeleted(before.ClusterPolicies, now.ClusterPolicies)
		return now
	}),
}

// object is one that can be copied.
type object[T any] interface {
	comparable
	GetNamespace() string
	GetName() string
	DeepCopy() T
}

// keep lets every object of a list keep something of what it was before.
func keep[T object[T]](before, now []T, keep func(o, old T)) []T {
	now = slices.Clone(now)
	var none T
	for i, o := range now {
		if old := find(before, o); old != none {
			now[i] = o.DeepCopy()
			keep(now[i], old)
		}
	}
	return now
}

// undeleted adds the objects that are gone.
func undeleted[T object[T]](before, now []T) []T {
	now = slices.Clone(now)
	var none T
	for _, old := range before {
		if find(now, old) == none {
			now = append(now, old)
		}
	}
	return now
}
