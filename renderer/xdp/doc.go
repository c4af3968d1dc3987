// Package xdp enforces policy in the kernel with eBPF programs (TCX and XDP) at the interfaces of
// pods, in both directions, with the cost of a few loads per packet.
//
// # Place in the flow
//
//	renderer contract -> Renderer -> compile.Image -> Dataplane -> the program of package bpf
//
// The Renderer takes rules as they are, without renderer/cache, because both directions
// are enforced at the pod's own interface. Package compile builds the policy map in the heap. A
// Dataplane carries the changes into the kernel (NewKernel) or into the heap (NewHeap).
//
// # Invariants
//
//   - The policy of an endpoint changes by one store; see compile.Plan for the order of changes.
//   - After a failed Apply the next plan is made from the whole desired state. It works from any
//     intermediate state of the dataplane.
//   - A dataplane that already enforces the desired state is not touched.
//   - Only links and maps under the renderer's own pin path are touched.
//   - A pin folder has one owner, whose lock ends with its process. Nothing in the folder is
//     touched without the lock.
package xdp
