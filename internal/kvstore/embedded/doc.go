// Package embedded runs an etcd server inside the process: for development, for a single node
// without a store of its own, and for tests against the real server.
//
// # Invariants
//
//   - It is a single member, on loopback or without any listener, unless clients
//     must present a certificate. It has no users: instead, remote clients may only write
//     keys with certain prefixes.
//   - Close ends everything that Start began, including the watches of remote clients,
//     and removes the directory if Start created it.
//   - Nothing is written to stderr.
package embedded
