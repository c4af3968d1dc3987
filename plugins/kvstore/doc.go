// Package kvstore is the etcd client of Sluice, and the only place (beside the server of
// internal/kvstore/embedded) that knows etcd.
//
// It stands at both ends of the store: ksr writes the reflected state with
// Write, datasync reads it with List and follows it with Watch. Both see it
// through interfaces of their own; only those who compose a program import this package. An agent
// that embeds the policy plugin gives a Client to datasync.New.
//
// # Invariants
//
//   - A List is one state of the store: all its pages are read at one revision,
//     and the read is linearizable.
//   - A Watch delivers every change from its start on, in order, or ends with an
//     error. It never goes on over a connection that was lost altogether, because
//     the store behind the next connection may be another one with the same
//     address: whoever watches has to List again.
//   - Calls are bounded: each attempt by CallTimeout, the number of attempts by
//     a constant. Only what may be repeated without harm is repeated.
//   - The client library does not write to stderr; what it has to say goes to the
//     injected logger, demoted.
package kvstore
