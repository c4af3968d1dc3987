// Package embedded runs an etcd server inside the process: for the development
// stack, for a single node without a store of its own, and for tests that want
// the real thing.
//
// # Invariants
//
//   - It is one member, on loopback or without any listener at all, unless clients
//     have to show a certificate. It has no users: what remote clients may write is
//     limited to prefixes instead.
//   - Close ends everything that Start began, the watches of remote clients
//     included, and removes the directory when Start made it.
//   - Nothing is written to stderr.
package embedded
