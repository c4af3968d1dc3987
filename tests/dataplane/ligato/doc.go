// Package ligato runs the policy plugin inside the real agent of cn-infra, and what
// renderer/ligato publishes through the real orchestrator and KVScheduler of the ligato
// vpp-agent. It is a module of its own, so that the product depends on nothing of Ligato.
//
//	policy plugin -> renderer/ligato -> etcd (embedded) -> feed -> orchestrator
//	  -> KVScheduler -> descriptors of this package -> VPP's binary API -> internal/vswitch
//
// Two parts of the vpp-agent cannot be built today: its etcd plugin, which feed replaces, and
// everything that talks to VPP, which the descriptors of this package replace. Values are decoded
// by cn-infra's own serializer into vpp-agent's own model.
package ligato
