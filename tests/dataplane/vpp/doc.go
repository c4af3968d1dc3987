// Package vpp tests on a real VPP what all other tests show on the embedded vswitch: the whole
// product, from Kubernetes objects to packets, with a VPP process as the dataplane.
// docs/reference/vpp.md has the results.
//
// The package drives the components from both ends:
//
//	manifests -> convert.ToModel -> node.Node -> API socket -> VPP <- packet generator
//	     |              \-----> node.Node -> embedded vswitch        |
//	     |                            \------- equal ACLs? ---------/|
//	     +-> oracle.New -------------- equal verdicts? -------------/
//
// An embedded node runs in parallel to the one with VPP. Its interfaces and routes are made in VPP
// too, as a CNI plugin would, so that both have the same work to do.
//
// Below that, scenarios ask what the ACL plugin does by itself (TestVPPScenarios): each
// is a list of calls and packets with their outcomes, in a plane that is a VPP or the
// embedded vswitch with the quirks of VPP.
//
// # Invariants
//
//   - Without SLUICE_VPP_BIN, which names a vpp binary, everything is skipped that needs one.
//   - A verdict is what became of a packet: captured where it had to leave VPP, or
//     dropped. All that was sent is accounted for: what was not captured was denied by
//     ACLs, by VPP's own counters, and by nothing else.
//   - A time counts only after what VPP holds then was checked.
//
// Package vpptest runs the processes. tests/lab/harness/backends has a VPP as a dataplane, over which
// the suites of renderers and the scenario files run, too.
//
// Every VPP is a process of its own, without devices, hugepages or privileges, and
// ends with its test.
package vpp
