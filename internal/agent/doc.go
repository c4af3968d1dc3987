// Package agent implements sluice-agent and sluice-neutron: it reads the settings, connects the
// source of the state, the policy pipeline and the renderers, and serves the debug API, metrics and
// reports. Its packages have one job each.
//
//	run:  etcd cluster -> datasync -> node (policy plugin -> backends) -> VPP, kernel
//	dev:  manifests -> embedded etcd -> datasync -> node -> embedded vswitch
//
// # Invariants
//
// The agent decides nothing. It knows no dataplane by name: packages backends and config do.
package agent
