// Package vswitch is the embedded userspace dataplane: the bottom of the flow
// when there is no VPP. The acl renderer talks to it through GoVPP exactly as it
// talks to VPP, and packets can be sent through it.
//
// It has two sides. The management side speaks the VPP binary API below GoVPP,
// through two doors with one set of message handlers: Switch.Adapter gives an
// in-process adapter.VppAPI, Switch.Serve a Unix stream socket with the real
// framing and handshake. The packet side is Switch.Inject: input ACLs of the
// interface a packet came from, route, output ACLs of the interface it goes to.
//
// # Direction
//
// Directions are the vswitch's: ingress is VPP's input, what enters the vswitch
// from the pod; egress is VPP's output.
//
// # Invariants
//
//   - Packets see one immutable view of interfaces, bindings and routes, which
//     every configuration message replaces as a whole: no packet sees half of a
//     message, and interfaces that share an ACL switch together.
//   - An ACL's classifier is built once per content, before it becomes visible,
//     and answers exactly as a scan of its rules would.
//   - A session never outlives the permission of the direction that created it:
//     after a policy change the first packet of either direction is checked
//     against the current rules.
//   - Bytes from a client never make the process panic and never make it
//     allocate more than a constant factor of what was really received; the
//     failure of one client does not touch another.
//   - Requests of one connection are answered strictly in order.
//
// # What is not modelled
//
// There are no neighbours, no ARP and no multicast: VPP's bypasses of the ACLs
// (ARP, and multicast on input) therefore do not exist here. IPv4 header
// checksums and TTLs are not looked at. Where the real VPP's session handling
// differs from the clean semantics above, this package is clean. Options.LikeVPP
// makes it blind to ports of SCTP, as VPP is.
package vswitch
