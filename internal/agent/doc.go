// Package agent is the composition root of sluice-agent: settings in, a source of state, backends
// and a node wired, and the debug API, metrics and reports around them. Its packages have one job
// each.
//
//	run:  etcd cluster -> datasync -> node (policy plugin -> backends) -> VPP, kernel
//	dev:  manifests -> embedded etcd -> datasync -> node -> embedded vswitch
//
// # Invariants
//
// The agent decides nothing. It knows no dataplane by name: packages backends and config do.
package agent
