// Package agent is the composition root of sluice-agent: settings in, plugins and
// renderers wired, health, metrics and the debug API around them.
//
//	run:  etcd cluster -> datasync -> policy plugin -> VPP
//	dev:  manifests -> embedded etcd -> datasync -> policy plugin -> embedded vswitch
//
// # Invariants
//
// The agent decides nothing. Explanations come from the specification's oracle on
// what is in the store; whether a packet passes is asked of the dataplane.
package agent
