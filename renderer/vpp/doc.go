// Package vpp keeps the connection of a renderer to VPP, or to the embedded vswitch, through
// GoVPP. It knows no message of what renderers install.
//
//	renderer/acl, renderer/session -> Link -> GoVPP -> API socket
//
// # Invariants
//
//   - A dump is received whole before anything of it is looked at.
//   - A Link that a call without an answer was made on is thrown away by its owner.
package vpp
