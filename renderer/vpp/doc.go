// Package vpp manages the GoVPP connection of a renderer to VPP, or to the embedded vswitch. It
// does not know the messages of renderers.
//
//	renderer/acl, renderer/session -> Link -> GoVPP -> API socket
//
// # Invariants
//
//   - A dump is received whole before anything of it is looked at.
//   - A Link that a call without an answer was made on is thrown away by its owner.
package vpp
