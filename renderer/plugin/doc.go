// Package plugin is the dataplane in VPP: a plugin of VPP judges the packets of pods by the policy
// map of package compile, which the agent writes into shared memory. A change of policy or of an
// address needs no message to VPP and no pause of it.
//
// # Place in the flow
//
// xdp.Renderer compiles rules and carries out plans. Memory is what it writes to: the lines of the
// policy map, the endpoint table, and the settings of the classifier, in a file that VPP maps.
// The classifier is that of package xdp/bpf, compiled as an ordinary program (src).
//
// # Invariants
//
//   - The program reads the policy file, and never writes to it. It writes the state file:
//     connections, counters, and the epochs of its threads.
//   - Memory that packets could reach is written again only when every thread has ended the frame
//     of packets that it was at (Grace).
//   - Only root may write to the files. The program refuses files that others may write to.
package plugin
