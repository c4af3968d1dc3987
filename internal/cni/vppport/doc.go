// Package vppport creates and deletes pods' interfaces in VPP during one command of a CNI plugin.
//
//	internal/cni -> Client -> GoVPP -> VPP's API socket
//
// # Invariants
//
//   - An interface is down and has its tag as soon as it is visible; this package never sets an
//     interface up that it created.
//   - Everything that it creates, of whatever kind, can be found by the name of the attachment
//     alone.
//   - A VPP that does not answer is an error. A VPP counts as absent only if no process listens on
//     its socket.
package vppport
