// Package vswitch is an embedded userspace dataplane with VPP's binary API, for development and
// tests without VPP. The acl renderer talks to it through GoVPP exactly as it talks to VPP, and
// packets can be sent through it.
//
// It has two sides. The management side speaks the VPP binary API below GoVPP, over two transports
// with one set of message handlers. Switch.Adapter returns an in-process adapter.VppAPI.
// Switch.Serve serves a Unix stream socket with the real framing and handshake. The packet side is
// Switch.Inject: it applies the input ACLs of the incoming interface, the route, and the output
// ACLs of the outgoing interface.
//
// # Direction
//
// Directions are seen from the vswitch: ingress is VPP's input, what enters the vswitch from the
// pod; egress is VPP's output.
//
// # Invariants
//
//   - Packets see one immutable view of interfaces, bindings and routes, which every configuration
//     message replaces as a whole. No packet sees half of a message, and interfaces that share an
//     ACL switch together.
//   - An ACL's classifier is built once per version, before it becomes visible,
//     and returns exactly what a scan of the rules would.
//   - A session never outlives the permission of the direction that created it:
//     after a policy change the first packet of either direction is checked
//     against the current rules.
//   - Bytes from a client never make the process panic and never make it allocate more than a
//     constant factor of what was really received. The failure of one client does not affect
//     another.
//   - Requests of one connection are answered strictly in order.
//
// # What is not modelled
//
// There are no neighbours, no ARP and no multicast: the traffic that bypasses VPP's ACLs (ARP, and
// multicast on input) therefore does not exist here. IPv4 header checksums and TTLs are ignored.
// Where the session handling of the real VPP differs from the semantics above, this package follows
// the semantics, unless Options.Quirks is set. With Options.LikeVPP it ignores ports of SCTP, as
// VPP does.
package vswitch
