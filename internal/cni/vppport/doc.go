// Package vppport makes and removes interfaces of pods in VPP, for one command of a CNI plugin.
//
//	internal/cni -> Client -> GoVPP -> VPP's API socket
//
// # Invariants
//
//   - An interface is down, and has its tag, when it can be seen; nothing here sets it up that was
//     made here.
//   - Everything that is made can be found again by the name of the attachment alone, whatever its
//     kind.
//   - What does not answer is an error, and nobody is there only where nothing listens.
package vppport
