// Package xdp enforces the rules of pods in the kernel: at their interfaces, in both
// directions, with the cost of a few loads per packet.
//
// # Place in the flow
//
//	renderer contract -> Renderer -> compile.Image -> Plane -> the program of package bpf
//
// The Renderer takes rules as they are, without renderer/cache, because both directions
// are enforced at the pod's own interface. compile writes them into memory, a Plane carries
// the changes into the kernel (NewKernel) or into the heap (NewHeap).
//
// # Invariants
//
//   - A policy is swapped by one store per endpoint; see compile.Plan for the order.
//   - What a Commit could not finish is made again from everything that was told, by a plan
//     that leads from wherever endpoints are.
//   - A plane that already enforces what is told is not touched.
//   - Only links and maps under the own pin path are touched.
//   - A folder for pins has one owner, whose lock ends with its process; nothing in it is touched
//     without the lock.
package xdp
