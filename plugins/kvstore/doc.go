// Package kvstore is the etcd client of Sluice. Only this package and the server of
// internal/kvstore/embedded depend on etcd.
//
// It is used on both sides of the store: ksr writes the reflected state with Write, datasync reads
// it with List and follows it with Watch. Both use interfaces of their own; only composition roots
// import this package. An agent that embeds the policy plugin passes a Client to datasync.New.
//
// # Invariants
//
//   - A List is one state of the store: all its pages are read at one revision,
//     and the read is linearizable.
//   - A Watch delivers every change from its start on, in order, or ends with an
//     error. It never continues over a connection that was lost completely, because
//     the store behind the next connection may be another one with the same
//     address: the caller must List again.
//   - Calls are bounded: each attempt by CallTimeout, the number of attempts by
//     a constant. Only operations that are safe to repeat are repeated.
//   - The client library does not write to stderr; its messages go to the
//     injected logger, with lower levels.
package kvstore
