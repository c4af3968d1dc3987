// Package vpptest runs VPP processes for tests: it starts and ends them, gives them
// interfaces and routes as a CNI plugin would, and sends packets through them.
//
//	New -> NewNetwork -> Add, Route -> Send -> Outcome
//
// # Invariants
//
//   - Every VPP is a process of its own, without devices, hugepages or privileges.
//   - What became of a packet is what VPP did with it: captured on the interface that
//     it left through, or counted as denied by ACLs.
package vpptest
